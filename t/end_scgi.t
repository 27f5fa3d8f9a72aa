#!/usr/bin/perl

# SCGI and memcached: what the upstream says is written out here, and what nginx
# says to it is read no further than to know that it is there.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::Test;
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port);
$t->http(gate());
$t->server(<<'EOC');
    vibelock exec zone=z;

    location /scgi        { scgi_pass 127.0.0.1:%%UPSTREAM%%;
                            scgi_param REQUEST_METHOD $request_method; }
    location /scgi/passed { scgi_pass 127.0.0.1:%%UPSTREAM%%;
                            scgi_param REQUEST_METHOD $request_method;
                            scgi_buffering off; }
    location /memcached   { set $memcached_key key;
                            memcached_pass 127.0.0.1:%%UPSTREAM%%; }
EOC
$t->start;

my $n = 0;

sub try_end {
    my ($where, $name, $result, @said) = @_;

    my $uri = "$where?id=" . ++$n;
    my $pending = $t->async(GET => $uri);
    my $x = $up->accept_connection;
    $x->socket->read_exactly(9);

    is(lock_of($t, $n), 'running', "$uri runs");

    # The upstream closes where it has no more to say.
    defined $_ ? $x->send($_) : $x->close for @said;
    $pending->read_rest if !defined $said[-1];

    ends($t, $uri, $result, "$where: $name");
    $x->close;

    return;
}

my $head = "Status: 200 OK\r\n";

for my $where (qw(/scgi /scgi/passed)) {
    try_end($where, 'all of Content-Length', 'RELEASED',
            "${head}Content-Length: 4\r\n\r\nfull");
    try_end($where, 'fewer bytes than Content-Length', 'KEPT',
            "${head}Content-Length: 4\r\n\r\ncut", undef);
    try_end($where, 'a close', 'RELEASED', "$head\r\nbody", undef);
    try_end($where, 'no answer', 'KEPT', undef);
}

my $where = '/memcached';

try_end($where, 'a value', 'RELEASED', "VALUE key 0 4\r\nfull\r\nEND\r\n");
try_end($where, 'no such key', 'RELEASED', "END\r\n");
try_end($where, 'a part of a value', 'KEPT', "VALUE key 0 4\r\ncut", undef);
try_end($where, 'an error', 'KEPT', "ERROR\r\n");
try_end($where, 'no answer', 'KEPT', undef);

$t->done;

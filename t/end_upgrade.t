#!/usr/bin/perl

# An upgraded connection: the upstream's close is its end, the client's is not.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::Test;
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port);
$t->http(gate() . <<'EOC');
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection upgrade;
EOC
$t->server(<<'EOC');
    vibelock exec zone=z;
    listen 127.0.0.1:%%PORT_1%% sndbuf=4k;

    location /socket { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /silent { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                       proxy_read_timeout 1s; }
    location /large  { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                       proxy_buffer_size 256k; proxy_buffers 8 256k; }
    location /stays  { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                       proxy_ignore_client_abort on; }
EOC
$t->start;

my $n = 0;

# One that was asked for.

sub ask {
    my ($where, %how) = @_;

    my $id = ++$n;
    my $uri = "$where?id=$id";
    my $c = $t->connect(%how);

    $c->send_raw("GET $uri HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                 . "Upgrade: websocket\r\n\r\n");

    return ($uri, $up->accept_request, $c, $id);
}

sub switch {
    my ($x, $head) = @_;

    return $x->send("HTTP/1.1 101 Switching Protocols\r\n"
                    . "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                    . "$head\r\n");
}

# A connection that both sides have used once.

sub open_socket {
    my ($where, %how) = @_;

    my $head = delete $how{head} // '';
    my ($uri, $x, $c, $id) = ask($where, %how);

    switch($x, $head);
    like($c->read_until("\r\n\r\n"), qr/ 101 /, 'switched');
    $c->write('ping');
    is($x->socket->read_exactly(4), 'ping', 'to the upstream');
    $x->send('pong');
    is($c->read_exactly(4), 'pong', 'to the client');
    is(lock_of($t, $id), 'running', 'locked');

    return ($uri, $x, $c, $id);
}

my @cases = (
    ['the upstream closes', 'RELEASED', sub { $_[0]->close }],
    ['the upstream resets', 'KEPT',     sub { $_[0]->reset },
     'the upstream closed early'],
    ['the client closes',   'KEPT',     sub { $_[1]->close },
     'the client left'],
    ['the client resets',   'KEPT',     sub { $_[1]->reset },
     'the client left'],
);

for my $where (qw(/socket /stays)) {
    for my $case (@cases) {
        my ($name, $result, $play, $why) = @$case;
        my ($uri, $x, $c) = open_socket($where);
        $t->log_mark;
        $play->($x, $c);
        ends($t, $uri, $result, "$where: $name");
        like($t->error_log, qr/lock is stuck: $why,/, 'and why') if $why;
        $x->close;
        $c->close;
    }
}

# The client is gone before there is a connection: nginx sees that at once, or
# where it does not look, when it says that there is one.

for my $where (qw(/socket /stays)) {
    for my $how (qw(close reset)) {
        my ($uri, $x, $c, $id) = ask($where);

        is(lock_of($t, $id), 'running', 'locked');
        $c->$how;
        switch($x, '') if $where eq '/stays';
        ends($t, $uri, 'KEPT', "$where: $how, before it is switched");
        ok($x->wait_closed, 'nginx has let go of the upstream');
    }
}

{
    my ($uri, $x, $c) = open_socket('/silent');
    ends($t, $uri, 'KEPT', 'both fall silent');
    ok($x->wait_closed, 'nginx has closed it');
}

# Some servers give this header a length, which no 101 has.

{
    my ($uri, $x, $c) = open_socket('/socket', head => "Content-Length: 0\r\n");
    $x->close;
    ends($t, $uri, 'RELEASED', 'a length of 0: the upstream closes');

    ($uri, $x, $c) = open_socket('/socket', head => "Content-Length: 9\r\n");
    $c->close;
    ends($t, $uri, 'KEPT', 'a length: the client closes');
    $x->close;
}

# The upstream is first, and the client leaves what it has said unread.

for my $how (qw(close reset)) {
    my ($uri, $x, $c, $id) = open_socket('/large', port => $t->port(1),
                                         rcvbuf => 4096);
    $x->send('x' x 200_000);
    $x->close;

    # The one worker has seen the close when it has answered these.
    is(lock_of($t, $id), 'running', 'nginx has more than the client takes')
        for 1 .. 3;
    $c->$how;
    ends($t, $uri, 'RELEASED', "the upstream closes, then the client: $how");
}

$t->done;

#!/usr/bin/perl

# No memory, at each step of a guarded request: its lock is gone, or it is
# stuck, as the upstream had the request or not.

use strict;
use warnings;

use File::Temp ();
use Test::More;

use Vibelock::Ends qw(lock_of gate);
use Vibelock::Preload qw(preload);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

plan skip_all => 'it does not go with sanitizers or valgrind'
    if $ENV{VIBELOCK_PRELOAD} || $ENV{VIBELOCK_VALGRIND};

my $memory = File::Temp->new;

chmod 0666, $memory;

missing(0);

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1, env => {
    MEMORY => "$memory", preload('memory'),
});

# Small pools ask for memory at more of the steps.

$t->set(UPSTREAM => $up->port);
$t->http(gate() . <<'EOC');
    connection_pool_size 512;
    request_pool_size 512;
    client_header_buffer_size 256;
    proxy_http_version 1.1;
    lingering_close off;
    map $upstream_http_x_operation_running $running { "" ""; ~^(.*)$ $1; }
EOC
$t->server(<<'EOC');
    vibelock exec zone=z;
    vibelock_ttl json=timeout default=60s;
    vibelock_keep $running;

    location /buffered { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /passed   { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         proxy_buffering off; proxy_request_buffering off; }
    location /page     { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         error_page 500 502 /page.html; }
    location = /page.html { alias %%DIR%%/page; }
EOC
$t->write_file(page => "a page\n");
$t->start;

# The n-th piece that nginx asks for from now on; 0: none.

sub missing {
    my ($n) = @_;

    sysseek $memory, 0, 0;
    syswrite $memory, pack('i', $n) or die "memory: $!";

    return;
}

sub left {
    sysseek $memory, 0, 0;
    sysread $memory, my $int, 4;

    return unpack 'i', $int;
}

# A request that is answered in two parts, or as far as nginx goes. What the
# upstream has seen of it: '', 'dropped' before it was done, or 'done'.

sub play {
    my ($c) = @_;

    my $x;

    wait_for { $up->pending || $c->answered || $c->wait_closed(0.001) };

    return '' if !$up->pending;

    $x = $up->accept_connection;

    return '' if !eval { $x->read_head };

    # More of a header than nginx has room for from the start.

    $x->send_head(200, {
        'Transfer-Encoding' => 'chunked',
        (map { ("X-Header-$_" => 'v') } 1 .. 60),
    });
    $x->send_chunk('a part');

    my $seen = $c->await(qr/a part/) ? 'done' : 'dropped';

    $x->send_chunk('') if $seen eq 'done';
    $c->read_rest;
    $x->close;

    return $seen;
}

my $id = 0;
my %left = ('' => qr/^free$/, dropped => qr/^stuck$/, done => qr/^(?!running)/);

for my $where (qw(/buffered /passed /page)) {
    my ($n, $all, %seen, @wrong) = (0, 0);

    while (!$all) {
        my $uri = "$where?id=" . ++$id;
        my $c = $t->connect;
        my $lock;

        missing(++$n);
        $c->send_request(POST => $uri, body => '{"timeout":60}');

        my $seen = play($c);

        $all = left();
        missing(0);
        $c->close;

        wait_for { $lock = lock_of($t, $id); $lock ne 'running' };

        $seen{$seen}++;
        push @wrong, "$n: $seen, $lock" if $lock !~ $left{$seen};
    }

    is_deeply(\@wrong, [], "$where: no lock is lost, and none stays");
    cmp_ok($seen{$_}, '>', 5, "$where: missing while the upstream is "
                              . ($_ || 'not asked yet')) for '', 'dropped';
}

$t->expect_log(qr/failed \(12: /, 'on purpose');
$t->done;

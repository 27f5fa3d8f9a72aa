#!/usr/bin/perl

# HTTP/2 clients: one stream of many is reset, and the others go on.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::H2;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream->new;
my $auto = Vibelock::Upstream::Auto->start;
my $other = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port, AUTO => $auto->port, OTHER => $other->port);
$t->http(gate() . <<'EOC');
    upstream two {
        server 127.0.0.1:%%UPSTREAM%% max_fails=0;
        server 127.0.0.1:%%OTHER%% backup;
    }
    proxy_http_version 1.1;
EOC
$t->server(<<'EOC');
    listen 127.0.0.1:%%PORT_1%% http2;
    vibelock deploy zone=z;

    location /deploy { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /stays  { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                       proxy_ignore_client_abort on; }
    location /passed { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                       proxy_ignore_client_abort on; proxy_buffering off; }
    location /next   { proxy_pass http://two;
                       proxy_ignore_client_abort on;
                       proxy_next_upstream http_503 non_idempotent; }
    location /page   { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                       proxy_ignore_client_abort on;
                       proxy_intercept_errors on;
                       error_page 503 /auto; }
    location /auto   { proxy_pass http://127.0.0.1:%%AUTO%%; }
EOC
$t->start;

my $n = 0;
my $h2 = Vibelock::H2->connect(port => $t->port(1));

sub begin {
    my ($where, %how) = @_;

    my $id = ++$n;
    my $uri = "$where?id=$id";
    my $stream = $h2->request(POST => $uri, body => 'b', %how);
    my $x = $up->accept_request;

    is(lock_of($t, $id), 'running', "$uri runs");

    return ($uri, $x, $stream, $id);
}

{
    my @operations = map { [begin('/deploy')] } 1 .. 5;
    my $reset = splice @operations, 2, 1;

    $h2->reset_stream($reset->[2]);
    ends($t, $reset->[0], 'KEPT', 'the one that was reset');
    ok($reset->[1]->wait_closed, 'and its upstream dropped');

    is(lock_of($t, $_->[3]), 'running', 'the others run on')
        for @operations;

    for my $operation (@operations) {
        my ($uri, $x, $stream) = @$operation;
        $x->respond(200, {}, "done $uri");
        is($h2->response($stream)->body, "done $uri", 'answered');
        ends($t, $uri, 'RELEASED', 'and freed');
    }
}

# Its body comes in, and it is reset before all of it is there.

{
    my $id = ++$n;
    my $uri = "/deploy?id=$id";
    my $stream = $h2->request(POST => $uri, end => 0);
    $h2->send_data($stream, 'half');
    ok(wait_for { lock_of($t, $id) eq 'running' }, 'locked');
    $h2->reset_stream($stream);
    ends($t, $uri, 'RELEASED', 'reset before the upstream had a byte');
}

# Reset, and nginx waits on for what the upstream says.

my %answers = (
    'Content-Length'          => ["HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\n"
                                  . 'done'],
    'Content-Length, in two'  => ["HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\n",
                                  'done'],
    'chunked'                 => ["HTTP/1.1 200 X\r\n"
                                  . "Transfer-Encoding: chunked\r\n\r\n"
                                  . "4\r\ndone\r\n0\r\n\r\n"],
    'chunked, in two'         => ["HTTP/1.1 200 X\r\n"
                                  . "Transfer-Encoding: chunked\r\n\r\n",
                                  "4\r\ndone\r\n0\r\n\r\n"],
    'no content'              => ["HTTP/1.1 204 X\r\n\r\n"],
);

for my $name (sort keys %answers) {
    my ($uri, $x, $stream, $id) = begin('/stays');

    $h2->reset_stream($stream);
    ok($h2->ping, 'nginx has the reset');
    is(lock_of($t, $id), 'running', 'nothing has ended');

    my @parts = @{ $answers{$name} };

    while (defined(my $part = shift @parts)) {
        $x->send($part);
        is(lock_of($t, $id), 'running', 'not there in full') if @parts;
    }

    ends($t, $uri, 'RELEASED', "an answer to a stream that was reset: $name");
    $x->close;
}

for my $case (['/stays', 'cut', 'KEPT'], ['/passed', 'whole', 'RELEASED']) {
    my ($where, $what, $result) = @$case;
    my ($uri, $x, $stream, $id) = begin($where);

    $h2->reset_stream($stream);
    ok($h2->ping, 'nginx has the reset');
    $x->send("HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\n"
             . ($what eq 'cut' ? 'do' : 'done'));
    $x->close if $what eq 'cut';
    ends($t, $uri, $result, "nobody hears it: $where, $what");
    $x->close;
}

# nginx was to ask another upstream then, or to answer of its own, and does
# neither.

for my $where (qw(/next /page)) {
    for my $case (['respond', 'RELEASED'], ['close', 'KEPT']) {
        my ($how, $result) = @$case;
        my ($uri, $x, $stream) = begin($where);

        $h2->reset_stream($stream);
        ok($h2->ping, 'nginx has the reset');
        $x->$how($how eq 'respond' ? (503, {}, 'not now') : ());
        ends($t, $uri, $result, "nobody waits for more: $where, $how");
    }
}

ok(!$other->pending, 'another upstream was not asked');

# The next call on the same connection, and on another.

{
    my $other = Vibelock::H2->connect(port => $t->port(1));
    my %met;

    for my $i (1 .. 200) {
        my $c = $i % 3 ? $h2 : $other;
        my $stream = $c->request(POST => '/auto/' . (qw(ok stream/3))[$i % 2]
                                         . '?id=same', body => 'b');
        $met{ $c->response($stream)->status }++;
    }

    is_deeply(\%met, { 200 => 200 }, 'none met the lock of the one before');
}

# The whole connection goes.

{
    my @operations = map { [begin('/deploy')] } 1 .. 3;
    $h2->abort;
    ends($t, $_->[0], 'KEPT', 'the connection is gone') for @operations;
}

$t->finish;

# Who left while the worker did, or took nothing in for send_timeout, and whom
# it ended: the log tells them apart.

{
    my $t = Vibelock::Test->new(workers => 1, shutdown_timeout => '2s');

    $t->set(UPSTREAM => $up->port);
    $t->http(gate());
    $t->server(<<'EOC');
        listen 127.0.0.1:%%PORT_1%% http2 sndbuf=4k;
        send_timeout 300ms;
        location / {
            vibelock deploy zone=z;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
EOC
    $t->start;

    my (%h2, %stream, %x);

    for my $id (qw(ended reset closed aborted silent)) {
        $h2{$id} = Vibelock::H2->connect(port => $t->port(1), rcvbuf => 4096);
        $stream{$id} = $h2{$id}->request(GET => "/?id=$id");
        $x{$id} = $up->accept_request;
    }

    $t->reload;
    $x{silent}->send_head(200, { 'Content-Length' => 1_000_000 });
    $x{silent}->send('x' x 60_000);
    $h2{reset}->reset_stream($stream{reset});
    $h2{closed}->close;
    $h2{aborted}->abort;

    for my $id (qw(reset closed aborted silent)) {
        ends($t, "/?id=$id", 'KEPT', "$id, while the worker leaves");
        like($t->error_log,
             qr/is stuck: the client left, zone "z", key "$id"/, 'says so');
    }

    ends($t, '/?id=ended', 'KEPT', 'worker_shutdown_timeout');
    like($t->error_log,
         qr/is stuck: its worker was shut down, zone "z", key "ended"/,
         'says so');
    $t->finish;
}

Vibelock::Test->done;

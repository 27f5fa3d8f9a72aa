#!/usr/bin/perl

# What the client does: it leaves, at any moment, or sends its request in any
# of the ways that HTTP/1 knows.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends lock_of lock_at gate);
use Vibelock::Http qw(http_connect http_request);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream->new;
my $auto = Vibelock::Upstream::Auto->start;
my $dead = Vibelock::Upstream->unreachable;
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port, AUTO => $auto->port, DEAD => $dead->port);
$t->http(gate() . <<'EOC');
    upstream two {
        server 127.0.0.1:%%UPSTREAM%% max_fails=0;
        server 127.0.0.1:%%DEAD%% backup;
    }
    proxy_http_version 1.1;
    proxy_read_timeout 60s;
    client_max_body_size 100m;
    lingering_close off;
EOC
$t->server(<<'EOC');
    location /exec {
        vibelock exec zone=z;
        vibelock_ttl json=timeout default=60s;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /deploy {
        vibelock deploy zone=z;
        vibelock_overrun on;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /stays {
        vibelock deploy zone=z;
        vibelock_ttl 1s;
        vibelock_overrun on;
        proxy_ignore_client_abort on;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /stays/passed {
        vibelock deploy zone=z;
        proxy_ignore_client_abort on;
        proxy_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /echo {
        vibelock deploy zone=z;
        client_body_buffer_size 16k;
        proxy_pass http://127.0.0.1:%%AUTO%%;
    }
    location /unread {
        vibelock deploy zone=z;
        proxy_request_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /small {
        vibelock deploy zone=z;
        client_max_body_size 10;
        client_body_timeout 1s;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;

        location /small/unread {
            proxy_request_buffering off;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
    }
    location /next {
        vibelock deploy zone=z;
        proxy_next_upstream http_503 non_idempotent;
        proxy_pass http://two;
    }
EOC
$t->start;

my $n = 0;

sub begin {
    my ($uri, %how) = @_;

    $uri .= '?id=' . ++$n;

    return ($uri, begins($t, $up, $uri, body => '{}', %how), $n);
}

# A connection with half of a request's body on its way.

sub half {
    my ($uri) = @_;

    my $c = $t->connect;

    $c->send_raw("POST $uri HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
                 . '{"a":');

    return $c;
}

# It leaves.

{
    my $uri = '/exec?id=' . ++$n;
    my $c = half($uri);
    is(lock_of($t, $n), 'free', 'not locked before the TTL is known');
    $c->abort;
    my $line = $t->logged($uri);
    like($line->{status}, qr/^(?:400|408|499)$/, 'it left');
    is($line->{result}, '-', 'and nothing was locked');
    is(lock_of($t, $n), 'free', 'nothing is');
}

{
    my $uri = '/deploy?id=' . ++$n;
    my $c = half($uri);
    ok(wait_for { lock_of($t, $n) eq 'running' }, 'locked');
    ok(!$up->pending, 'and not passed on yet');
    $c->abort;
    ends($t, $uri, 'RELEASED', 'between acquire and proxy');
}

{
    my ($uri, $x, $pending) = begin('/next');
    $x->send_head(503, { 'Content-Length' => 0 });
    ok($x->wait_closed, 'nginx goes on');
    $pending->abort;
    ends($t, $uri, 'RELEASED', 'after a 503 in full, and before another try');
}

for my $how (qw(abort reset)) {
    my ($uri, $x, $pending) = begin('/deploy');
    $pending->$how;
    ends($t, $uri, 'KEPT', "before the header: $how");
    ok($x->wait_closed, 'nginx dropped the upstream');
}

{
    my ($uri, $x, $pending) = begin('/deploy');
    $x->send_head(200, { 'Transfer-Encoding' => 'chunked' });
    $x->send_chunk('x' x 4000);
    $pending->await(qr/xxx/);
    $pending->abort;
    ends($t, $uri, 'KEPT', 'after the header');
    like($t->error_log, qr/is stuck.*client left/, 'the log says why');
}

# Its body does not come to its end, or is none.

for my $where ('/small', '/small/unread') {
    for my $case ([408, ''], [413, "8\r\n12345678\r\n"], [400, "no size\r\n"]) {
        my ($status, $more) = @$case;
        my $uri = "$where?id=" . ++$n;
        my $c = $t->connect;
        my $x;

        $c->send_raw("POST $uri HTTP/1.1\r\nHost: x\r\n"
                     . "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        $x = $up->accept_request(body => 0) if $where =~ /unread/;
        ok(wait_for { lock_of($t, $n) eq 'running' }, 'locked');
        $c->send_raw($more);

        my $line = ends($t, $uri, $x ? 'KEPT' : 'RELEASED',
                        "$where: the body is no body: $status");
        is($line->{status}, $status, "answered $status");
        $x->close if $x;
        $c->close;
    }
}

# It leaves, and nginx stays.

for my $how (qw(abort reset)) {
    my ($uri, $x, $pending, $id) = begin('/stays');
    $pending->$how;
    ok($x->is_open, 'nginx waits on');
    is($t->post("/deploy?id=$id", body => 'b')->status, 409, 'locked');
    my $old = wait_for { lock_at($t, $id)->{ageMs} > 1500 };
    ok($old, 'past its TTL');
    is(lock_of($t, $id), 'running', 'it still holds');
    $x->respond(200, {}, 'done');
    ends($t, $uri, 'RELEASED', "freed by its own end, after $how");
}

for my $case (['all at once', 0, 1], ['in two', 1, 1], ['chunked', 0, 0],
              ['chunked, in two', 1, 0])
{
    my ($name, $later, $length) = @$case;

    for my $how (qw(abort reset)) {
        my ($uri, $x, $pending, $id) = begin('/stays');
        my $head = "HTTP/1.1 200 OK\r\n" . ($length
            ? "Content-Length: 4\r\n\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
        my $body = $length ? 'done' : "4\r\ndone\r\n0\r\n\r\n";

        $pending->$how;

        if ($later) {
            $x->send($head);
            is(lock_of($t, $id), 'running', 'still');
            $x->send($body);

        } else {
            $x->send($head . $body);
        }

        ends($t, $uri, 'RELEASED', "an answer nobody hears: $name, $how");
        $x->close;
    }
}

{
    my ($uri, $x, $pending, $id) = begin('/stays');
    $pending->reset;
    $x->send("HTTP/1.1 200 OK\r\nX-A: " . 'a' x 3000
             . "\r\nContent-Length: 4\r\n\r\n");
    is(lock_of($t, $id), 'running', 'a header that nginx sends at once');
    $x->send('done');
    ends($t, $uri, 'RELEASED', 'and the body after it');
    $x->close;
}

for my $where ('/stays', '/stays/passed') {
    my ($uri, $x, $pending) = begin($where);
    $x->send_head(200, { 'Content-Type' => 'text/event-stream',
                         'Transfer-Encoding' => 'chunked' });
    $x->send_chunk("data: 1\n\n");
    $pending->await(qr/data: 1/);
    $pending->reset;
    my $gone = wait_for { !$x->is_open || ($x->send_chunk("data: 2\n\n"), 0) };
    ok($gone, 'nginx drops a stream that nobody reads');
    ends($t, $uri, 'KEPT', "and cannot tell its end: $where");
}

# The ways to send a request.

{
    my $big = join '', map { chr(32 + $_ % 90) } 1 .. 1000;
    my %bodies = (
        'empty'        => [body => ''],
        'no body'      => [],
        'chunked'      => [chunks => ['{"a":', '1}']],
        'byte by byte' => [body => '{"a":1}', slowly => 1],
        '100-continue' => [body => '{"a":1}', expect => 1],
        'HTTP/1.0'     => [body => '{"a":1}', version => '1.0'],
        'in a file'    => [body => $big x 200],
    );

    for my $name (sort keys %bodies) {
        my @how = @{ $bodies{$name} };
        my $uri = '/echo?id=' . ++$n;
        my $r = $t->post($uri, @how);
        my %how = @how;

        is($r->status, 200, "$name: answered");
        is($r->json->{body}, $how{chunks} ? join('', @{ $how{chunks} })
                                          : $how{body} // '', 'as it was sent');
        ends($t, $uri, 'RELEASED', $name);
    }

    my $uri = '/echo?id=' . ++$n;
    my $r = $t->post($uri, body => $big x 50_000, limit => 60,
                     headers => { 'X-Upstream' => 'ok' });
    is($r->status, 200, '50 MB: answered');
    is(($auto->requests)[-1]{body_length}, 50_000_000, 'and passed on');
    ends($t, $uri, 'RELEASED', '50 MB');

    my $c = http_connect(port => $t->port);
    for my $i (1 .. 3) {
        $uri = '/echo?id=' . ++$n;
        is(http_request(method => 'POST', uri => $uri, connection => $c,
                        body => "n$i", keepalive => 1)->json->{body}, "n$i",
           'keep-alive');
        ends($t, $uri, 'RELEASED', "keep-alive $i");
    }

    # The second waits in nginx until the first was answered: no 409.
    my @uris = map { '/echo?id=' . ($n + 1) . "&n=$_" } 1 .. 3;
    ++$n;
    $c->send_request(POST => $_, body => 'b', keepalive => 1) for @uris;
    is($c->read_response->status, 200, 'pipelined') for @uris;
    ends($t, $_, 'RELEASED', "pipelined $_") for @uris;
}

# Its body is for the upstream alone.

{
    my $uri = '/unread?id=' . ++$n;
    my $c = half($uri);
    my $x = $up->accept_request(body => 0);
    is(lock_of($t, $n), 'running', 'locked and passed on before it is there');
    $c->send_raw('"b"}}');
    $x->read_body;
    is($x->body, '{"a":"b"}}', 'the upstream has what was sent');
    $x->respond(200);
    ends($t, $uri, 'RELEASED', 'a body that the module does not read');
}

$t->done;

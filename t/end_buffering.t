#!/usr/bin/perl

# The lock is free once the upstream's response was read in full: before the
# client has the last byte, and whatever the client does after.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends lock_of gate);
use Vibelock::Http qw(http_connect http_request);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream->new;
my $auto = Vibelock::Upstream::Auto->start(handler => sub {
    my ($request) = @_;
    my %type = ('Content-Type' => 'text/plain');
    my $text = "a line of text\n" x 40;

    return $request->{uri} =~ /chunked/
        ? (200, \%type, [map { $text } 1 .. 3]) : (200, \%type, $text);
});
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port, AUTO => $auto->port);
$t->http(gate() . <<'EOC');
    proxy_http_version 1.1;
    send_timeout 60s;
EOC
$t->server(<<'EOC');
    listen 127.0.0.1:%%PORT_1%% sndbuf=4k;
    vibelock exec zone=z;
    lingering_close off;

    location /auto/ {
        proxy_pass http://127.0.0.1:%%AUTO%%;
        gzip_http_version 1.0;

        location /auto/passed { proxy_pass http://127.0.0.1:%%AUTO%%;
                                proxy_buffering off; }
        location /auto/gzip   { proxy_pass http://127.0.0.1:%%AUTO%%;
                                gzip on; gzip_types *; gzip_min_length 1; }
        location /auto/sub    { proxy_pass http://127.0.0.1:%%AUTO%%;
                                sub_filter_types *; sub_filter_once off;
                                sub_filter line "rather longer line"; }
        location /auto/both   { proxy_pass http://127.0.0.1:%%AUTO%%;
                                proxy_buffering off;
                                sub_filter_types *; sub_filter_once off;
                                sub_filter line row;
                                gzip on; gzip_types *; gzip_min_length 1; }
    }
    location /sub {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        sub_filter_types *;
        sub_filter_once off;
        sub_filter x "a much longer text in its place";
        proxy_buffering off;
    }
    location /buffered  { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /no_sendfile {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        sendfile off;
        output_buffers 1 4k;
    }
    location /threads {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        aio threads;
        aio_write on;
    }
    location /passed {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_buffering off;
        proxy_request_buffering off;
    }
    location /large {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_buffering off;
        proxy_buffer_size 256k;
        proxy_buffers 8 256k;
    }
    location /given_up {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_max_temp_file_size 0;
        send_timeout 1s;

        location /given_up/passed {
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
            proxy_buffering off;
            send_timeout 1s;
        }
    }
    location /lingering {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        lingering_close always;
        lingering_timeout 30s;
    }
    location /post_action {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        post_action @after;
    }
    location @after     { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /file/     { alias %%DIR%%/; }
EOC
$t->write_file(page => "a page\n");
$t->start;

my $n = 0;

sub begin {
    my ($uri, %how) = @_;

    $uri .= '?id=' . ++$n;

    return ($uri, begins($t, $up, $uri, body => 'b', %how), $n);
}

sub is_free { my ($id) = @_; return wait_for { lock_of($t, $id) eq 'free' } }

# The next call after an answer, on whatever worker it comes in.

{
    my @paths = map { my $kind = $_; map { "/auto/$kind/$_" } qw(plain chunked) }
                qw(buffered passed gzip sub both);
    my @connections = map { http_connect(port => $t->port) } 1 .. 6;
    my (%met, $calls);

    for my $round (1 .. 40) {
        for my $path (@paths) {
            my $c = $connections[$calls++ % @connections];
            my $r = http_request(method => 'POST', uri => "$path?id=same",
                connection => $c, keepalive => 1,
                $path =~ /gzip|both/
                    ? (headers => { 'Accept-Encoding' => 'gzip' }) : ());

            $met{$path}{ $r->status }++;
        }
    }

    is_deeply(\%met, { map { $_ => { 200 => 40 } } @paths },
              "none of $calls calls met the lock of the one before");
}

# A length that a filter changes is not the upstream's.

{
    my ($uri, $x, $pending, $id) = begin('/sub');
    $x->send_head(200, { 'Content-Type' => 'text/plain',
                         'Content-Length' => 20 });
    $x->send('x' x 10);
    ok($pending->await(qr/(?:a much longer text in its place.*){9}/s),
       'more than 20 bytes have passed');
    is(lock_of($t, $id), 'running', 'the response is not there in full');
    $x->send('x' x 10);
    $pending->response;
    ends($t, $uri, 'RELEASED', 'now it is');
}

# Server-sent events.

for my $where ('/passed', '/buffered') {
    my ($uri, $x, $pending, $id) = begin($where);
    $x->send_head(200, { 'Content-Type' => 'text/event-stream',
                         'Transfer-Encoding' => 'chunked' });

    for my $event (1 .. 3) {
        $x->send_chunk("data: $event\n\n");
        ok($pending->await(qr/data: $event/), "event $event came through");
        is(lock_of($t, $id), 'running', 'the stream is open');
    }

    $x->send_chunk('');
    is($pending->response->body, join('', map { "data: $_\n\n" } 1 .. 3),
       'all events');
    ends($t, $uri, 'RELEASED', "a stream ends: $where");

    ($uri, $x, $pending, $id) = begin($where);
    $x->send_head(200, { 'Transfer-Encoding' => 'chunked' });
    $x->send_chunk("data: 1\n\n");
    $pending->await(qr/data: 1/);
    $x->close;
    $pending->read_rest;
    ends($t, $uri, 'KEPT', "a stream breaks off: $where");
}

# A client that does not read holds nothing, once all of it is in nginx.

for my $where ('/buffered', '/no_sendfile', '/threads') {
    my $size = 12_000_000;
    my ($uri, $x, $pending, $id) = begin($where, rcvbuf => 4096);
    $x->respond(200, {}, 'x' x $size);
    ok(is_free($id), "$where: free while the client has not read");
    unlike($t->access_log, qr/\Q$uri\E /, 'its request is still open');

    is(length $pending->response->body, $size, 'it gets all of it');
    ends($t, $uri, 'RELEASED', "$where: a slow reader");
}

# A part that the upstream made is whole: it is no slice that others follow.

{
    my $size = 12_000_000;
    my ($uri, $x, $pending, $id) = begin('/buffered', rcvbuf => 4096,
                                         headers => { Range => 'bytes=9-' });
    $x->respond(206, { 'Content-Range' => 'bytes 9-' . ($size + 8) . '/*' },
                ['x' x $size]);
    ok(is_free($id), 'a part without a length: free before it is read');
    is(length $pending->response->body, $size, 'it gets all of it');
    ends($t, $uri, 'RELEASED', 'a slow reader of a part');
}

for my $body ('x' x 200_000, ['x' x 200_000]) {
    my ($uri, $x, $pending, $id) = begin('/large', rcvbuf => 4096,
                                         port => $t->port(1));
    $x->respond(200, {}, $body);
    ok(is_free($id), 'unbuffered, in nginx, and free all the same');
    unlike($t->access_log, qr/\Q$uri\E /, 'its request is still open');
    is(length $pending->response->body, 200_000, 'it gets all of it');
    ends($t, $uri, 'RELEASED', 'a slow reader, unbuffered');
}

# One that does not read what nginx cannot take in, until nginx gives it up.

for my $where ('/given_up', '/given_up/passed') {
    my ($uri, $x, $pending, $id) = begin($where, rcvbuf => 4096,
                                         port => $t->port(1));
    $x->send_head(200, { 'Content-Length' => 1_000_000 });
    $x->send('x' x 500_000);
    ends($t, $uri, 'KEPT', "$where: a client that does not read");
    ok($t->log_like(qr/is stuck: the client left.*key "$id"/),
       'the log says who it was');
    $x->close;
}

# What comes after the answer.

{
    my $c = http_connect(port => $t->port);
    my $uri = '/lingering?id=' . ++$n;
    $c->send_request(POST => $uri, body => 'b');
    $up->accept_request->respond(200, {}, 'done');
    is($c->read_response->body, 'done', 'answered');
    is(lock_of($t, $n), 'free', 'lingering close holds nothing');
    $c->close;
    ends($t, $uri, 'RELEASED', 'lingering close');
}

for my $case (['respond', 'RELEASED', 'free'], ['close', 'KEPT', 'stuck'],
              ['abort', 'KEPT', 'stuck'])
{
    my ($how, $result, $left) = @$case;
    my ($uri, $x, $pending, $id) = begin('/post_action');
    $how eq 'abort' ? $pending->abort
        : $x->$how($how eq 'respond' ? (200, {}, 'done') : ());
    my $after = $up->accept_request;
    is(lock_of($t, $id), $left, "post_action holds nothing: $how");
    $after->close;
    ends($t, $uri, $result, "post_action: $how");
}

# The request's body, passed on as it comes.

{
    my $uri = '/passed?id=' . ++$n;
    my $c = $t->connect;
    $c->send_raw("POST $uri HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n"
                 . "Connection: close\r\n\r\nhalf");
    my $x = $up->accept_request(body => 0);
    is(lock_of($t, $n), 'running', 'locked with half of the body');
    $x->send_head(413, { Connection => 'close', 'Content-Length' => 8 });
    $x->send('too much');
    $x->close;
    is($c->read_response->status, 413, 'answered early');
    ends($t, $uri, 'RELEASED', 'an answer to half of a request');
    $c->close;

    $uri = '/passed?id=' . ++$n;
    $c = $t->connect;
    $c->send_raw("POST $uri HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n"
                 . "\r\nhalf");
    $x = $up->accept_request(body => 0);
    $c->abort;
    ends($t, $uri, 'KEPT', 'the client leaves in the middle of its body');
}

$t->done;

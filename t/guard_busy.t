#!/usr/bin/perl

# 409: said before the body is read, and what the connection does after it.

use strict;
use warnings;

use Test::More;

use Vibelock::Http qw(http_request);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    proxy_http_version 1.1;
    client_max_body_size 64m;
    lingering_timeout 100ms;
EOC
$t->server(<<'EOC');
    location /exec {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /deploy {
        vibelock deploy zone=ops;
        proxy_request_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /free {
        return 200 "free\n";
    }
EOC
$t->start;

my $holder = $t->async(POST => '/exec?id=1',
                       headers => { 'X-Upstream' => 'park/holder' });
$up->wait_requests(1);

subtest 'one lock for all operations' => sub {
    is($t->post('/exec?id=1')->status, 409, 'the same operation');
    is($t->post('/deploy?id=1')->status, 409, 'another operation');
    is($t->get('/deploy?id=1')->status, 409, 'another method');
    is($t->post('/deploy?id=1')->json->{error}{operation}, 'exec',
       'the holder is named, not who asks');
    is($t->post('/exec?id=2')->status, 200, 'another server');
    is($t->post('/exec?id=')->status, 200, 'no server at all');
    is(scalar(() = $up->requests), 3, 'who was refused did not go upstream');
};

subtest 'before the body is read' => sub {
    for my $path ('/exec', '/deploy') {
        my $c = $t->connect;

        $c->send_raw("POST $path?id=1 HTTP/1.1\r\nHost: x\r\n"
                     . "Content-Length: 20\r\n\r\n");
        is($c->read_response->status, 409, "$path, nothing of it came");
        ok($c->is_open, "$path, the connection is kept for it");
        $c->send_raw('x' x 20 . "GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
        is($c->read_response->body, "free\n",
           "$path, it is skipped when it comes");
        $c->close;

        $c = $t->connect;
        $c->send_raw("POST $path?id=1 HTTP/1.1\r\nHost: x\r\n"
                     . "Transfer-Encoding: chunked\r\n\r\n");
        is($c->read_response->status, 409, "$path, chunked");
        $c->send_raw("3\r\nabc\r\n0\r\n\r\n"
                     . "GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
        is($c->read_response->body, "free\n", "$path, chunked, skipped");
        $c->close;

        $c = $t->connect;
        $c->send_raw("POST $path?id=1 HTTP/1.1\r\nHost: x\r\n"
                     . "Expect: 100-continue\r\n"
                     . "Content-Length: 5000000\r\n\r\n");
        my $r = $c->read_response;
        is($r->status, 409, "$path, in place of 100 Continue");
        ok(!$r->continued, "$path, which was not sent");
        is($c->wait_closed, 'closed', "$path, no body will be waited for");
        $c->close;
    }

    my $c = $t->connect;
    $c->send_raw("POST /exec?id=1 HTTP/1.1\r\nHost: x\r\n"
                 . "Content-Length: 5000000\r\n\r\n");
    is($c->read_response->status, 409, '5 MB that were only announced');
    $c->close;
};

subtest 'a body that comes all the same' => sub {
    my $c = $t->connect;

    for (['a few bytes', body => '{"timeout":5}'],
         ['a bad one', body => 'no JSON'],
         ['that looks like a request',
          body => "GET /free HTTP/1.1\r\nHost: x\r\n\r\n"],
         ['3 MB', body => 'x' x 3_000_000],
         ['3 MB, chunked', chunks => [('x' x 50_000) x 60]],
         ['none'])
    {
        my ($name, %how) = @$_;
        my $r = http_request(method => 'POST', uri => '/exec?id=1',
                             connection => $c, %how);
        is($r->status, 409, $name);
        is(http_request(uri => '/free', connection => $c)->body, "free\n",
           "$name, and the next request on the connection");
    }

    my $request = "POST /exec?id=1 HTTP/1.1\r\nHost: x\r\n"
                  . "Content-Length: 3\r\n\r\nabc";
    $c->send_raw($request x 3 . "GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
    is($c->read_response->status, 409, "pipelined, $_") for 1 .. 3;
    is($c->read_response->body, "free\n", 'pipelined, the one after them');
    $c->close;

    $c = $t->connect;
    $c->send_raw("POST /exec?id=1 HTTP/1.1\r\nHost: x\r\n"
                 . "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"
                 . "GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
    is($c->read_response->status, 409, 'that did not wait for 100 Continue');
    is($c->read_response->body, "free\n", 'and the request behind it');
    $c->close;

    is($t->post('/exec?id=1', version => '1.0', body => 'abc')->status, 409,
       'HTTP/1.0');
    is($t->post('/exec?id=1', body => 'abc', slowly => 1)->status, 409,
       'byte by byte');

    my $r = $t->request(HEAD => '/exec?id=1');
    is($r->status, 409, 'HEAD');
    is($r->body, '', 'HEAD has no body');
};

subtest 'a lock taken while the body came' => sub {
    my $c = $t->connect;
    $c->send_raw("POST /exec?id=3 HTTP/1.1\r\nHost: x\r\n"
                 . "Expect: 100-continue\r\n"
                 . "Content-Length: 13\r\n\r\n{\"timeo");

    my $other = $t->async(POST => '/exec?id=3',
                          headers => { 'X-Upstream' => 'park/three' });
    my $seen = wait_for { grep { $_->{uri} eq '/exec?id=3' } $up->requests };
    ok($seen, 'who has its body first, locks first');

    $c->send_raw('ut":5}');
    my $r = $c->read_response;
    is($r->status, 409, 'who comes second is busy');
    ok($r->continued, 'when its body was asked for');
    is($r->json->{error}{operation}, 'exec', 'with the first');

    $c->send_raw("GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
    is($c->read_response->body, "free\n", 'the connection goes on');
    $c->close;

    $up->release('three');
    is($other->response->status, 200, 'the first ends');
};

subtest 'a client that leaves while its body comes' => sub {
    for my $how ('abort', 'reset') {
        my $c = $t->connect;
        $c->send_raw("POST /exec?id=4 HTTP/1.1\r\nHost: x\r\n"
                     . "Content-Length: 13\r\n\r\n{\"timeo");
        $c->$how;
        is($t->post('/exec?id=4')->status, 200, "$how leaves no lock");
    }
};

$up->release('holder');
is($holder->response->status, 200, 'the holder ends');
is($t->post('/exec?id=1')->status, 200, 'and the lock is free at once');

$t->done;

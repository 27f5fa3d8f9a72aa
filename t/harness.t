#!/usr/bin/perl

# The harness itself, against plain nginx: every part of t/lib at work once.

use strict;
use warnings;

use Test::More;

use Vibelock::Http qw(http_request);
use Vibelock::Test qw(wait_for free_port);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(module => 0, workers => 1);

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOF');
    upstream kept {
        server 127.0.0.1:%%UPSTREAM%%;
        keepalive 4;
    }
EOF
$t->server(<<'EOF');
    location /static {
        return 200 "static\n";
    }
    location /empty {
        return 204;
    }
    location /old/ {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location / {
        proxy_pass http://kept;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
    }
    location /unbuffered {
        proxy_pass http://kept;
        proxy_http_version 1.1;
        proxy_buffering off;
        proxy_request_buffering off;
    }
EOF
$t->start;

subtest 'nginx' => sub {
    my $t = Vibelock::Test->new(module => 0, workers => 2);
    $t->server('location /static { return 200 "static\n"; }
                location /empty { return 204; }
                location /file/ { alias %%DIR%%/; }');
    $t->start;
    my @workers = $t->workers;

    is(scalar @workers, 2, 'two workers');

    $t->write_file('page', "a page\n");
    is($t->get('/file/page')->body, "a page\n", 'workers read our files');

    my $r = $t->get('/static');
    is($r->status, 200, 'status');
    is($r->header('Content-Length'), 7, 'header');
    is($r->body, "static\n", 'body');
    ok($r->complete, 'complete');
    ok($t->access_like(qr{^GET /static 200}m), 'access log');

    is($t->request(HEAD => '/static')->body, '', 'HEAD');
    is($t->get('/empty')->status, 204, 'no content');

    my ($code, $output) = $t->config_test;
    is($code, 0, 'nginx -t');
    like($output, qr/test is successful/, 'nginx -t says so');

    $t->reload;
    my @new = $t->workers;
    is(scalar @new, 2, 'two new workers');
    ok(!(grep { my $pid = $_; grep { $_ == $pid } @workers } @new),
       'none of them is an old one');
    is($t->get('/static')->status, 200, 'served after the reload');
    ok(wait_for { !$t->leaving }, 'the old ones leave');

    $t->kill_worker($new[0]);
    is(scalar(() = $t->workers), 2, 'a killed worker is replaced');
    is($t->get('/static')->status, 200, 'served after that');
    $t->finish;
};

subtest 'refused configurations' => sub {
    $t->main('no_such_directive on;');

    my ($code, $output) = $t->config_test;
    is($code, 1, 'nginx -t fails');
    like($output, qr/unknown directive "no_such_directive"/, 'and says why');

    like($t->reload_fails, qr/unknown directive "no_such_directive"/,
         'the reload is refused');
    is($t->get('/static')->status, 200, 'what ran runs on');

    my $bad = Vibelock::Test->new(module => 0);
    $bad->http('no_such_directive on;');
    like($bad->start_fails, qr/unknown directive/, 'a start is refused');
    $bad->finish;

    $t->main('');
    $t->reload;
};

subtest 'raw client' => sub {
    my $c = $t->connect;

    $c->send_raw("GET /static HTTP/1.1\r\nHost: x\r\n\r\n" x 2);
    is($c->read_response->body, "static\n", 'pipelined, the first');
    is($c->read_response->body, "static\n", 'pipelined, the second');

    is(http_request(uri => '/static', connection => $c)->status, 200,
       'kept alive');
    ok($c->is_open, 'still open');

    $c->write_slowly("GET /empty HTTP/1.0\r\n\r\n");
    is($c->read_response->status, 204, 'byte by byte');
    is($c->wait_closed, 'closed', 'closed by nginx after HTTP/1.0');
};

subtest 'upstream, step by step' => sub {
    my $pending = $t->async(POST => '/a?b=c', json => { timeout => 5 },
                            headers => [['X-One', '1'], ['X-One', '2']]);
    my $x = $up->accept_request;

    is($x->method, 'POST', 'method');
    is($x->uri, '/a?b=c', 'uri');
    is($x->header('X-One'), '1, 2', 'header with two values');
    is($x->json->{timeout}, 5, 'body');
    ok(!$pending->answered, 'no response yet');

    $x->respond(500, [['X-Two', 'a'], ['X-Two', 'b']], 'oops');
    my $r = $pending->response;
    is($r->status, 500, 'status');
    is_deeply($r->headers->{'x-two'}, ['a', 'b'], 'header with two values');
    is($r->body, 'oops', 'body');

    $pending = $t->async(GET => '/again');
    my $y = $up->accept_request;
    is($y->socket, $x->socket, 'on the same connection');
    $y->respond(200, {}, ['chunk ', 'by chunk']);
    is($pending->response->body, 'chunk by chunk', 'chunked');

    $pending = $t->async(GET => '/old/');
    $x = $up->accept_request;
    is($x->version, '1.0', 'HTTP/1.0');
    $x->send("HTTP/1.0 200 OK\r\n\r\nto the end");
    $x->close;
    is($pending->response->body, 'to the end', 'close-delimited');
    ok($pending->response->complete, 'complete');
};

subtest 'upstream, badly' => sub {
    $t->expect_log(qr/\[error\]/, 'errors are no alerts anyway');

    my $pending = $t->async(GET => '/old/short');
    my $x = $up->accept_request;
    $x->send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
    $x->close;
    my $r = $pending->response;
    is($r->status, 200, 'status');
    is($r->body, 'short', 'body that came short');
    ok(!$r->complete, 'incomplete');

    $pending = $t->async(GET => '/old/reset');
    $up->accept_request->reset;
    is($pending->response->status, 502, 'reset');

    $pending = $t->async(GET => '/old/gone');
    $x = $up->accept_request;
    ok($x->is_open, 'nginx waits');
    $pending->abort;
    is($x->wait_closed, 'closed', 'nginx leaves after its client');
    $x->close;

    $pending = $t->async(GET => '/old/gone');
    $x = $up->accept_request;
    $pending->reset;
    ok($x->wait_closed, 'nginx leaves after its client was reset');
    $x->close;

    $up->stop_listening;
    is($t->get('/old/refused')->status, 502, 'refused');
    $up->listen;

    ok(!$up->pending, 'no request is left');
};

subtest 'streams' => sub {
    my $pending = $t->async(GET => '/unbuffered');
    my $x = $up->accept_request;
    $x->send_head(200, { 'Transfer-Encoding' => 'chunked',
                         'Content-Type' => 'text/event-stream' });
    $x->send_chunk("data: 1\n\n");
    ok($pending->await(qr/data: 1/), 'the first event');
    $x->send_chunk("data: 2\n\n");
    ok($pending->await(qr/data: 2/), 'the second event');
    $x->send_chunk('');
    $x->done;
    is($pending->response->body, "data: 1\n\ndata: 2\n\n", 'all of it');

    my $c = $t->connect;
    $c->send_raw("POST /unbuffered HTTP/1.1\r\nHost: x\r\n"
                 . "Content-Length: 6\r\n\r\nabc");
    $x = $up->accept_request(body => 0);
    ok($x->socket->await(qr/abc/), 'half of a body');
    $c->send_raw('def');
    $x->read_body;
    is($x->body, 'abcdef', 'the whole of it');
    $x->respond(200);
    is($c->read_response->status, 200, 'answered');
};

subtest 'bodies' => sub {
    my $body = join '', map { chr($_ % 251) } 1 .. 900_000;

    my $pending = $t->async(POST => '/big', body => $body);
    my $x = $up->accept_request;
    ok($x->body eq $body, 'a large one, past every buffer');
    $x->respond(200, {}, $body);
    ok($pending->response->body eq $body, 'and back');

    $pending = $t->async(POST => '/chunks', chunks => ['one ', 'two']);
    $x = $up->accept_request;
    is($x->body, 'one two', 'chunked');
    $x->respond(200);
    is($pending->response->status, 200, 'answered');

    is($t->post('/static', body => 'x', expect => 1)->status, 200,
       'Expect, refused or ignored');

    my $c = $t->connect;
    $c->send_raw("POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                 . "Expect: 100-continue\r\n\r\n");
    ok($c->await(qr/^HTTP\/1.1 100/), '100 Continue');
    $c->send_raw('ok');
    $x = $up->accept_request;
    is($x->body, 'ok', 'the body after it');
    $x->respond(200);
    ok($c->read_response->continued, 'noted');
};

subtest 'ports' => sub {
    my $port = free_port();

    isnt($port, free_port(), 'two are not the same');
    is($t->get('/static', port => $t->port)->status, 200, 'of nginx');
    ok(!eval { http_request(port => $port); 1 }, 'a free one refuses');
};

ok($t->quit, 'quits gracefully');
$t->start;
is($t->get('/static')->status, 200, 'starts again on the same port');

$t->done;

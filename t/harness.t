#!/usr/bin/perl

# The harness itself, against plain nginx: every part of t/lib at work once.

use strict;
use warnings;

use Test::More;

use Vibelock::FastCGI;
use Vibelock::Grpc;
use Vibelock::H2;
use Vibelock::Http qw(http_request);
use Vibelock::Node qw(run_node have_node);
use Vibelock::Process qw(alive);
use Vibelock::Proxy;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for free_port);
use Vibelock::Upstream;
use Vibelock::Upstream::Auto;
use Vibelock::Util qw(now);
use Vibelock::Uwsgi;

my $up = Vibelock::Upstream->new;
my $auto = Vibelock::Upstream::Auto->start;
my $fastcgi = Vibelock::FastCGI->new;
my $uwsgi = Vibelock::Uwsgi->new;
my $grpc = Vibelock::Grpc->new;
my $t = Vibelock::Test->new(module => 0, workers => 1);

$t->set(
    UPSTREAM => $up->port,
    AUTO     => $auto->port,
    FASTCGI  => $fastcgi->port,
    UWSGI    => $uwsgi->port,
    GRPC     => $grpc->port,
    NOWHERE  => free_port(),
);
$t->http(<<'EOF');
    upstream kept {
        server 127.0.0.1:%%UPSTREAM%%;
        keepalive 4;
    }
    upstream grpc_kept {
        server 127.0.0.1:%%GRPC%%;
        keepalive 4;
    }
EOF
$t->server(<<'EOF');
    listen 127.0.0.1:%%PORT_1%% http2;

    location /auto/ {
        proxy_pass http://127.0.0.1:%%AUTO%%;
        proxy_http_version 1.1;
    }
    location /fastcgi {
        fastcgi_pass 127.0.0.1:%%FASTCGI%%;
        fastcgi_param REQUEST_METHOD $request_method;
        fastcgi_param REQUEST_URI $request_uri;
        fastcgi_param CONTENT_LENGTH $content_length;
    }
    location /uwsgi {
        uwsgi_pass 127.0.0.1:%%UWSGI%%;
        uwsgi_param REQUEST_METHOD $request_method;
        uwsgi_param REQUEST_URI $request_uri;
        uwsgi_param CONTENT_LENGTH $content_length;
    }
    location /grpc {
        grpc_pass grpc://grpc_kept;
    }
    location /static {
        return 200 "static\n";
    }
    location /empty {
        return 204;
    }
    location /nowhere {
        proxy_pass http://127.0.0.1:%%NOWHERE%%;
        proxy_connect_timeout 100ms;
    }
    location /old/ {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_http_version 1.0;
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
    is($t->logged('/static')->{status}, 200, 'a line of it');

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

subtest 'upgrade' => sub {
    my $t = Vibelock::Test->new(module => 0, daemon => 1);
    $t->server('location / { return 204; }');
    $t->start;

    my $old = $t->upgrade;
    isnt($t->master, $old, 'another master');
    kill 'QUIT', $old;
    ok(wait_for { !alive($old) }, 'the old one leaves');
    is($t->get('/')->status, 204, 'served by the new one');
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

    my $nowhere = Vibelock::Upstream->unreachable;
    $t->set(NOWHERE => $nowhere->port);
    $t->reload;
    is($t->get('/nowhere')->status, 504, 'connect timeout');

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
    is(http_request(port => $port)->error, 'refused', 'a free one refuses');
};

subtest 'upstream by itself' => sub {
    my $r = $t->post('/auto/echo', body => 'b', headers => { 'X-A' => 1 });
    is($r->json->{body}, 'b', 'echo, body');
    is($r->json->{headers}{'x-a'}, 1, 'echo, header');

    is($t->get('/auto/status/503')->status, 503, 'status');
    is(length $t->get('/auto/bytes/300000')->body, 300000, 'bytes');
    is($t->get('/auto/stream/2')->body, "data: 1\n\ndata: 2\n\n", 'stream');
    is($t->get('/auto/x', headers => { 'X-Upstream' => 'close' })->status, 502,
       'close');
    is($t->get('/auto/reset')->status, 502, 'reset');
    ok(!$t->get('/auto/cut')->complete, 'cut');
    is($t->get('/auto/running')->header('X-Operation-Running'), 1, 'running');
    is($t->post('/auto/echo', chunks => ['a' x 70000, 'b'])->status, 200,
       'chunked');

    my $before = () = $auto->requests;
    my @pending = map { $t->async(GET => '/auto/park/one') } 1 .. 10;
    ok($auto->wait_requests($before + 10), 'ten are there at once');
    ok(!(grep { $_->answered } @pending), 'parked');
    (shift @pending)->abort;
    ok(wait_for { $auto->gone }, 'one went away');
    $auto->release('one');
    is($_->response->status, 200, 'released') for @pending;

    $auto->stop;
    is($t->get('/auto/ok')->status, 502, 'stopped');
    $auto->restart;
    is($t->get('/auto/ok')->json->{ok}, 1, 'again');

    my $custom = Vibelock::Upstream::Auto->start(handler => sub {
        my ($request) = @_;
        return (201, { 'X-A' => 'b' }, lc $request->{method});
    });
    $r = http_request(port => $custom->port, uri => '/any');
    is($r->status . $r->header('X-A') . $r->body, '201bget', 'a handler');
};

subtest 'HTTP/2' => sub {
    my $h2 = Vibelock::H2->connect(port => $t->port(1));

    is($h2->response($h2->request(GET => '/static'))->body, "static\n",
       'a response');

    my $one = $h2->request(POST => '/h2/one', body => 'a body',
                           headers => { 'X-Mixed-Case' => 'v' });
    my $x = $up->accept_request;
    my $two = $h2->request(POST => '/h2/two', end => 0);
    $h2->send_data($two, 'in two ');
    $h2->send_data($two, 'parts', end => 1);
    my $y = $up->accept_request;

    is($x->uri, '/h2/one', 'the first stream');
    is($x->header('X-Mixed-Case'), 'v', 'its header');
    is($x->body, 'a body', 'its body');
    is($y->body, 'in two parts', 'the second stream');

    $h2->reset_stream($one);
    ok($x->wait_closed, 'one is reset, and its upstream left');
    $x->close;

    ok($y->is_open, 'the other is open');
    $y->respond(404, { 'X-Answer' => 'The Answer: 42!' }, 'z' x 100_000);
    my $r = $h2->response($two);
    is($r->status, 404, 'its status');
    is($r->header('X-Answer'), 'The Answer: 42!', 'its header');
    is(length $r->body, 100_000, 'its body');
    ok($r->complete, 'complete');

    my $large = $h2->request(POST => '/auto/echo', body => 'q' x 300_000);
    is(length $h2->response($large)->json->{body}, 300_000,
       'a body past the windows');

    ok($h2->ping, 'ping');
    $h2->close;
};

subtest 'FastCGI' => sub {
    my $pending = $t->async(POST => '/fastcgi?a', body => 'x' x 100_000,
                            headers => { 'X-Api-Key' => 'k' });
    my $x = $fastcgi->accept_request;
    is($x->method . ' ' . $x->uri, 'POST /fastcgi?a', 'request');
    is($x->header('X-Api-Key'), 'k', 'header');
    is(length $x->body, 100_000, 'body');
    $x->respond(201, { 'X-A' => 'b' }, 'done');
    is($pending->response->status, 201, 'status');
    is($pending->response->body, 'done', 'body of the response');

    $pending = $t->async(GET => '/fastcgi');
    $x = $fastcgi->accept_request;
    $x->stdout("Status: 200\r\nContent-Length: 10\r\n\r\npart");
    $x->close;
    my $r = $pending->response;
    is($r->body, 'part', 'cut short');
    ok(!$r->complete, 'incomplete');
};

subtest 'uwsgi' => sub {
    my $pending = $t->async(POST => '/uwsgi?a', body => 'data',
                            headers => { 'X-Api-Key' => 'k' });
    my $x = $uwsgi->accept_request;
    is($x->method . ' ' . $x->uri, 'POST /uwsgi?a', 'request');
    is($x->header('X-Api-Key'), 'k', 'header');
    is($x->body, 'data', 'body');
    $x->respond(201, {}, 'done');
    is($pending->response->body, 'done', 'response');

    $pending = $t->async(GET => '/uwsgi');
    $uwsgi->accept_request->reset;
    is($pending->response->status, 502, 'reset');
};

subtest 'gRPC' => sub {
    my $pending = $t->async(POST => '/grpc/A/b', body => 'message' x 20_000,
                            headers => { 'X-Api-Key' => 'Key' });
    my $x = $grpc->accept_request;
    is($x->uri, '/grpc/A/b', 'request');
    is($x->header('X-Api-Key'), 'Key', 'header');
    is($x->body, 'message' x 20_000, 'body');
    $x->respond(200, { 'X-A' => 'b' }, 'reply' x 20_000);
    is($pending->response->header('X-A'), 'b', 'header of the response');
    is($pending->response->body, 'reply' x 20_000, 'body of the response');

    $pending = $t->async(POST => '/grpc/A/b');
    my $y = $grpc->accept_request;
    is($y->socket, $x->socket, 'on the same connection');
    $y->send_head(200);
    $y->send_data('part');
    ok($pending->await(qr/part/), 'in steps');
    $y->reset_stream(2);
    ok(!$pending->response->complete, 'reset');

    $pending = $t->async(POST => '/grpc/A/b');
    $x = $grpc->accept_request;
    $x->close;
    is($pending->response->status, 502, 'closed');
};

subtest 'Redis' => sub {
    my $redis = Vibelock::Redis->start(requirepass => 'p w', persist => 1);

    is($redis->cmd('SET', 'a', "b\r\n"), 'OK', 'SET');
    is($redis->cmd('GET', 'a'), "b\r\n", 'GET');
    ok(!defined $redis->cmd('GET', 'c'), 'null');
    ok(!eval { $redis->cmd('LPUSH', 'a', 1) }, 'an error');
    like($@, qr/^WRONGTYPE/, 'its text');
    like($redis->cmd('XADD', 's', '*', 'k', 'v'), qr/^\d+-0$/, 'XADD');
    is($redis->cmd('XRANGE', 's', '-', '+')->[0][1][1], 'v', 'nested reply');

    $redis->pause;
    my $client = eval { $redis->client(password => undef) };
    $client->send('AUTH', 'p w');
    ok(!eval { $client->read_reply(0.1); 1 }, 'paused');
    $redis->resume;
    is($client->read_reply, 'OK', 'resumed');

    $redis->kill;
    ok(!eval { $redis->client; 1 }, 'killed');
    $redis->start;
    is($redis->cmd('GET', 'a'), "b\r\n", 'started with what it kept');

    my $unix = Vibelock::Redis->start(unix => 1,
        acl => ['user some on >secret ~* +ping +auth']);
    $client = $unix->client(user => 'some', password => 'secret');
    is($client->cmd('PING'), 'PONG', 'Unix socket, user');
    ok(!eval { $client->cmd('GET', 'a'); 1 }, 'not allowed to');
    like($@, qr/^NOPERM/, 'its text');
};

subtest 'stalling proxy' => sub {
    my $redis = Vibelock::Redis->start;
    my $proxy = Vibelock::Proxy->start(to => $redis->port);
    my $client = Vibelock::Redis::Client->connect(port => $proxy->port);

    is($client->cmd('PING'), 'PONG', 'passes');
    is($proxy->connections, 1, 'one connection');

    $proxy->stall('replies');
    $client->send('INCR', 'n');
    ok(wait_for { $redis->cmd('GET', 'n') }, 'the request passed');
    is($client->available, '', 'the reply did not');
    $proxy->resume;
    is($client->read_reply, 1, 'it does later');

    $proxy->trickle(1);
    my $start = now();
    is($client->cmd('ECHO', 'x' x 20), 'x' x 20, 'passes in small pieces');
    cmp_ok(now() - $start, '>', 0.2, 'and slowly');
    $proxy->resume;

    $proxy->stall;
    $client->send('INCR', 'n');
    my $other = Vibelock::Redis::Client->connect(port => $proxy->port);
    ok(wait_for { $proxy->accepted == 2 }, 'accepted in silence');
    ok($client->is_open, 'nothing is closed');
    is($redis->cmd('GET', 'n'), 1, 'nothing passed');

    $proxy->forget;
    $proxy->resume;
    $other = Vibelock::Redis::Client->connect(port => $proxy->port);
    is($other->cmd('PING'), 'PONG', 'a new connection passes');
    $client->send('PING');
    is($client->available, '', 'an old one is lost');

    $proxy->reset;
    is($other->wait_closed, 'reset', 'reset');
    ok($client->wait_closed, 'the old one too');

    $other = Vibelock::Redis::Client->connect(port => $proxy->port);
    is($other->cmd('PING'), 'PONG', 'and another');
    $proxy->drop;
    is($other->wait_closed, 'closed', 'dropped');
};

subtest 'Node' => sub {
    plan skip_all => 'there is no node' unless have_node();

    my %env = (URL => $t->url('/static'));
    my ($code, $output) = run_node(<<'JS', env => \%env);
        const res = await fetch(process.env.URL)
        console.log(res.status, await res.text())
JS
    is($code, 0, 'exit code');
    like($output, qr/^200 static/, 'output');
};

ok($t->quit, 'quits gracefully');
$t->start;
is($t->get('/static')->status, 200, 'starts again on the same port');

$t->done;

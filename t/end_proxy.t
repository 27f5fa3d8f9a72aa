#!/usr/bin/perl

# How an operation ends at an HTTP upstream: answered, refused, cut, silent,
# tried again, or answered by something else in the end.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends lock_of gate);
use Vibelock::Test qw(free_port);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $other = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port, OTHER => $other->port, NOWHERE => free_port());
$t->http(gate() . <<'EOC');
    upstream kept { server 127.0.0.1:%%UPSTREAM%%; keepalive 4; }
    upstream two {
        server 127.0.0.1:%%UPSTREAM%% max_fails=0;
        server 127.0.0.1:%%OTHER%% backup;
    }
    upstream refuses_first {
        server 127.0.0.1:%%NOWHERE%% max_fails=0;
        server 127.0.0.1:%%OTHER%% backup;
    }
    upstream none { server 127.0.0.1:%%UPSTREAM%% down; }
    proxy_http_version 1.1;
    proxy_set_header Connection "";
EOC
$t->server(<<'EOC');
    vibelock exec zone=z;

    location /op       { proxy_pass http://kept; }
    location /old      { proxy_pass http://kept; proxy_http_version 1.0; }
    location /passed   { proxy_pass http://kept; proxy_http_version 1.0;
                         proxy_buffering off; }
    location /slow     { proxy_pass http://kept; proxy_read_timeout 1s; }
    location /refused  { proxy_pass http://127.0.0.1:%%NOWHERE%%; }
    location /none     { proxy_pass http://none; }
    location /name {
        resolver 127.0.0.1:%%NOWHERE%%;
        resolver_timeout 1s;
        set $name no.such.name.example;
        proxy_pass http://$name;
    }
    location /next     { proxy_pass http://two;
                         proxy_next_upstream error http_503 non_idempotent; }
    location /no_next  { proxy_pass http://two;
                         proxy_next_upstream error; }
    location /then     { proxy_pass http://refuses_first; }
    location /handed   { proxy_pass http://kept; }
    location /inside/  { internal; alias %%DIR%%/; }
    location /again/   { internal; proxy_pass http://127.0.0.1:%%OTHER%%; }
    location /page     { proxy_pass http://kept; proxy_intercept_errors on;
                         error_page 500 502 503 /inside/page; }
    location /drop     { proxy_pass http://kept; proxy_intercept_errors on;
                         error_page 503 @drop; }
    location @drop     { return 444; }
    location /named    { proxy_pass http://kept; proxy_intercept_errors on;
                         error_page 500 502 503 = @other; }
    location @other    { proxy_pass http://127.0.0.1:%%OTHER%%; }
    location /before {
        vibelock off;
        proxy_pass http://kept;
        error_page 502 = @guarded;
    }
    location @guarded  { proxy_pass http://127.0.0.1:%%OTHER%%; }
EOC
$t->write_file(page => "a page\n");
$t->start;

my $n = 0;

# An operation up to where the upstream has it.

sub begin {
    my ($uri, %how) = @_;

    my $at = delete $how{at} // $up;

    $uri .= '?id=' . ++$n;

    return ($uri, begins($t, $at, $uri, %how));
}

for my $status (200, 201, 302, 404, 409, 500, 502, 503, 504) {
    my ($uri, $x, $pending) = begin('/op', body => 'b');
    $x->respond($status, {}, 'said');
    is($pending->response->status, $status, 'status');
    ends($t, $uri, 'RELEASED', "answered in full: $status");
}

for my $case (['HEAD', 200], ['GET', 204], ['GET', 304]) {
    my ($method, $status) = @$case;
    my ($uri, $x, $pending) = begin('/op', method => $method);
    $x->send_head($status, $status == 200 ? { 'Content-Length' => 5 } : {});
    $pending->read_response(method => $method);
    ends($t, $uri, 'RELEASED', "no body to come: $method $status");
    $x->close;
}

# Cut short, or not: three ways that a body can end.

{
    my ($uri, $x, $pending) = begin('/op');
    $x->send_head(200, { 'Content-Length' => 100 });
    $x->send('part');
    $x->close;
    $pending->response;
    ends($t, $uri, 'KEPT', 'fewer bytes than Content-Length');
}

for my $how (qw(close reset)) {
    my ($uri, $x, $pending) = begin('/op');
    $x->send_head(200, { 'Transfer-Encoding' => 'chunked' });
    $x->send_chunk('part');
    $pending->read_head;
    $x->$how;
    $pending->read_rest;
    ends($t, $uri, 'KEPT', "no last chunk: $how");
}

{
    my ($uri, $x, $pending) = begin('/op');
    $x->respond(200, {}, ['all', 'of it']);
    is($pending->response->body, 'allof it', 'chunked');
    ends($t, $uri, 'RELEASED', 'the last chunk');
}

for my $case (['/old', 'close', 'RELEASED'], ['/passed', 'close', 'RELEASED'],
              ['/passed', 'reset', 'KEPT'])
{
    my ($where, $how, $result) = @$case;
    my ($uri, $x, $pending) = begin($where);
    $x->send_head(200, {});
    $x->send('all there is');
    $pending->await(qr/all there is/) if $where eq '/passed';
    $x->$how;
    like($pending->read_rest, qr/all there is/, 'the body');
    ends($t, $uri, $result, "a body that ends with the connection: $how");
}

# No answer at all.

for my $how (qw(close reset)) {
    my ($uri, $x, $pending) = begin('/op');
    $x->$how;
    is($pending->response->status, 502, 'answered 502');
    ends($t, $uri, 'KEPT', "the upstream died with the request: $how");
}

{
    my ($uri, $x, $pending) = begin('/op');
    $x->send("this is no HTTP\r\n\r\n\0\r\n");
    $x->close;
    $pending->response;
    ends($t, $uri, 'RELEASED', 'HTTP/0.9, as nginx takes it');
}

{
    my ($uri, $x, $pending) = begin('/op');
    $x->send("HTTP/1.1 200 OK\r\nbad\0header\r\n\r\n");
    is($pending->response->status, 502, 'answered 502');
    ends($t, $uri, 'KEPT', 'a header that is none');
}

{
    my ($uri, $x, $pending) = begin('/slow');
    is($pending->response->status, 504, 'answered 504');
    like(ends($t, $uri, 'KEPT', 'silence')->{age}, qr/^[1-9]\d{3}$/,
         'it took a second');
    ok($t->log_like(qr/is stuck.*timed out/), 'the log says why');
    ok($x->wait_closed, 'nginx gave it up');
}

{
    my ($uri, $x, $pending) = begin('/slow');
    $x->send_head(200, { 'Content-Length' => 100 });
    $x->send('part');
    $pending->response;
    ends($t, $uri, 'KEPT', 'silence in the middle of the body');
}

# Nobody had a byte of it.

for my $case (['/refused', 502], ['/none', 502], ['/name', 502]) {
    my ($uri, $status) = @$case;
    $uri .= '?id=' . ++$n;
    is($t->post($uri, body => 'b')->status, $status, "$uri: $status");
    ends($t, $uri, 'RELEASED', "$uri");
}

# A kept connection that is dead: the request went into it.

{
    my ($uri, $x, $pending) = begin('/op');
    $x->respond(200);
    $pending->response;
    ends($t, $uri, 'RELEASED', 'a connection is kept');

    ($uri, $x, $pending) = begin('/op');
    ok($x->has_next || 1, 'the next request comes there');
    $x->reset;
    is($pending->response->status, 502, 'answered 502');
    ends($t, $uri, 'KEPT', 'and dies with it');
}

# One try after another.

{
    my ($uri, $x, $pending) = begin('/next');
    $x->close;
    $other->accept_request->respond(200, {}, 'fine');
    is($pending->response->body, 'fine', 'the next one answers');
    ends($t, $uri, 'KEPT', 'but the first one had it too');

    ($uri, $x, $pending) = begin('/next');
    $x->respond(503);
    $other->accept_request->respond(200, {}, 'fine');
    is($pending->response->body, 'fine', 'the next one answers');
    ends($t, $uri, 'RELEASED', 'after a 503 in full');

    ($uri, $x, $pending) = begin('/no_next');
    $x->close;
    is($pending->response->status, 502, 'a POST is not tried again');
    ends($t, $uri, 'KEPT', 'unless non_idempotent says so');

    ($uri, $x, $pending) = begin('/then', at => $other);
    $x->respond(200);
    $pending->response;
    ends($t, $uri, 'RELEASED', 'a refused try does not count');
}

# Another answer than the upstream's.

{
    my ($uri, $x, $pending) = begin('/handed');
    $x->respond(200, { 'X-Accel-Redirect' => '/inside/page' }, 'not this');
    is($pending->response->body, "a page\n", 'X-Accel-Redirect to a file');
    ends($t, $uri, 'RELEASED', 'X-Accel-Redirect to a file');

    ($uri, $x, $pending) = begin('/handed');
    $x->respond(200, { 'X-Accel-Redirect' => '/again/' }, 'not this');
    my $y = $other->accept_request;
    is(lock_of($t, $n), 'running', 'handed on, and still locked');
    $y->close;
    is($pending->response->status, 502, 'answered 502');
    ends($t, $uri, 'KEPT', 'X-Accel-Redirect to one that dies');

    ($uri, $x, $pending) = begin('/page');
    $x->respond(503);
    is($pending->response->body, "a page\n", 'intercepted');
    ends($t, $uri, 'RELEASED', 'an intercepted error');

    ($uri, $x, $pending) = begin('/page');
    $x->close;
    is($pending->response->body, "a page\n", 'error_page');
    ends($t, $uri, 'KEPT', 'error_page instead of an answer');
}

{
    my ($uri, $x, $pending) = begin('/drop');
    $x->respond(503);
    is($pending->read_rest, '', 'the client has nothing');
    ends($t, $uri, 'RELEASED', 'an intercepted error, and no answer');
}

for my $case (['respond', 'RELEASED'], ['close', 'KEPT']) {
    my ($how, $result) = @$case;
    my ($uri, $x, $pending) = begin('/named');
    $x->$how($how eq 'respond' ? 503 : ());
    my $y = $other->accept_request;
    is(lock_of($t, $n), 'running', 'still locked');
    $y->respond(200, {}, 'fine');
    is($pending->response->body, 'fine', 'a named location answers');
    ends($t, $uri, $result, "a named location after $how");
}

{
    my $uri = '/before?id=' . ++$n;
    my $pending = $t->async(POST => $uri);
    my $x = $up->accept_request;
    is(lock_of($t, $n), 'free', 'not guarded yet');
    $x->close;
    my $y = $other->accept_request;
    is(lock_of($t, $n), 'running', 'guarded where it goes then');
    $y->respond(200);
    $pending->response;
    ends($t, $uri, 'RELEASED', 'what came before the lock does not count');
}

$t->done;

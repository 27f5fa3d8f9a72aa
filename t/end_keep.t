#!/usr/bin/perl

# vibelock_keep: an answer in full that says the operation goes on.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends gate);
use Vibelock::Test;
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $other = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port, OTHER => $other->port);
$t->http(gate() . <<'EOC');
    proxy_http_version 1.1;
    map $upstream_status $inner { ~^(503)$ 0; ~502$ 1; ~504$ 1; default 0; }
    upstream two {
        server 127.0.0.1:%%UPSTREAM%% max_fails=0;
        server 127.0.0.1:%%OTHER%% backup;
    }
EOC
$t->server(<<'EOC');
    vibelock exec zone=z;
    vibelock_keep $upstream_http_x_operation_running;

    location /op       { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /passed   { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         proxy_buffering off; }
    location /many     { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         vibelock_keep $upstream_http_x_one
                                       $upstream_http_x_two; }
    location /inner    { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         vibelock_keep $inner; }
    location /mapped   { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         vibelock_keep $inner;
                         proxy_intercept_errors on; error_page 503 = @other; }
    location /capture  { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         vibelock_keep $inner;
                         proxy_intercept_errors on; error_page 503 = /of/them; }
    location ~ ^/of/(.+) { internal; proxy_pass http://127.0.0.1:%%OTHER%%/$1; }
    location /next     { proxy_pass http://two;
                         proxy_next_upstream http_503 non_idempotent; }
    location /local    { vibelock_keep $arg_keep; alias %%DIR%%/page; }
    location /handed   { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /again/   { internal; vibelock_keep 1;
                         proxy_pass http://127.0.0.1:%%OTHER%%; }
    location /inside/  { internal; alias %%DIR%%/; }
    location /said/    { internal; return 200 "said"; }
    location /page     { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         proxy_intercept_errors on; error_page 503 /inside/page; }
    location /named    { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                         proxy_intercept_errors on; error_page 503 = @other; }
    location @other    { proxy_pass http://127.0.0.1:%%OTHER%%; }
EOC
$t->write_file(page => "a page\n");
$t->start;

my $n = 0;

sub begin {
    my ($where) = @_;

    my $uri = "$where?id=" . ++$n;

    return ($uri, begins($t, $up, $uri, body => 'b'), $n);
}

my %running = ('X-Operation-Running' => 1);

for my $where (qw(/op /passed)) {
    for my $case (
        [{},                               'RELEASED', 'no header'],
        [{ 'X-Operation-Running' => '' },  'RELEASED', 'an empty one'],
        [{ 'X-Operation-Running' => '0' }, 'RELEASED', '0'],
        [{ 'X-Operation-Running' => '1' }, 'KEPT',     '1'],
        [{ 'X-Operation-Running' => '00' }, 'KEPT',    '00'],
        [{ 'X-Operation-Running' => 'no' }, 'KEPT',    'any word'],
    ) {
        my ($headers, $result, $name) = @$case;
        my ($uri, $x, $pending) = begin($where);
        $x->respond(200, $headers, 'body');
        $pending->response;
        ends($t, $uri, $result, "$where: $name");
    }

    my ($uri, $x, $pending) = begin($where);
    $x->respond(200, \%running);
    $pending->response;
    ends($t, $uri, 'KEPT', "$where: no body");
    like($t->error_log, qr/is stuck.*vibelock_keep/, 'the log says why');

    ($uri, $x, $pending) = begin($where);
    $x->respond(200, { %running }, ['in', 'chunks']);
    $pending->response;
    ends($t, $uri, 'KEPT', "$where: chunked");
}

for my $case ([{ 'X-One' => 1 }, 'KEPT'], [{ 'X-Two' => 1 }, 'KEPT'],
              [{ 'X-One' => 0, 'X-Two' => 0 }, 'RELEASED'])
{
    my ($headers, $result) = @$case;
    my ($uri, $x, $pending) = begin('/many');
    $x->respond(200, $headers);
    $pending->response;
    ends($t, $uri, $result, join ' ', 'any of several:', sort keys %$headers);
}

for my $case ([200, 'RELEASED'], [500, 'RELEASED'], [502, 'KEPT'],
              [504, 'KEPT'])
{
    my ($status, $result) = @$case;
    my ($uri, $x, $pending) = begin('/inner');
    $x->respond($status, {}, 'a proxy behind this one speaks');
    $pending->response;
    ends($t, $uri, $result, "an inner proxy's $status");
}

for my $case (['0', 'RELEASED'], ['1', 'KEPT']) {
    my ($value, $result) = @$case;
    my $uri = '/local?id=' . ++$n . "&keep=$value";
    $t->get($uri);
    ends($t, $uri, $result, "local content, $value");
}

# An answer that another takes the place of is remembered.

{
    my ($uri, $x, $pending, $id) = begin('/handed');
    $x->respond(200, { %running, 'X-Accel-Redirect' => '/inside/page' });
    is($pending->response->body, "a page\n", 'a file');
    ends($t, $uri, 'KEPT', 'X-Accel-Redirect to a file');

    for my $headers (\%running, {}) {
        ($uri, $x, $pending, $id) = begin('/handed');
        $x->respond(200, { %$headers, 'X-Accel-Redirect' => '/again/' });
        $other->accept_request->respond(200, {}, 'other');
        is($pending->response->body, 'other', 'another upstream');
        ends($t, $uri, %$headers ? 'KEPT' : 'RELEASED',
             'X-Accel-Redirect to another upstream: '
             . (%$headers ? 'the first says so'
                          : 'the location that locked decides'));
    }

    ($uri, $x, $pending, $id) = begin('/handed');
    $x->respond(200, { 'X-Accel-Redirect' => '/again/' });
    $other->accept_request->respond(200, \%running, 'other');
    $pending->response;
    ends($t, $uri, 'KEPT', 'X-Accel-Redirect: the second says so');

    ($uri, $x, $pending, $id) = begin('/handed');
    $x->respond(200, { %running, 'X-Accel-Redirect' => '/said/' });
    is($pending->response->body, 'said', 'return');
    ends($t, $uri, 'KEPT', 'X-Accel-Redirect to where no guard comes by');

    ($uri, $x, $pending, $id) = begin('/page');
    $x->respond(503, \%running);
    is($pending->response->body, "a page\n", 'error_page');
    ends($t, $uri, 'KEPT', 'an intercepted error');

    ($uri, $x, $pending, $id) = begin('/named');
    $x->respond(503, \%running);
    $other->accept_request->respond(200);
    $pending->response;
    ends($t, $uri, 'KEPT', 'a named location');

    # nginx works a map out once: when the first answer was looked at.

    for my $case ([200, 'RELEASED'], [502, 'KEPT']) {
        my ($status, $result) = @$case;
        ($uri, $x, $pending, $id) = begin('/mapped');
        $x->respond(503);
        $other->accept_request->respond($status);
        $pending->response;
        ends($t, $uri, $result, "a map, the second answers $status");
    }

    for my $case ([200, 'RELEASED'], [502, 'KEPT']) {
        my ($status, $result) = @$case;
        ($uri, $x, $pending, $id) = begin('/inner');
        $x->respond(200, { 'X-Accel-Redirect' => '/again/' });
        $other->accept_request->respond($status);
        $pending->response;
        ends($t, $uri, $result, "a map, X-Accel-Redirect, then $status");
    }

    # Nor is the regular expression of a map the one that $1 is of.

    ($uri, $x, $pending, $id) = begin('/capture');
    $x->respond(503);
    my $y = $other->accept_request;
    is($y->uri, '/them', 'what the location matched');
    $y->respond(200);
    $pending->response;
    ends($t, $uri, 'RELEASED', 'a map, then a location with an expression');

    ($uri, $x, $pending, $id) = begin('/next');
    $x->respond(503);
    $other->accept_request->respond(200, \%running);
    $pending->response;
    ends($t, $uri, 'KEPT', 'the next upstream');

    # What one said that nginx went on from is gone with its header.

    ($uri, $x, $pending, $id) = begin('/next');
    $x->respond(503, \%running);
    $other->accept_request->respond(200);
    $pending->response;
    ends($t, $uri, 'RELEASED', 'the upstream before the next');
}

$t->done;

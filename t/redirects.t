#!/usr/bin/perl

# Internal redirects: a request that has its lock keeps it, and does not meet
# it.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->write_file('page.txt', "a page\n");
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_owner me;
    proxy_set_header X-Token $vibelock_token;
    proxy_set_header X-Operation $vibelock_operation;
    proxy_set_header Connection close;
    root %%DIR%%;
EOC
$t->server(<<'EOC');
    location = /lock {
        vibelock_release zone=ops;
    }
    location /other {
        vibelock other zone=ops;
        vibelock_ttl 1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /plain {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @named {
        vibelock named zone=ops;
        vibelock_ttl 1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @unguarded {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }

    location /try-other {
        vibelock exec zone=ops;
        try_files /none.txt /other?id=$arg_id;
    }
    location /try-named {
        vibelock exec zone=ops;
        try_files /none.txt @named;
    }
    location /try-plain {
        vibelock exec zone=ops;
        try_files /none.txt @unguarded;
    }
    location /try-page {
        vibelock exec zone=ops;
        try_files /none.txt /page.txt =404;
    }
    location /try-status {
        vibelock exec zone=ops;
        try_files /none.txt =404;
    }
    location /index/ {
        vibelock exec zone=ops;
        index none.txt /other;
    }

    location /error {
        vibelock exec zone=ops;
        proxy_intercept_errors on;
        error_page 500 /other?id=$arg_id;
        error_page 501 @named;
        error_page 502 @unguarded;
        error_page 503 /page.txt;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /accel {
        vibelock exec zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /late {
        error_page 404 = @named;
        return 404;
    }
    location = /page.txt { }
EOC
$t->start;

sub state_of {
    my ($id) = @_;

    my $data = $t->get("/lock?id=$id")->json->{data};

    return $data->{locked}
        ? "$data->{operation} " . ($data->{ageMs} + $data->{expiresInMs})
        : 'free';
}

# The lock as it should be while the last upstream works, and after it.

sub holds_and_ends {
    my ($pending, $id, $name, $status) = @_;

    my $x = $up->accept_request;

    is(state_of($id), 'exec 900000', "$name: the lock is as it was taken");
    is($x->header('X-Operation'), 'exec', "$name: with its operation");
    like($x->header('X-Token'), qr/^\d+$/, "$name: with its token");
    is($t->post("/accel?id=$id")->status, 409, "$name: others are busy");

    $x->respond(200, {}, 'done');
    is($pending->response->status, $status // 200, "$name: the request ends");
    is(state_of($id), 'free', "$name: and frees the lock");

    return;
}

subtest 'try_files' => sub {
    for my $to (qw(other named plain)) {
        my $pending = $t->async(GET => "/try-$to?id=$to");
        holds_and_ends($pending, $to, "to $to");
    }

    is($t->get('/try-page?id=page')->body, "a page\n", 'to a file');
    is(state_of('page'), 'free', 'to a file: free after it');
    is($t->get('/try-status?id=status')->status, 404, 'to a status');
    is(state_of('status'), 'free', 'to a status: free after it');
};

subtest 'index' => sub {
    mkdir $t->path('index');
    my $pending = $t->async(GET => '/index/?id=index');
    holds_and_ends($pending, 'index', 'to a guarded location');
};

subtest 'error_page' => sub {
    for ([500, 'a guarded location'], [501, 'a named location'],
         [502, 'a location without a guard'])
    {
        my ($status, $name) = @$_;
        my $pending = $t->async(GET => "/error?id=$status");
        $up->accept_request->respond($status);
        holds_and_ends($pending, $status, "to $name", $status);
    }

    my $pending = $t->async(GET => '/error?id=503');
    my $x = $up->accept_request;
    is(state_of(503), 'exec 900000', 'locked');
    $x->respond(503);
    is($pending->response->body, "a page\n", 'a page');
    is(state_of(503), 'free', 'a page: free after it');
};

subtest 'X-Accel-Redirect' => sub {
    for my $to ('/other?id=accel', '/plain', '@named', '@unguarded') {
        my $pending = $t->async(GET => '/accel?id=accel');
        $up->accept_request->respond(200, { 'X-Accel-Redirect' => $to });
        holds_and_ends($pending, 'accel', "to $to");
    }

    my $pending = $t->async(GET => '/accel?id=accel');
    $up->accept_request->respond(200, { 'X-Accel-Redirect' => '/page.txt' });
    is($pending->response->body, "a page\n", 'to a file');
    is(state_of('accel'), 'free', 'to a file: free after it');
};

subtest 'several in a row' => sub {
    my $pending = $t->async(GET => '/error?id=row');
    $up->accept_request->respond(500);
    $up->accept_request->respond(200, { 'X-Accel-Redirect' => '@named' });
    $up->accept_request->respond(200, { 'X-Accel-Redirect' => '/plain' });
    my $x = $up->accept_request;
    is(state_of('row'), 'exec 900000', 'the lock of the first location');
    $x->respond(200, {}, 'done');
    is($pending->response->body, 'done', 'the answer of the last');
    is(state_of('row'), 'free', 'and the lock is free');
    ok($t->access_like(qr{^GET /error\?id=row 500 result=RELEASED}m),
       'released once');
};

subtest 'a redirect that comes before any lock' => sub {
    my $pending = $t->async(GET => '/late?id=late');
    my $x = $up->accept_request;
    is(state_of('late'), 'named 3600000', 'is guarded where it ends');
    is($t->get('/late?id=late')->status, 409, 'and busy there');
    $x->respond(200);
    is($pending->response->status, 200, 'the request ends');
    is(state_of('late'), 'free', 'and frees the lock');
};

subtest 'a redirect of who was refused' => sub {
    my $pending = $t->async(GET => '/accel?id=busy');
    my $x = $up->accept_request;

    is($t->get("$_?id=busy")->status, 409, "$_: 409 is no error_page's")
        for '/error', '/try-other', '/try-named', '/index/';
    ok(!$up->pending, 'nothing of it went upstream');

    $x->respond(200);
    $pending->response;
};

$t->done;

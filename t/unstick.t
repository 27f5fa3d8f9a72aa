#!/usr/bin/perl

# vibelock_unstick: the upstream resets the exec channel, then the lock goes.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use Vibelock::Registry qw(registry account server);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Upstream::Auto;

my $auto = Vibelock::Upstream::Auto->start(handler => sub { return 200 });
my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new;

$t->set(AUTO => $auto->port, UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json;
    vibelock_retry_after 2s;
    client_max_body_size 8m;
EOC
$t->server(<<'EOC');
    location ~ ^/(?<server_id>[^/]+)/exec$ {
        vibelock exec zone=ops;
        vibelock_keep 1;
        proxy_pass http://127.0.0.1:%%AUTO%%;
    }
    location ~ ^/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
    location ~ ^/(?<server_id>[^/]+)/alone$ {
        vibelock_unstick zone=ops;
    }
    location ~ ^/(?<server_id>[^/]+)/unstick$ {
        vibelock_unstick zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_read_timeout 1s;
    }
    location ~ ^/(?<server_id>[^/]+)/page$ {
        vibelock_unstick zone=ops;
        error_page 500 502 =200 /fine;
        proxy_intercept_errors on;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/range$ {
        vibelock_unstick zone=ops;
        proxy_force_ranges on;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/local$ {
        vibelock_unstick zone=ops;
        empty_gif;
    }
    location ~ ^/(?<server_id>[^/]+)/said$ {
        vibelock_unstick zone=ops;
        error_page 405 =200 /say;
        empty_gif;
    }
    location /fine {
        empty_gif;
    }
    location /say {
        return 200 fine;
    }
EOC
$t->write_file('registry.json', registry(
    keys    => [map { account($_, "$_ key") } qw(me you)],
    servers => [
        server('vm', 'me'),
        server('gone', 'me', deleted => JSON::PP::true),
        server('host', 'me', kind => 'GALAXY_HOST'),
        server('app', 'me', kind => 'GALAXY_APP'),
        server('yours', 'you'),
    ],
));
$t->start;

my %me = (headers => { 'X-Api-Key' => 'me key' });

sub locked {
    my ($server) = @_;

    return $t->get("/$server/lock", %me)->json->{data}{locked} ? 1 : 0;
}

# A lock, unless there is one.

sub take {
    my ($server) = @_;

    like($t->post("/$server/exec", %me)->status, qr/^(?:200|409)$/,
         "$server is locked") or return;

    return locked($server);
}

subtest 'without an upstream' => sub {
    take('vm');

    my $r = $t->post('/vm/alone', %me);
    is($r->status, 200, 'status');
    is($r->body, '{"success":true,"data":{"unstuck":true,"released":true}}',
       'body');
    is($r->header('Content-Type'), 'application/json', 'Content-Type');
    ok(!locked('vm'), 'the lock is released at once');

    $r = $t->post('/vm/alone', %me);
    is($r->body, '{"success":true,"data":{"unstuck":true,"released":false}}',
       'no lock, no harm');

    is($t->post('/vm/alone', %me, body => 'x' x 100_000)->status, 200,
       'a body is discarded');
    is($t->post('/vm/alone', %me, version => '1.0')->status, 200, 'HTTP/1.0');

    ok($t->access_like(qr{^POST /vm/alone 200 result=BROKEN age=\d+ }m),
       'BROKEN');
    ok($t->access_like(qr{^POST /vm/alone 200 result=ABSENT age=- }m),
       'ABSENT');
    ok($t->log_like(qr/\[warn\].*vibelock: lock is broken: by unstick, zone/),
       'and in the log');
};

subtest 'who may' => sub {
    take('vm');

    for (['nobody', undef, 'vm', 'MISSING_API_KEY', 401],
         ['a stranger', 'x', 'vm', 'INVALID_API_KEY', 401],
         ['another account', 'you key', 'vm', 'NOT_FOUND', 404],
         ["of somebody else's", 'me key', 'yours', 'NOT_FOUND', 404],
         ['of no server', 'me key', 'none', 'NOT_FOUND', 404],
         ['an id too long', 'me key', 'x' x 256, 'VALIDATION_ERROR', 400])
    {
        my ($name, $key, $server, $code, $status) = @$_;

        for my $end ('alone', 'unstick') {
            my $r = $t->post("/$server/$end",
                headers => [defined $key ? ['X-Api-Key', $key] : ()]);
            is($r->status, $status, "$name, $end: $status");
            like($r->body, qr/"code":"$code"/, "$name, $end: $code");
        }
    }

    for my $method (qw(GET HEAD PUT DELETE PATCH PROPFIND)) {
        for my $end ('alone', 'unstick') {
            my $r = $t->request($method => "/vm/$end", %me);
            is($r->status, 405, "$method, $end: 405");
            is($r->header('Allow'), 'POST', "$method, $end: Allow");
        }
    }

    is($t->request(OPTIONS => '/vm/alone')->status, 405, 'OPTIONS, alone: 405');
    is($t->get('/vm/unstick')->status, 405, '405 before 401');
    ok(!$up->pending, 'nothing of it went upstream');
    ok(locked('vm'), 'nor released anything');
    is($t->post('/gone/alone', %me)->status, 200,
       'a deleted server is still its owner\'s');
};

subtest 'the galaxy kinds' => sub {
    for my $server ('host', 'app') {
        take($server);

        for my $end ('alone', 'unstick') {
            my $r = $t->post("/$server/$end", %me);
            is($r->status, 409, "$server, $end: 409");
            is($r->json->{error}{code}, 'GALAXY_UNSTICK_UNSUPPORTED',
               "$server, $end: code");
            like($r->header('Retry-After'), qr/^[12]$/,
                 "$server, $end: Retry-After");
            is($r->json->{error}{retryAfter}, $r->header('Retry-After'),
               "$server, $end: mirrored");
        }

        ok(!$up->pending, "$server: nothing went upstream");
        ok(locked($server), "$server: nothing was released");
    }
};

subtest 'the upstream works' => sub {
    for my $status (200, 202, 204) {
        take('vm');
        my $pending = $t->async(POST => '/vm/unstick', %me, body => 'body');
        my $x = $up->accept_request;

        is($x->body, 'body', "$status: the upstream gets the request");
        ok(locked('vm'), "$status: not released before it answers");
        is($t->post('/vm/exec', %me)->status, 409,
           "$status: no operation starts meanwhile");

        $x->respond($status, { 'X-Up' => 'yes' }, '');
        my $r = $pending->response;
        is($r->status, $status, "$status: its answer is the answer");
        is($r->header('X-Up'), 'yes', "$status: header and all");
        ok(!locked('vm'), "$status: released");
    }

    take('vm');
    my $pending = $t->async(POST => '/vm/unstick', %me);
    my $x = $up->accept_request;
    $x->send_head(200, { 'Content-Length' => 100 });
    ok(wait_for { !locked('vm') }, 'released with the header');
    $x->close;
    is($pending->response->status, 200, 'whatever becomes of the body');

    $pending = $t->async(POST => '/vm/unstick', %me);
    $up->accept_request->respond(200, {}, 'none');
    is($pending->response->body, 'none', 'without a lock it goes there too');

    take('vm');
    $pending = $t->async(POST => '/vm/range', headers => {
        %{ $me{headers} }, Range => 'bytes=99-',
    });
    $up->accept_request->respond(200, {}, 'reset');
    is($pending->response->status, 416, 'nginx answers for it');
    ok(!locked('vm'), 'released all the same');
    ok($t->access_like(qr{^POST /vm/range 416 result=BROKEN age=\d+ }m),
       'and once');

    $pending = $t->async(OPTIONS => '/vm/unstick');
    $up->accept_request->respond(204, {});
    is($pending->response->status, 204, 'OPTIONS is the upstream\'s');
};

subtest 'the upstream does not work' => sub {
    take('vm');

    for my $status (300, 302, 304, 400, 404, 409, 500, 503) {
        my $pending = $t->async(POST => '/vm/unstick', %me);
        $up->accept_request->respond($status);
        is($pending->response->status, $status, "$status passes");
        ok(locked('vm'), "$status releases nothing");
    }

    my $pending = $t->async(POST => '/vm/unstick', %me);
    $up->accept_request->reset;
    is($pending->response->status, 502, 'reset: 502');
    ok(locked('vm'), 'reset: nothing released');

    $pending = $t->async(POST => '/vm/unstick', %me);
    my $x = $up->accept_request;
    is($pending->response->status, 504, 'silent: 504');
    ok(locked('vm'), 'silent: nothing released');
    $x->close;

    $pending = $t->async(POST => '/vm/unstick', %me);
    $x = $up->accept_request;
    $pending->abort;
    ok($x->wait_closed, 'the client leaves');
    ok(locked('vm'), 'nothing released');
    $x->close;

    $pending = $t->async(POST => '/vm/page', %me);
    $up->accept_request->respond(500);
    is($pending->response->status, 200, 'error_page makes 200 of a 500');
    ok(locked('vm'), 'which releases nothing');

    $up->stop_listening;
    is($t->post('/vm/unstick', %me)->status, 502, 'refused: 502');
    ok(locked('vm'), 'refused: nothing released');
    is($t->post('/vm/page', %me)->status, 200, 'error_page makes 200 of it');
    ok(locked('vm'), 'which releases nothing');
    $up->listen;
};

subtest 'a lock that is taken meanwhile' => sub {
    $t->delete('/vm/lock', %me);

    my $pending = $t->async(POST => '/vm/unstick', %me);
    my $x = $up->accept_request;
    take('vm');
    $x->respond(200);
    is($pending->response->status, 200, 'the upstream answers');
    ok(locked('vm'), 'a younger operation keeps its lock');

    $pending = $t->async(POST => '/vm/unstick', %me);
    $x = $up->accept_request;
    is($t->delete('/vm/lock', %me)->status, 200, 'the old lock is broken');
    take('vm');
    $x->respond(200);
    is($pending->response->status, 200, 'the upstream answers');
    ok(locked('vm'), 'its successor stays');
};

subtest 'content that is no upstream' => sub {
    take('vm');
    is($t->post('/vm/local', %me)->status, 405, 'refuses POST');
    ok(locked('vm'), 'and releases nothing');
    is($t->post('/vm/said', %me)->status, 200, 'error_page makes 200 of it');
    ok(locked('vm'), 'which releases nothing');
};

$t->done;

#!/usr/bin/perl

# vibelock_dry_run: nothing is refused, and what would have been is told.

use strict;
use warnings;

use Test::More;

use Vibelock::Registry qw(registry account server);
use Vibelock::Test;
use Vibelock::Upstream;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $step = Vibelock::Upstream->new;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port, STEP => $step->port);
$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_zone $server_id zone=elsewhere:1m;
    vibelock_registry %%DIR%%/registry.json;
    vibelock_dry_run on;
    proxy_set_header X-Token $vibelock_token;
    client_max_body_size 8m;
EOC
$t->server(<<'EOC');
    location ~ ^/(?<server_id>[^/]+)/exec$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/real$ {
        vibelock real zone=ops;
        vibelock_dry_run off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
    location ~ ^/(?<server_id>[^/]+)/unstick$ {
        vibelock_unstick zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/alone$ {
        vibelock_unstick zone=ops;
    }

    location ~ ^/(?<server_id>[^/]+)/step$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout;
        proxy_intercept_errors on;
        error_page 503 = @enforced;
        proxy_pass http://127.0.0.1:%%STEP%%;
    }
    location ~ ^/(?<server_id>[^/]+)/try$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout;
        root %%DIR%%;
        try_files /none @enforced;
    }
    location ~ ^/(?<server_id>[^/]+)/index/$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout;
        alias %%DIR%%/;
        index none /$server_id/enforced;
    }
    location ~ ^/(?<server_id>[^/]+)/after$ {
        vibelock exec zone=ops;
        post_action @enforced;
        proxy_pass http://127.0.0.1:%%STEP%%;
    }
    location ~ ^/(?<server_id>[^/]+)/enforced$ {
        vibelock enforced zone=ops;
        vibelock_ttl json=timeout;
        vibelock_dry_run off;
        proxy_pass http://127.0.0.1:%%STEP%%;
    }
    location @enforced {
        vibelock enforced zone=ops;
        vibelock_ttl json=timeout;
        vibelock_dry_run off;
        proxy_pass http://127.0.0.1:%%STEP%%;
    }
    location ~ ^/(?<server_id>[^/]+)/elsewhere$ {
        vibelock elsewhere zone=elsewhere;
        vibelock_dry_run off;
        proxy_pass http://127.0.0.1:%%STEP%%;
    }
    location @dry {
        vibelock dry zone=ops;
        proxy_pass http://127.0.0.1:%%STEP%%;
    }
    location @off {
        vibelock off;
        proxy_pass http://127.0.0.1:%%STEP%%;
    }
EOC
$t->write_file('registry.json', registry(
    keys    => [account('me', 'my key')],
    servers => [server('mine', 'me'),
                server('host', 'me', kind => 'GALAXY_HOST')],
));
$t->start;

my %me = ('X-Api-Key' => 'my key');

# What is asked goes through, and the log says what it would have been.

my $n = 0;

sub passes {
    my ($uri, $result, $name, %how) = @_;

    my $query = 'n=' . ++$n;
    my $r = $t->request($how{method} // 'POST', "$uri?$query",
                        headers => \%me, %how);

    is($r->status, 200, "$name: passes");
    ok($t->access_like(qr{^\w+ \Q$uri?$query\E 200 result=$result }m),
       "$name: $result");

    return $r;
}

subtest 'a lock is taken and released' => sub {
    my $r = passes('/mine/exec', 'RELEASED', 'a free server', body => '{}');
    like($r->json->{headers}{'x-token'}, qr/^\d+$/, 'with its token');
};

subtest 'busy' => sub {
    my $before = () = $up->requests;
    my $holder = $t->async(POST => '/mine/exec',
        headers => { %me, 'X-Upstream' => 'park/one' });
    $up->wait_requests($before + 1);

    my $r = passes('/mine/exec', 'BUSY_DRY_RUN', 'a second operation');
    ok(!exists $r->json->{headers}{'x-token'}, 'it has no token');
    passes('/mine/exec', 'BUSY_DRY_RUN', 'a third one', body => 'bad');

    my $lock = $t->get('/mine/lock', headers => \%me)->json->{data};
    is($lock->{operation}, 'exec', 'the first holds the lock still');

    is($t->post('/mine/real', headers => \%me)->status, 409,
       'where it is off, 409 is 409');

    $up->release('one');
    is($holder->response->status, 200, 'the first ends');
    ok($t->access_like(qr/^POST .mine.exec 200 result=RELEASED/m),
       'and releases its lock');
};

subtest 'denied' => sub {
    passes('/mine/exec', 'DENIED_DRY_RUN', 'no key', headers => {});
    passes('/mine/exec', 'DENIED_DRY_RUN', 'an unknown key',
           headers => { 'X-Api-Key' => 'x' });
    passes('/none/exec', 'DENIED_DRY_RUN', 'an unknown server');
};

subtest 'invalid' => sub {
    passes('/' . 'x' x 256 . '/exec', 'INVALID_DRY_RUN', 'a long id');

    for my $body ('no JSON', '{"timeout":"x"}', '{"timeout":1,"timeout":2}') {
        my $r = passes('/mine/exec', 'INVALID_DRY_RUN', $body, body => $body);
        is($r->json->{body}, $body, 'and comes whole');
    }

    my $large = 'x' x 2_000_000;
    my $r = passes('/mine/exec', 'INVALID_DRY_RUN', 'a large body',
                   body => $large);
    ok($r->json->{body} eq $large, 'and comes whole');
    $r = passes('/mine/exec', 'INVALID_DRY_RUN', 'a large chunked body',
                chunks => [$large]);
    ok($r->json->{body} eq $large, 'and comes whole');
};

subtest 'unstick beside an upstream' => sub {
    passes('/mine/unstick', 'DENIED_DRY_RUN', 'no key', headers => {});
    passes('/none/unstick', 'DENIED_DRY_RUN', 'an unknown server');
    passes('/' . 'x' x 256 . '/unstick', 'INVALID_DRY_RUN', 'a long id');
    passes('/host/unstick', '-', 'a galaxy host');
    passes('/mine/unstick', '-', 'another method', method => 'GET');

    my $before = () = $up->requests;
    my $holder = $t->async(POST => '/mine/exec',
        headers => { %me, 'X-Upstream' => 'park/two' });
    $up->wait_requests($before + 1);
    passes('/mine/unstick', 'DENIED_DRY_RUN', 'a stranger',
           headers => { 'X-Api-Key' => 'x' });
    ok($t->get('/mine/lock', headers => \%me)->json->{data}{locked},
       'who would be refused breaks no lock');
    passes('/mine/unstick', 'BROKEN', 'who may');
    $up->release('two');
    $holder->response;
};

# On its way through nginx a request that passed here may come to where nothing
# passes.

my @ways = (
    ['/mine/step', 'X-Accel-Redirect',
     sub { shift->respond(200, { 'X-Accel-Redirect' => '/mine/enforced' }) }],
    ['/mine/step', 'X-Accel-Redirect to a name',
     sub { shift->respond(200, { 'X-Accel-Redirect' => '@enforced' }) }],
    ['/mine/step', 'error_page', sub { shift->respond(503) }],
    ['/mine/try', 'try_files'],
    ['/mine/index/', 'index'],
);

sub lock_now {
    my $lock = $t->get('/mine/lock', headers => \%me)->json->{data};

    return $lock->{locked} ? "$lock->{operation} $lock->{state}" : 'free';
}

sub redirected {
    my ($uri, $redirect, %how) = @_;

    my $pending = $t->async(($how{method} // 'GET'), $uri,
                            headers => \%me, %how);

    $redirect->($step->accept_request) if $redirect;

    return $pending;
}

subtest 'redirected to where it is off: what passed is refused' => sub {
    my $holder = $t->async(GET => '/mine/step', headers => \%me);
    my $held = $step->accept_request;

    for my $way (@ways) {
        my ($uri, $name, $redirect) = @$way;

        my $with = "$uri?busy=" . ++$n;
        is(redirected($with, $redirect)->response->json->{error}{code},
           'EXEC_BUSY', "$name: busy");
        my $line = $t->logged($with);
        is($line->{result}, 'BUSY', "$name: and says so");
        is($line->{operation}, 'enforced', "$name: of the operation there");
    }

    is(lock_now(), 'exec running', 'the first holds the lock still');
    $held->respond(200);
    $holder->response;

    for my $way (@ways) {
        my ($uri, $name, $redirect) = @$way;

        my $with = "$uri?denied=" . ++$n;
        is(redirected($with, $redirect, headers => {})->response->status, 401,
           "$name: denied");
        is($t->logged($with)->{result}, 'DENIED', "$name: and says so");

        $with = "$uri?invalid=" . ++$n;
        is(redirected($with, $redirect, body => '[]')->response->status, 400,
           "$name: invalid");
        is($t->logged($with)->{result}, 'INVALID', "$name: and says so");
    }

    ok(!$step->pending, 'nothing of it went upstream');
    is(lock_now(), 'free', 'nor is anything locked');
};

subtest 'redirected to where it is off: what passed takes a lock' => sub {
    for my $to ('/mine/enforced', '@enforced') {
        my $uri = '/mine/step?free=' . ++$n;
        my $holder = $t->async(GET => '/mine/step', headers => \%me);
        my $held = $step->accept_request;
        my $pending = $t->async(GET => $uri, headers => \%me);
        my $x = $step->accept_request;

        $held->respond(200);
        $holder->response;
        $x->respond(200, { 'X-Accel-Redirect' => $to });
        $x = $step->accept_request;
        is(lock_now(), 'enforced running', "$to: its own");
        is($t->post('/mine/enforced', headers => \%me)->status, 409,
           "$to: others are busy");
        $x->respond(200);
        is($pending->response->status, 200, "$to: answered");
        is($t->logged($uri)->{result}, 'RELEASED', "$to: released");
        is(lock_now(), 'free', "$to: and free");
    }

    my $holder = $t->async(GET => '/mine/step', headers => \%me);
    my $held = $step->accept_request;
    my $uri = '/mine/step?elsewhere=' . ++$n;
    my $pending = redirected($uri, sub {
        shift->respond(200, { 'X-Accel-Redirect' => '/mine/elsewhere' });
    });
    my $x = $step->accept_request;
    is($t->get('/mine/elsewhere', headers => \%me)->status, 409,
       'in another zone');
    $x->respond(200);
    $pending->response;
    is($t->logged($uri)->{result}, 'RELEASED', 'which is released');
    is(lock_now(), 'exec running', "and not the holder's");
    $held->respond(200);
    $holder->response;
};

subtest 'redirected to where it is on: what passed passes' => sub {
    my $holder = $t->async(GET => '/mine/step', headers => \%me);
    my $held = $step->accept_request;

    for my $to ('@dry', '@off') {
        my $uri = '/mine/step?passed=' . ++$n;
        my $pending = redirected($uri, sub {
            shift->respond(200, { 'X-Accel-Redirect' => $to });
        });
        $step->accept_request->respond(200);
        is($pending->response->status, 200, "$to: passes");
        is($t->logged($uri)->{result}, 'BUSY_DRY_RUN', "$to: as it was told");
    }

    is(lock_now(), 'exec running', 'the first holds the lock still');
    $held->respond(200);
    $holder->response;
};

# Its answer is over by then, and nobody could be told.

subtest 'post_action leads to where it is off: what passed passes' => sub {
    my $holder = $t->async(GET => '/mine/step', headers => \%me);
    my $held = $step->accept_request;
    my $uri = '/mine/after?passed=' . ++$n;
    my $pending = $t->async(GET => $uri, headers => \%me);

    $step->accept_request->respond(200);
    is($pending->response->status, 200, 'answered');
    $step->accept_request->respond(200);
    is($t->logged($uri)->{result}, 'BUSY_DRY_RUN', 'as it was told');

    is(lock_now(), 'exec running', 'the first holds the lock still');
    $held->respond(200);
    $holder->response;
};

subtest 'redirected with a lock: that one is held to the end' => sub {
    for my $case (['/mine/step', '@enforced', 'exec'],
                  ['/mine/step', '/mine/enforced', 'exec'],
                  ['/mine/step', '/mine/elsewhere', 'exec'],
                  ['/mine/enforced', '@dry', 'enforced'])
    {
        my ($from, $to, $operation) = @$case;
        my $uri = "$from?held=" . ++$n;
        my $pending = redirected($uri, sub {
            shift->respond(200, { 'X-Accel-Redirect' => $to });
        });
        my $x = $step->accept_request;
        is(lock_now(), "$operation running", "$from to $to: held");
        $x->respond(200);
        is($pending->response->status, 200, 'answered');
        is($t->logged($uri)->{result}, 'RELEASED', 'released once');
        is(lock_now(), 'free', 'and free');
    }
};

subtest 'what has nothing to go on to answers' => sub {
    is($t->delete('/mine/lock')->status, 401, 'the endpoint');
    is($t->post('/mine/alone')->status, 401, 'unstick without an upstream');
    is($t->post('/host/alone', headers => \%me)->status, 409,
       'for a galaxy host');
};

$t->done;

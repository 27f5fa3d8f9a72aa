#!/usr/bin/perl

# vibelock_overrun: what happens to a lock past its TTL.

use strict;
use warnings;

use Test::More;

use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m sweep=50ms;
    vibelock_owner me;
    vibelock_ttl 200ms;
EOC
$t->server(<<'EOC');
    location /exec {
        vibelock exec zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /deploy {
        vibelock deploy zone=ops;
        vibelock_overrun on;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /kept {
        vibelock kept zone=ops;
        vibelock_ttl 2s;
        vibelock_overrun on;
        vibelock_keep $upstream_http_x_operation_running;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location = /lock {
        vibelock_release zone=ops;
    }
EOC
$t->start;

my $requests = 0;

sub running {
    my ($uri, $how) = @_;

    $requests = () = $up->requests;
    my $pending = $t->async(POST => $uri, headers => { 'X-Upstream' => $how });
    $up->wait_requests(++$requests) or die "$uri did not come";

    return $pending;
}

sub lock_of { return $t->get("/lock?id=$_[0]")->json->{data} }

subtest 'off: the lock is gone at its TTL' => sub {
    my $first = running('/exec?id=1', 'park/one');

    ok(wait_for { !lock_of(1)->{locked} }, 'the lock goes');
    ok(!$first->answered, 'while the operation runs');

    my $next = running('/kept?id=1', 'park/next');
    $up->release('one');
    is($first->response->status, 200, 'the first ends');
    is(lock_of(1)->{operation}, 'kept', "its successor's lock stays");
    ok($t->access_like(qr/^POST .exec.id=1 200 result=LOST age=\d+/m),
       'the first lost its lock');

    $up->release('next');
    is($next->response->status, 200, 'the successor ends');
    ok($t->access_like(qr/^POST .kept.id=1 200 result=RELEASED/m),
       'with its lock');
};

subtest 'on: the lock stays while its request is open' => sub {
    my $deploy = running('/deploy?id=2', 'park/two');

    ok(wait_for { lock_of(2)->{expiresInMs} == 0 }, 'the TTL is over');
    ok(wait_for { lock_of(2)->{ageMs} > 500 }, 'for some sweeps');

    my $lock = lock_of(2);
    ok($lock->{locked}, 'and the lock is there');
    is($lock->{state}, 'running', 'it runs');
    is($lock->{expiresInMs}, 0, 'expiresInMs is 0');

    my $r = $t->post('/exec?id=2');
    is($r->status, 409, 'others are busy');
    is($r->json->{error}{expiresInMs}, 0, 'with 0 in the 409');

    $up->release('two');
    is($deploy->response->status, 200, 'the deploy ends');
    ok(!lock_of(2)->{locked}, 'and the lock is free');
    ok($t->access_like(qr/^POST .deploy.id=2 200 result=RELEASED/m),
       'RELEASED, not LOST');
};

subtest 'on: DELETE breaks it past its TTL' => sub {
    my $deploy = running('/deploy?id=3', 'park/three');

    ok(wait_for { lock_of(3)->{expiresInMs} == 0 }, 'the TTL is over');

    my $data = $t->delete('/lock?id=3')->json->{data};
    ok($data->{released}, 'released');
    is($data->{expiresInMs}, 0, 'expiresInMs is 0');
    is($data->{operation}, 'deploy', 'the operation is named');

    $up->release('three');
    $deploy->response;
    ok($t->access_like(qr/^POST .deploy.id=3 200 result=LOST/m),
       'its holder finds it lost');
};

subtest 'on: stuck before its TTL, it lasts to it' => sub {
    my $r = $t->post('/kept?id=4', headers => { 'X-Upstream' => 'running' });
    is($r->status, 200, 'the operation says that it still runs');

    my $lock = lock_of(4);
    is($lock->{state}, 'stuck', 'the lock is stuck');
    cmp_ok($lock->{ageMs} + $lock->{expiresInMs}, '==', 2000,
           'and ends where it would have');
};

subtest 'on: stuck after its TTL, it lasts one more' => sub {
    my $pending = running('/kept?id=5', 'silent');

    ok(wait_for { lock_of(5)->{expiresInMs} == 0 }, 'the TTL is over');
    ok(lock_of(5)->{locked}, 'the lock is not');

    my $age = lock_of(5)->{ageMs};
    $pending->abort;
    ok(wait_for { lock_of(5)->{state} eq 'stuck' }, 'the client leaves');

    my $lock = lock_of(5);
    cmp_ok($lock->{expiresInMs}, '>', 0, 'it has a time again');
    cmp_ok($lock->{expiresInMs}, '<=', 2000, 'of one TTL at most');
    cmp_ok($lock->{ageMs} + $lock->{expiresInMs}, '>=', $age + 2000,
           'from when it became stuck');
    ok(wait_for { !lock_of(5)->{locked} }, 'and is gone at its end');
};

$t->done;

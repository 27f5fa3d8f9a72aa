#!/usr/bin/perl

# Reloads: locks stay, also while old workers finish what they hold.

use strict;
use warnings;

use Test::More;

use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port);

# The operations and the TTL may be others after a reload.

sub configure {
    my ($operation, $ttl) = @_;

    $t->http(<<"EOC");
        vibelock_zone \$arg_id zone=ops:1m;
        vibelock_owner me;
        vibelock_keep \$upstream_http_x_operation_running;
EOC
    $t->server(<<"EOC");
        location /exec {
            vibelock $operation zone=ops;
            vibelock_ttl $ttl;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
        location = /lock {
            vibelock_release zone=ops;
        }
EOC

    return;
}

configure('exec', '1h');
$t->start;

my $came = 0;

sub running {
    my ($id) = @_;

    my $pending = $t->async(POST => "/exec?id=$id",
                            headers => { 'X-Upstream' => "park/$id" });
    $up->wait_requests(++$came) or die "$id did not come";

    return $pending;
}

sub stuck {
    my ($id) = @_;

    $came++;

    return is($t->post("/exec?id=$id", headers => {
        'X-Upstream' => 'running' })->status, 200, "a stuck lock on $id");
}

sub state_of {
    my ($id) = @_;

    my $data = $t->get("/lock?id=$id")->json->{data};

    return $data->{locked} ? "$data->{operation} $data->{state}" : 'free';
}

sub try {
    my ($id) = @_;

    my $status = $t->post("/exec?id=$id",
                          headers => { 'X-Upstream' => 'ok' })->status;
    $came++ if $status == 200;

    return $status;
}

my $running = running('runs');
my $broken = running('breaks');
stuck('kept');

subtest 'a reload' => sub {
    configure('build', '2h');
    $t->reload;

    ok(scalar(() = $t->leaving), 'an old worker finishes');
    is(state_of('runs'), 'exec running', 'a running lock runs');
    is(state_of('kept'), 'exec stuck', 'a stuck lock is stuck');
    is(try($_), 409, "$_ is busy") for qw(runs kept breaks);
    is(try('new'), 200, 'another is free');

    my $new = running('later');
    is(state_of('later'), 'build running', 'a new lock is of the new kind');

    is($t->delete('/lock?id=breaks')->json->{data}{operation}, 'exec',
       'DELETE breaks the lock of an old worker');
    my $next = running('breaks2');
    $up->release($_) for qw(breaks later breaks2);
    is($_->response->status, 200, 'operations of both end')
        for $broken, $new, $next;
    ok($t->access_like(qr/^POST .exec.id=breaks 200 result=LOST/m),
       'the old worker finds its lock lost');
};

subtest 'two reloads in quick succession' => sub {
    configure('exec', '1h');

    my %before = map { $_ => 1 } $t->workers;
    my $mark = () = $t->error_log =~ /\[notice\].* reconfiguring$/mg;

    $t->{conf}->write($t->path('nginx.conf'));
    $t->signal('HUP');
    ok(wait_for {
        (() = $t->error_log =~ /\[notice\].* reconfiguring$/mg) > $mark;
    }, 'the first one begins');
    $t->signal('HUP');
    ok(wait_for {
        (() = $t->error_log =~ /\[notice\].* reconfiguring$/mg) > $mark + 1
            && !(grep { $before{$_} } $t->workers)
            && $t->workers == 2;
    }, 'the second one while the first one\'s workers come up');

    is(state_of('runs'), 'exec running', 'a running lock of three ago runs');
    is(state_of('kept'), 'exec stuck', 'a stuck one is stuck');
    is(try('runs'), 409, 'and busy');
    is(try('two'), 200, 'others are free');
};

subtest 'a reload that is refused' => sub {
    configure('a.b', '1h');
    like($t->reload_fails, qr/invalid operation "a\.b"/, 'is refused');

    configure('other', '0');
    like($t->reload_fails, qr/wrong time in "0"/, 'and again');

    is(state_of('runs'), 'exec running', 'a running lock runs');
    is(state_of('kept'), 'exec stuck', 'a stuck one is stuck');
    is(try('kept'), 409, 'and busy');
    is(try('three'), 200, 'others are free');

    configure('other', '1h');
    $t->reload;
    is(state_of('runs'), 'exec running', 'and through a good one after it');
};

subtest 'the end of it' => sub {
    $up->release('runs');
    is($running->response->status, 200, 'the operation of the first worker ends');
    is(state_of('runs'), 'free', 'and frees its lock');
    ok($t->access_like(qr/^POST .exec.id=runs 200 result=RELEASED/m),
       'RELEASED');
    ok(wait_for { !$t->leaving }, 'no old worker is left');
    ok($t->delete('/lock?id=kept')->json->{data}{released},
       'the stuck lock was there to the end');
};

subtest 'a worker that is shut down with its request open' => sub {
    my $pending = running('cut');

    configure('exec', '1h');
    $t->main('worker_shutdown_timeout 100ms;');
    $t->reload;
    my $next = running('cut2');
    $t->reload;

    # The first worker has no timeout, the one that has is cut.
    ok(wait_for { state_of('cut2') eq 'exec stuck' },
       'past worker_shutdown_timeout its lock is stuck');
    is($next->response->status, 0, 'its client is cut off');
    is(try('cut2'), 409, 'and its server busy');
    is(state_of('cut'), 'other running', 'who has more time runs on');

    $up->release('cut');
    is($pending->response->status, 200, 'and ends');
};

$t->done;

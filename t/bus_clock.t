#!/usr/bin/perl

# A release and a lock are compared in one clock, whatever the clocks of the
# replicas say.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(now);

my ($faketime) = glob '/usr/lib/*/faketime/libfaketime.so.1';

plan(skip_all => 'faketime is not installed') unless $faketime;
plan(skip_all => 'faketime does not go with sanitizers or valgrind')
    if $ENV{VIBELOCK_PRELOAD} || $ENV{VIBELOCK_VALGRIND};

my $redis = Vibelock::Redis->start;

# The wall clocks of the first two are an hour off.

my @off = (3600, -3600, 0);

sub clock {
    my ($off) = @_;

    return {} if !$off;

    return { env => { LD_PRELOAD                   => $faketime,
                      FAKETIME                     => sprintf('%+d', $off),
                      FAKETIME_DONT_FAKE_MONOTONIC => 1 } };
}

my $fleet = Vibelock::Fleet->new(
    redis => 'redis://127.0.0.1:' . $redis->port,
    each  => [map { clock($_) } @off],
);

# It is read again, and nginx takes away what it is not told to leave.

$_->main('env FAKETIME; env FAKETIME_DONT_FAKE_MONOTONIC;')
    for $fleet->gateways;

$fleet->start;
ok($fleet->working, 'all work');

my @all = 0 .. 2;

sub ahead {
    my ($n) = @_;

    my $time = $fleet->gateway($n)->get('/status')->json->{data}{time};

    return sprintf '%.0f', ($time / 1000 - time) / 3600;
}

for my $n (@all) {
    subtest "a release on $n" => sub {
        $fleet->take($_, 'old') for @all;
        $fleet->old;
        $fleet->release($n, 'old');
        ok($fleet->freed($_, 'old'), "frees on $_") for @all;

        my ($last) = @{ $redis->cmd('XREVRANGE', stream('ops'), '+', '-',
                                    'COUNT', 1) };
        my ($at) = $last->[1][1] =~ /"at":(\d+)/;

        cmp_ok(abs($at - redis_ms($redis)), '<', 5000,
               'is of the time there');

        # A lock that was taken after it is left, however late it comes.

        my %before = map { $_ => $fleet->bus($_)->{skipped}{young} } @all;

        $fleet->take($_, 'young') for @all;
        $fleet->old;
        $redis->cmd('XADD', stream('ops'), '*', 'release',
                    entry(key => 'young', at => $at));

        for my $m (@all) {
            ok(wait_for { $fleet->bus($m)->{skipped}{young} > $before{$m} },
               "one of before is read on $m");
            ok($fleet->held($m, 'young'), 'and left the lock');
        }

        $fleet->release($n, 'young');
        ok($fleet->freed($_, 'young'), "until a release frees it on $_")
            for @all;
    };
}

# The release waits for Redis, and the next operation starts meanwhile.  The
# long form waits for as long as the queue keeps it.

my $wait = $ENV{VIBELOCK_LONG} ? 55 : 2;

subtest "a release that waits for $wait s" => sub {
    $fleet->take($_, 'before') for @all;
    $fleet->old;

    $redis->pause;
    $fleet->release($_, "before") for @all;
    $fleet->take($_, 'waits') for @all;
    $fleet->old;
    $fleet->release(2, 'waits');
    $fleet->take(2, 'waits');

    my $start = now();
    wait_for { now() - $start > $wait } $wait + 10;

    $fleet->take($_, 'after') for @all;

    for my $n (@all) {
        my $is = $fleet->bus($n);
        cmp_ok($is->{queued}, '>=', 1, "it waits on $n");
    }

    $redis->resume;

    ok($fleet->freed($_, 'waits'), "frees on $_ what was there") for 0, 1;
    ok($fleet->working, 'all work');
    ok(wait_for { !grep { $fleet->bus($_)->{queued} } @all }, 'all is sent');
    ok($fleet->held(2, 'waits'), 'what came after it on 2 is left');
    ok($fleet->held($_, 'after'), "and on $_") for @all;
    is($fleet->bus($_)->{dropped}, 0, "nothing was dropped on $_") for @all;
};

is(join(' ', map { ahead($_) } @all), '1 -1 0', 'so far off are their clocks');

subtest 'a release that waits for too long' => sub {
    plan skip_all => 'takes a minute: VIBELOCK_LONG=1'
        unless $ENV{VIBELOCK_LONG};

    $redis->pause;
    $fleet->release(0, 'too-late');
    wait_for { $fleet->bus(0)->{dropped} } 70;
    is($fleet->bus(0)->{dropped}, 1, 'is dropped');
    is($fleet->bus(0)->{queued}, 0, 'and waits no more');
    ok($fleet->gateway(0)->log_like(qr/1 releases of zone "ops" were dropped/),
       'which is logged');
    $redis->resume;
    ok($fleet->working, 'all work again');
};

Vibelock::Test->done;

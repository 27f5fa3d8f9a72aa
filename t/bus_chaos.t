#!/usr/bin/perl

# Redis is killed, stopped and paused, and workers are killed, at random, while
# three gateways lock, break and expire.  In the end no lock is freed that
# should not be, none is left that should be gone, and the counters add up.
#
# Fifteen seconds; with VIBELOCK_LONG=1 ten minutes.  VIBELOCK_CHAOS_SEED=<n>
# repeats the choices of a run, if not their moments.

use strict;
use warnings;

use Test::More;
use Time::HiRes ();

use Vibelock::Fleet qw(stream);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(now);

my $seconds = $ENV{VIBELOCK_LONG} ? 600 : 15;
my $seed = $ENV{VIBELOCK_CHAOS_SEED} // int rand 1_000_000;

srand $seed;
note("VIBELOCK_CHAOS_SEED=$seed");

my $redis = Vibelock::Redis->start(persist => 1);
my $fleet = Vibelock::Fleet->new(
    redis  => 'redis://127.0.0.1:' . $redis->port,
    size   => '16m',
    server => <<'CONF',
        location ~ ^/ops/short/(?<id>.+)$ {
            vibelock exec zone=ops;
            vibelock_ttl 1s;
            vibelock_keep 1;
            alias %%DIR%%/ok;
        }
CONF
);

$_->expect_log(qr/exited on signal 9|was locked by \d+/) for $fleet->gateways;

$fleet->start;
ok($fleet->working, 'all work');

# A worker that is killed may have served a request or not: it is sent again.
# A lock that is there already was taken by the first of them.

sub until_answered {
    my ($n, $method, $uri) = @_;

    my $r = wait_for {
        my $r = $fleet->gateway($n)->request($method, $uri);
        $r->status ? $r : undef;
    };

    return $r ? $r->status : 0;
}

sub take {
    my ($n, $id, $what) = @_;

    return until_answered($n, GET => '/ops/' . ($what // 'take') . "/$id");
}

sub release {
    my ($n, $id, $owner) = @_;

    my $status = until_answered($n,
        DELETE => "/ops/lock/$id?owner=" . ($owner // 'ann'));

    die "a release was not taken: $status" if $status != 200;

    return;
}

# What is played: each with a key of its own, and what is held in the end.

my @plays = (
    # Locked everywhere, and released somewhere.
    sub {
        my ($id) = @_;
        take($_, $id) for 0 .. 2;
        return { id => $id, held => [0, 0, 0],
                 then => sub { release(int rand 3, $id) } };
    },

    # Released by somebody else, at whose gateway there is no lock.
    sub {
        my ($id) = @_;
        my $n = int rand 3;
        my @held = map { $_ == $n ? 0 : 1 } 0 .. 2;
        $held[$_] && take($_, $id) for 0 .. 2;
        return { id => $id, held => \@held,
                 then => sub { release($n, $id, 'eve') } };
    },

    # Released, and taken again at once where that was.
    sub {
        my ($id) = @_;
        my $n = int rand 3;
        take($_, $id) for 0 .. 2;
        return { id => $id, held => [map { $_ == $n ? 1 : 0 } 0 .. 2],
                 then => sub { release($n, $id); take($n, $id) } };
    },

    # Released several times.
    sub {
        my ($id) = @_;
        take($_, $id) for 0 .. 2;
        return { id => $id, held => [0, 0, 0], then => sub {
            release(int rand 3, $id) for 1 .. 5;
        } };
    },

    # Not released.
    sub {
        my ($id) = @_;
        take($_, $id) for 0 .. 2;
        return { id => $id, held => [1, 1, 1], then => sub { } };
    },

    # Over by itself.
    sub {
        my ($id) = @_;
        take($_, $id, 'short') for 0 .. 2;
        return { id => $id, held => [0, 0, 0], then => sub { } };
    },
);

# What is done to Redis, and undone later.

my @blows = (
    [sub { $redis->kill },    sub { $redis->start }],
    [sub { $redis->stop },    sub { $redis->start }],
    [sub { $redis->pause },   sub { $redis->resume }],
    [sub { $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal') }, sub { }],
);

my %count = (plays => 0, blows => 0, kills => 0);
my (@started, @done, $undo);
my $end = now() + $seconds;
my $next_blow = now() + 1;
my $next_kill = now() + 2;

while (now() < $end) {
    # So many that each of them is something new, and no machine is too slow.
    Time::HiRes::sleep(0.02);

    my $id = 'chaos-' . $count{plays}++;
    my $play = $plays[rand @plays]->($id);

    # Old enough to be broken by what comes then.
    $play->{due} = now() + 0.15 + rand 0.5;
    push @started, $play;

    while (@started && $started[0]{due} <= now()) {
        my $play = shift @started;
        $play->{then}->();
        push @done, $play;
    }

    @started = sort { $a->{due} <=> $b->{due} } @started;

    if (now() > $next_blow) {
        if ($undo) {
            $undo->();
            undef $undo;

        } else {
            my $blow = $blows[rand @blows];
            $blow->[0]->();
            $undo = $blow->[1];
            $count{blows}++;
        }

        $next_blow = now() + 0.2 + rand 1.5;
    }

    if (now() > $next_kill) {
        my $t = $fleet->gateway(int rand 3);
        my @workers = $t->workers;
        kill 'KILL', $workers[rand @workers] if @workers == 2;
        $count{kills}++;
        $next_kill = now() + 1 + rand 3;
    }
}

$undo->() if $undo;

wait_for { now() > ($started[-1]{due} // 0) } if @started;

for my $play (@started) {
    $play->{then}->();
    push @done, $play;
}

note("$count{plays} plays, $count{blows} blows, $count{kills} kills");

ok($fleet->working, 'all work in the end');
ok(wait_for { !grep { $fleet->bus($_)->{queued} } 0 .. 2 }, 'nothing waits');

# All that was published is read, and what was to expire has.

my ($last) = @{ $redis->cmd('XREVRANGE', stream('ops'), '+', '-',
                            'COUNT', 1) };
ok(wait_for { !grep { $fleet->bus($_)->{lastId} ne $last->[0] } 0 .. 2 },
   'all is read');

my (@freed, @left);

for my $play (@done) {
    for my $n (0 .. 2) {
        wait_for { $fleet->held($n, $play->{id}) == $play->{held}[$n] } 2;

        my $held = $fleet->held($n, $play->{id});

        push @freed, "$play->{id} on $n" if !$held && $play->{held}[$n];
        push @left, "$play->{id} on $n" if $held && !$play->{held}[$n];
    }
}

is("@freed", '', 'no lock was freed that should not be');
is("@left", '', 'none is left that should be gone');

my $entries = $redis->cmd('XLEN', stream('ops'));
my $published = 0;

for my $n (0 .. 2) {
    my $bus = $fleet->bus($n);
    my $skipped = 0;

    $skipped += $_ for values %{ $bus->{skipped} };
    $published += $bus->{published};

    is($bus->{received}, $bus->{applied} + $skipped,
       "what was received on $n was applied or skipped");
    cmp_ok($bus->{received}, '>=', $entries, "all was received on $n")
        if $entries < 10_000;
    is($bus->{dropped}, 0, "nothing was dropped on $n");
    is($bus->{skipped}{$_}, 0, "$_ on $n") for qw(malformed version tooLarge);
}

cmp_ok($published, '>', 0, "$published entries were published");
cmp_ok($entries, '>=', $published, 'and are in the stream')
    if $entries < 10_000;

Vibelock::Test->done;

#!/usr/bin/perl

# A release that Redis does not take: what is wrong is told for as long as it
# is wrong, also when the release was dropped, and no longer.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(stream);
use Vibelock::Preload qw(later preload_clock);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for free_port);

plan skip_all => 'valgrind makes calls of the system its own'
    if $ENV{VIBELOCK_VALGRIND};

my $redis = Vibelock::Redis->start;
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    more     => 'timeout=10m keepalive=5m',
    nginx    => {
        workers => 1,
        env     => { preload_clock() },
    },
);

my $t = $fleet->gateway(0);

$fleet->start;
ok($fleet->working, 'it works');

# A replica whose master is not there: it is read from, and takes nothing.

$redis->cmd('REPLICAOF', '127.0.0.1', free_port());
$fleet->release(0, 'web');
ok(wait_for { $fleet->bus(0)->{publishing} eq 'readonly' }, 'it is not taken');

# Who reads was told of the change.

ok(wait_for { $fleet->bus(0)->{reading} eq 'works' }, 'the stream can be read');

$t->log_mark;

my $before = $fleet->bus(0)->{reconnects};
my %seen;

wait_for {
    my $bus = $fleet->bus(0);

    $seen{ $bus->{publishing} }++;
    $bus->{reconnects} > $before + 5;
};

is(join(' ', sort keys %seen), 'readonly', 'on one connection after another');
unlike($t->error_log, qr/works again/, 'and nothing else is logged');

later(30);
$before = $fleet->bus(0)->{reconnects};
ok(wait_for { $fleet->bus(0)->{reconnects} > $before + 2 }, 'it is tried again');
is($fleet->bus(0)->{queued}, 1, 'for a minute');

later(61);
ok(wait_for { $fleet->bus(0)->{dropped} == 1 }, 'then it is dropped');
is($fleet->bus(0)->{queued}, 0, 'nothing waits any more');
ok($t->log_like(qr/1 releases of zone "ops" were dropped/), 'which is logged');

# Redis is asked every five minutes, by an entry that none can be.

my $seconds = 61;

sub minutes_later { return later($seconds += 301) }

sub asked {
    my ($calls, $rejected) = $redis->cmd('INFO', 'commandstats')
        =~ /^cmdstat_xadd:calls=(\d+),.*rejected_calls=(\d+)/m;

    return ($calls // 0) + ($rejected // 0);
}

sub is_told {
    my ($why, $what) = @_;

    my %seen;

    for (1 .. 5) {
        $fleet->old;
        $seen{ $fleet->bus(0)->{publishing} }++;
    }

    return is(join(' ', sort keys %seen), $why, $what);
}

sub told_until {
    my ($why, $mend) = @_;

    $t->log_mark;
    is_told($why, 'what is wrong is told still');

    # The kind of the key is known to who reads.

    my $asked = asked();
    my $asks = $why eq 'wrongtype' ? 0 : 1;

    minutes_later();
    ok(wait_for { asked() == $asked + $asks }, 'Redis is asked');
    is_told($why, 'and says the same');
    is(asked(), $asked + $asks, 'it was asked once');
    unlike($t->error_log, qr/works again/, 'the log says nothing else');

    $mend->();
    wait_for { $fleet->bus(0)->{reading} eq 'works' };
    minutes_later();

    ok($fleet->working, 'until it is mended, without another release');
    ok($t->log_like(qr/works again/), 'which is logged');

    return;
}

told_until('readonly', sub { $redis->cmd('REPLICAOF', 'NO', 'ONE') });
is($redis->cmd('EXISTS', stream('ops')), 0, 'and nothing was written');

$before = $fleet->bus(0)->{reconnects};
later($seconds += 5);
$fleet->old for 1 .. 5;
is($fleet->bus(0)->{reconnects}, $before, 'the connection stays');

# The same on a connection that goes on, and of the stream alone.

for (['error', ['CONFIG', 'SET', 'maxmemory', 1],
      ['CONFIG', 'SET', 'maxmemory', 0]],
     ['wrongtype', ['SET', stream('ops'), 'x'], ['DEL', stream('ops')]])
{
    my ($why, $break, $mend) = @$_;

    subtest $why => sub {
        my $dropped = $fleet->bus(0)->{dropped};

        $redis->cmd(@$break);
        $fleet->release(0, "web-$why");
        ok(wait_for { $fleet->bus(0)->{publishing} eq $why }, 'not taken');

        # Who reads has a minute to see that the key is of another kind.

        if ($why eq 'wrongtype') {
            wait_for { $fleet->bus(0)->{reading} eq $why };
        }

        later($seconds += 61);
        ok(wait_for { $fleet->bus(0)->{dropped} > $dropped }, 'dropped');

        told_until($why, sub { $redis->cmd(@$mend) });
    };
}

# What is wrong again within a minute is logged when that is over, with the words
# of Redis.

subtest 'again' => sub {
    my $said = qr/is away, it cannot publish: .* \(OOM [^)]+/;

    later($seconds += 60);

    for my $times (1, 2) {
        $t->log_mark if $times == 2;
        $redis->cmd('CONFIG', 'SET', 'maxmemory', 1);
        $fleet->release(0, "again-$times");
        ok(wait_for { $fleet->bus(0)->{publishing} eq 'error' }, 'not taken');

        if ($times == 1) {
            ok($t->log_like($said), 'which is logged');
            $redis->cmd('CONFIG', 'SET', 'maxmemory', 0);
            ok($fleet->working, 'taken');
            later($seconds += 40);
        }
    }

    unlike($t->error_log, qr/is away/, 'not once more in a minute');
    later($seconds += 25);
    ok($t->log_like(qr/is away/), 'but then');
    like($t->error_log, $said, 'and why');
};

Vibelock::Test->done;

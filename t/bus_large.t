#!/usr/bin/perl

# Entries that are larger than an answer may be, as another client of the same
# Redis can write them: they are skipped by their ids, what is before and behind
# them is read, and no worker has to have room for them.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Process qw(end_group fork_child);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(read_file);

use constant MB => 1_000_000;

my $redis = Vibelock::Redis->start;
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    zones    => 2,
    # So much takes its time on a slow machine.
    more     => 'timeout=20s',
    nginx    => { workers => 1 },
);

$fleet->start;
ok($fleet->working, 'the gateway reads and publishes');

my $t = $fleet->gateway(0);

# "n" entries of "bytes" each, written at once.

sub add_large {
    my ($zone, $n, $bytes) = @_;

    return $redis->cmd('EVAL', <<'LUA', 1, stream($zone), $n, $bytes);
        local id
        for i = 1, ARGV[1] do
            id = redis.call('XADD', KEYS[1], '*', 'release',
                            string.rep('[', tonumber(ARGV[2])))
        end
        return id
LUA
}

sub add_good {
    my ($zone, $key) = @_;

    return $redis->cmd('XADD', stream($zone), '*', 'release',
                       entry(key => $key, at => redis_ms($redis)));
}

sub most_memory {
    my ($worker) = $t->workers;
    my ($most) = read_file("/proc/$worker/status") =~ /^VmHWM:\s+(\d+)/m;

    return $most * 1024;
}

# What $add writes is counted, and a good one behind it is read.

sub skipped {
    my ($name, $n, $add) = @_;

    subtest $name => sub {
        my $before = $fleet->bus(0);

        $fleet->take(0, 'good');
        $fleet->old;

        $add->();
        add_good('ops', 'good');

        ok($fleet->freed(0, 'good'), 'what is behind it is read');

        my $after = $fleet->bus(0);

        is($after->{skipped}{tooLarge}, $before->{skipped}{tooLarge} + $n,
           'counted as too large, and once');
        is($after->{received}, $before->{received} + $n + 1, 'as received');
        is($after->{applied}, $before->{applied} + 1, 'the good one once');
        is($after->{rewinds}, 0, 'nothing is read from its start');
    };

    return;
}

my $before = most_memory();

skipped('one of 100 MB', 1, sub { add_large('ops', 1, 100 * MB) });
skipped('three of 20 MB', 3, sub { add_large('ops', 3, 20 * MB) });
skipped('many that are too large together', 40,
        sub { add_large('ops', 40, 1 * MB) });

skipped('one of many names and values', 1, sub {
    $redis->cmd('XADD', stream('ops'), '*', ('a', 'b') x 150_000);
});

SKIP: {
    skip 'what is freed stays, with a sanitizer', 1 if $ENV{VIBELOCK_ASAN};

    cmp_ok(most_memory() - $before, '<', 80 * MB, 'there is no room for it');
}

ok($t->log_like(qr/is away, it cannot read: an answer is over 16 MB, /),
   'the log says so');
ok($t->log_like(qr/entry \S+ of "\S+" is skipped: it is over 4 kB/),
   'and what is skipped');

# What Redis says of what was read last is the whole of it.

for my $case (['the last one of a stream', 'ops'],
              ['the last one of another stream', 'two'],
              ['the last ones of two streams', 'ops', 'two'])
{
    my ($name, @zones) = @$case;

    subtest $name => sub {
        for my $zone (@zones) {
            my $id = add_large($zone, 1, 20 * MB);

            ok(wait_for { $fleet->bus(0, $zone)->{lastId} eq $id },
               "$zone: is skipped");
        }

        # Who connects would see it again.

        my $before = $fleet->bus(0)->{reconnects};

        $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal');

        for my $zone (qw(ops two)) {
            $fleet->take(0, 'next', zone => $zone);
            $fleet->old;
            add_good($zone, 'next');
            ok($fleet->freed(0, 'next', zone => $zone),
               "$zone: what follows is read");
            is($fleet->bus(0, $zone)->{rewinds}, 0,
               "$zone: nothing is read from its start");
        }

        # One connection to read, and one to publish.

        is($fleet->bus(0)->{reconnects}, $before + 2,
           'and no connection is lost for it again');
    };
}

# What is before them in an answer, again and again, leaves them no room in it.

subtest 'behind a stream that always has something' => sub {
    my $busy = fork_child(sub {
        my $client = $redis->client;

        while (1) {
            $client->cmd('XADD', stream('ops'), '*', 'release',
                         entry(key => 'busy'));
            sleep 0.02;
        }
    });

    my $id = add_large('two', 3, 20 * MB);

    ok(wait_for { $fleet->bus(0, 'two')->{lastId} eq $id }, 'they are skipped');

    end_group($busy);
    ok(wait_for {
        my $last = $redis->cmd('XREVRANGE', stream('ops'), '+', '-',
                               'COUNT', 1)->[0][0];

        $fleet->bus(0)->{lastId} eq $last;
    }, 'and it is read');
};

# A worker that is new, and does not know what the last one is.

subtest 'the last one of a stream, to another worker' => sub {
    my $id = add_large('ops', 1, 20 * MB);

    ok(wait_for { $fleet->bus(0)->{lastId} eq $id }, 'is skipped');
    $t->reload;

    $fleet->take(0, 'next');
    $fleet->old;
    add_good('ops', 'next');
    ok($fleet->freed(0, 'next'), 'what follows is read');
    is($fleet->bus(0)->{rewinds}, 0, 'nothing is read from its start');
};

# What is known of the last one is so for as long as that is the last one.

subtest 'a stream that becomes none' => sub {
    my $id = add_large('two', 1, 20 * MB);

    ok(wait_for { $fleet->bus(0, 'two')->{lastId} eq $id }, 'is skipped');
    $redis->cmd('DEL', stream('two'));
    $redis->cmd('SET', stream('two'), 'no stream');
    ok(wait_for { $fleet->bus(0, 'two')->{reading} eq 'wrongtype' }, 'is seen');

    $fleet->take(0, 'next');
    $fleet->old;
    add_good('ops', 'next');
    ok($fleet->freed(0, 'next'), 'the others are read');

    $redis->cmd('DEL', stream('two'));
    $fleet->take(0, 'next', zone => 'two');
    $fleet->old;
    add_good('two', 'next');
    ok($fleet->freed(0, 'next', zone => 'two'), 'and that one as well, later');
};

my $bus = $fleet->bus(0);
my $skipped = 0;
$skipped += $_ for values %{ $bus->{skipped} };
is($bus->{received}, $bus->{applied} + $skipped, 'the counters add up');

subtest 'a stream that ends before what was read behind one' => sub {
    skipped('one of 20 MB', 1, sub { add_large('ops', 1, 20 * MB) });

    $redis->cmd('DEL', stream('ops'));
    $redis->cmd('XADD', stream('ops'), '1-1', 'release', '?');
    $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal');

    ok(wait_for { $fleet->bus(0)->{lastId} eq '1-1' }, 'is read anew');
    is($fleet->bus(0)->{rewinds}, 1, 'from its start');
};

Vibelock::Test->done;

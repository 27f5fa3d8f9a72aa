#!/usr/bin/perl

# Answers that come slowly and in small pieces: what still comes is waited for,
# though all of it takes longer than an answer may.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Proxy;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(now);

use constant ENTRIES => 32;     # of one answer, at most
use constant TIMEOUT => 2;      # of one that Redis waits a second with

my $redis = Vibelock::Redis->start;
my $proxy = Vibelock::Proxy->start(to => $redis->port);
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $proxy->port,
    gateways => 1,
    more     => 'timeout=1s',
    nginx    => { workers => 1 },
);

$fleet->start;
ok($fleet->working, 'it works');

# It asks for one at first, and then for twice as many each time.

for (1 .. 6) {
    my $id = $redis->cmd('XADD', stream('ops'), '*', 'release', '?');

    wait_for { $fleet->bus(0)->{lastId} eq $id };
}

sub slowly {
    my ($name, $bytes) = @_;

    subtest $name => sub {
        $fleet->take(0, 'web');
        $fleet->old;

        my $before = $fleet->bus(0);
        my $start = now();

        $proxy->trickle($bytes);
        $redis->cmd('EVAL', <<'LUA', 1, stream('ops'), ENTRIES - 1,
            for i = 1, ARGV[1] do
                redis.call('XADD', KEYS[1], '*', 'release',
                           string.rep('?', 7 * ARGV[2]))
            end
            redis.call('XADD', KEYS[1], '*', 'release', ARGV[3])
LUA
                    $bytes, entry(key => 'web', at => redis_ms($redis)));

        ok($fleet->freed(0, 'web'), 'the last of many entries frees a lock');
        cmp_ok(now() - $start, '>', TIMEOUT, 'they took their time');
        $proxy->resume;

        my $after = $fleet->bus(0);

        is($after->{received}, $before->{received} + ENTRIES, 'each came once');
        is($after->{reconnects}, $before->{reconnects}, 'on one connection');
        is($after->{reading}, 'works', 'which works');
    };

    return;
}

slowly('in small pieces', 16);
slowly('in larger ones', 200);

Vibelock::Test->done;

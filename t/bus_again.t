#!/usr/bin/perl

# A stream that cannot be read is looked at again a little later. A connection
# that is lost meanwhile is made anew and begins by itself: what was to come
# later does not come as well, or entries would be read twice.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);

my $redis = Vibelock::Redis->start;

$redis->cmd('SET', stream('ops'), 'no stream');

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    nginx    => { workers => 1 },
);

$fleet->start;

sub looks {
    return $redis->cmd('INFO', 'commandstats')
        =~ /^cmdstat_xrevrange:calls=(\d+)/m ? $1 : 0;
}

for my $round (1 .. 3) {
    ok(wait_for { $fleet->bus(0)->{reading} eq 'wrongtype' }, 'no stream');

    my $bus = $fleet->bus(0);
    my $before = looks();

    wait_for { looks() > $before };

    # From here on there is a quarter of a second.

    $redis->cmd('DEL', stream('ops'));
    $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal');

    ok(wait_for { $fleet->bus(0)->{reconnects} == $bus->{reconnects} + 2 },
       'one who reads and one who publishes connect again');
    ok($fleet->working, 'and work');

    # What was to come later would have come by then.

    $fleet->old for 1 .. 3;

    for my $n (1 .. 3) {
        $fleet->take(0, 'web');
        $fleet->old;
        $redis->cmd('XADD', stream('ops'), '*', 'release',
                    entry(key => 'web', at => redis_ms($redis)));
        ok($fleet->freed(0, 'web'), 'an entry is read');
    }

    is($fleet->bus(0)->{received}, $bus->{received} + 3, 'once');
    is($fleet->bus(0)->{reconnects}, $bus->{reconnects} + 2,
       'on that connection');

    $redis->cmd('DEL', stream('ops'));
    $redis->cmd('SET', stream('ops'), 'no stream');
}

Vibelock::Test->done;

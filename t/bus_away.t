#!/usr/bin/perl

# Redis goes away in every way it can, and comes back: the gateways serve as
# if nothing were, take up again, and no release is lost.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(stream);
use Vibelock::Proxy;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(append_file limit now);

# From the moment that Redis answers, the work of the test included.
use constant BACK => 2;

my $redis = Vibelock::Redis->start(persist => 1);
my $proxy = Vibelock::Proxy->start(to => $redis->port);

# The first two reach Redis directly, the third through the proxy.
my $fleet = Vibelock::Fleet->new(redis => [
    ('redis://127.0.0.1:' . $redis->port) x 2,
    'redis://127.0.0.1:' . $proxy->port,
]);

my $round = 0;

# What it means to be away: the gateways answer at once, releases wait, and
# those that others sent are missed.  And to be back: all of it is made good.

sub away_and_back {
    my ($name, %do) = @_;

    subtest $name => sub {
        ok($fleet->working, 'all work before');

        my $id = 'r' . ++$round;

        $fleet->take($_, "$id-$_") for 0 .. 2;
        $fleet->take(2, "$id-late");
        $fleet->old;

        $do{away}->();

        my $seen = $do{seen} // [0 .. 2];

        ok(wait_for {
            !grep {
                my $bus = $fleet->bus($_);
                $bus->{reading} eq 'works' && $bus->{publishing} eq 'works'
                    && !$do{unseen}
            } @$seen;
        }, 'it is noticed');

        my $start = now();

        for my $n (0 .. 2) {
            my $there = ($n + 1) % 3;
            $fleet->release($n, "$id-$there");
        }

        $fleet->exec($_, "$id-x") == 200 or die 'not served' for 0 .. 2;

        cmp_ok(now() - $start, '<', limit(1), 'the gateways serve');

        # The next operation is on its way before the release arrives.

        $fleet->release(2, "$id-late");
        $fleet->take(2, "$id-late");

        $do{back}->();

        $start = now();

        ok($fleet->freed($_, "$id-$_", limit => BACK), "freed on $_")
            for 0 .. 2;
        ok($fleet->working, 'all work again');
        my $took = now() - $start;
        cmp_ok($took, '<', limit(BACK), sprintf 'after %.2f s', $took);

        ok(wait_for { !grep { $fleet->bus($_)->{queued} } 0 .. 2 },
           'nothing waits any more');
        ok($fleet->held(2, "$id-late"), 'the next operation keeps its lock');

        is($fleet->bus($_)->{dropped}, 0, "nothing was dropped on $_")
            for 0 .. 2;
    };
}

# Without Redis at all.

$redis->stop;

my $start = now();
$fleet->start;

subtest 'they start without Redis' => sub {
    cmp_ok(now() - $start, '<', limit(5), 'at once');
    is($fleet->exec($_, 'first'), 200, "and $_ serves") for 0 .. 2;

    ok($fleet->gateway(0)->log_like(
        qr/bus of zone "ops" is away, it cannot \w+: the connection failed, /),
       'the log tells why');

    $fleet->take(1, 'early');
    $fleet->old;
    $fleet->release(0, 'early');

    $redis->start;
    ok($fleet->freed(1, 'early', limit => BACK), 'and what waited arrives');
    ok($fleet->working, 'all work');
    ok($fleet->gateway(0)->log_like(qr/works again/), 'which is logged');
};

away_and_back('stopped and started',
    away => sub { $redis->stop },
    back => sub { $redis->start });

away_and_back('killed and started',
    away => sub { $redis->kill },
    back => sub { $redis->start });

away_and_back('paused',
    away => sub { $redis->pause },
    back => sub { $redis->resume });

# Data is there, and takes a while to load.

subtest 'loading' => sub {
    my $client = $redis->client;

    $client->send('SET', "key$_", 'x' x 100) for 1 .. 4000;
    $client->read_reply for 1 .. 4000;

    # As a dump: that is loaded in small pieces, with answers in between.

    $redis->cmd('BGREWRITEAOF');
    ok(wait_for {
        my $info = $redis->cmd('INFO', 'persistence');
        $info =~ /aof_rewrite_in_progress:0/
            && $info =~ /aof_rewrite_scheduled:0/;
    }, 'data is there');

    append_file($redis->dir . '/redis.conf',
                "key-load-delay 1000\nloading-process-events-interval-bytes "
                . "1024\n");
};

away_and_back('restarted, and loading its data',
    away => sub {
        $redis->kill;

        # start() waits until all is loaded.

        local *Vibelock::Redis::wait_ready = sub { };
        no warnings 'redefine';
        $redis->start;
    },
    back => sub {
        ok(wait_for { $fleet->bus(0)->{reading} eq 'loading' },
           'seen as loading');
        $redis->wait_ready;
    });

away_and_back('another password',
    away => sub {
        $redis->cmd('CONFIG', 'SET', 'requirepass', 'new');
        $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal');
    },
    back => sub {
        ok(wait_for { $fleet->bus(0)->{reading} eq 'noauth' },
           'seen as such');
        $redis->client(password => 'new')->cmd('CONFIG', 'SET', 'requirepass',
                                               '');
    });

# A failover: what was the master takes no more writes, and loses its data to
# the new one's.

my $master = Vibelock::Redis->start;

away_and_back('read-only',
    away => sub {
        $redis->cmd('REPLICAOF', '127.0.0.1', $master->port);
        wait_for {
            $redis->cmd('INFO', 'replication') =~ /master_link_status:up/;
        };
        # Whether it takes writes is seen when there is something to write.
        $fleet->release($_, "readonly-$_") for 0 .. 2;
    },
    back => sub {
        ok(wait_for { $fleet->bus(0)->{publishing} eq 'readonly' },
           'seen as such');
        is($fleet->bus(0)->{reading}, 'works', 'and readable');
        $redis->cmd('REPLICAOF', 'NO', 'ONE');
    });

# Between the third gateway and Redis.

for my $way (
    ['everything stalls',   sub { $proxy->stall },
                            sub { $proxy->resume }],
    ['replies stall',       sub { $proxy->stall('replies') },
                            sub { $proxy->resume }],
    ['requests stall',      sub { $proxy->stall('requests') },
                            sub { $proxy->resume }],
    ['connections vanish',  sub { $proxy->stall; $proxy->forget },
                            sub { $proxy->resume }],
)
{
    my ($name, $away, $back) = @$way;

    away_and_back("$name on the way", away => $away, back => $back,
                  seen => [2]);
}

# These are over before anybody could look.

for my $way (
    ['closed', sub { $proxy->drop }],
    ['reset',  sub { $proxy->reset }],
    ['forgotten', sub { $proxy->forget }],
)
{
    away_and_back("connections are $way->[0]", away => $way->[1],
                  back => sub { }, unseen => 1, seen => [2]);
}

subtest 'it reconnects slowly, and says little' => sub {
    my $before = $proxy->accepted;

    $redis->stop;
    wait_for { $proxy->accepted > $before };

    my $first = $proxy->accepted;
    my $begin = now();
    wait_for { $proxy->accepted >= $first + 8 };
    my $took = now() - $begin;

    # Two workers publish and one reads: three connections, each tried twice
    # in 500 ms at most.
    cmp_ok($took, '>', 0.15, 'eight tries take their time');

    for my $n (0 .. 2) {
        my $log = $fleet->gateway($n)->read_file('error.log');
        my $lines = () = $log =~ / vibelock: the bus of zone /g;

        cmp_ok($lines, '<', 20, "few lines on $n");
    }

    $redis->start;
    ok($fleet->working, 'all work again');
};

subtest 'while there is nothing to send' => sub {
    my $idle = Vibelock::Fleet->new(
        redis    => 'redis://127.0.0.1:' . $redis->port,
        gateways => 1,
        more     => 'keepalive=100ms',
    );

    $idle->start;
    ok($idle->working, 'it works');

    $redis->pause;
    ok(wait_for { $idle->bus(0)->{publishing} eq 'timeout' },
       'the connection is tested all the same');
    $redis->resume;
    ok($idle->working, 'it works again');
    $idle->gateway(0)->finish;
    ok($fleet->working, 'and so do the others');
};

subtest 'more than the queue holds' => sub {
    $redis->stop;

    my $t = $fleet->gateway(0);
    my $c;

    for my $n (1 .. 1200) {
        # nginx closes a connection after a thousand requests.
        $c = $t->connect if $n % 600 == 1;
        $t->delete("/ops/lock/many-$n", connection => $c);
    }

    my $bus = $fleet->bus(0);

    cmp_ok($bus->{queued}, '>', 900, 'about a thousand wait');
    is($bus->{queued} + $bus->{dropped}, 1200, 'the rest is counted');
    ok($t->log_like(qr/\d+ releases of zone "ops" were dropped/), 'and logged');

    my $published = $bus->{published};

    $redis->start;
    ok(wait_for { $fleet->bus(0)->{queued} == 0 }, 'what waited is sent');
    is($fleet->bus(0)->{published}, $published + $bus->{queued},
       'all of it, once');

    # The newest are the ones that were kept.

    my $last = $redis->cmd('XREVRANGE', stream('ops'), '+', '-',
                           'COUNT', 1200);
    my %sent = map { $_->[1][1] =~ /"key":"many-(\d+)"/ ? ($1 => 1) : () }
               @$last;

    ok($sent{1200} && !$sent{1}, 'the oldest were dropped');
};

Vibelock::Test->done;

#!/usr/bin/perl

# Another Redis takes the place of one: it lacks the last entries that there
# were, and its clock is behind. What comes to it is read, and what was read
# before is not taken for later than it was.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Preload qw(library);
use Vibelock::Proxy;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);

use constant BEHIND => 3;

my ($master, $next, $fleet, @proxies);

sub begin {
    my ($behind) = @_;

    $master = Vibelock::Redis->start;
    $next = Vibelock::Redis->start(env => {
        LD_PRELOAD => library('clock'),
        AHEAD      => -($behind // BEHIND),
    });
    @proxies = map { Vibelock::Proxy->start(to => $master->port) } 0 .. 1;
    $fleet = Vibelock::Fleet->new(
        redis    => [map { 'redis://127.0.0.1:' . $_->port } @proxies],
        gateways => 2,
    );

    $fleet->start;
    ok($fleet->working, 'both work');

    return;
}

sub end {
    $_->finish for $fleet->gateways;

    return;
}

sub entries { @{ $_[0]->cmd('XRANGE', stream('ops'), '-', '+') } }

# What the next one has of what there was.

sub copy {
    $next->cmd('XADD', stream('ops'), $_->[0], @{ $_->[1] })
        for entries($master);

    return;
}

# Waits until the other gateway has read what was released on the first.

sub release {
    my ($id) = @_;

    my $before = $fleet->bus(1)->{received};

    $fleet->release(0, $id);

    return wait_for { $fleet->bus(1)->{received} > $before };
}

sub move {
    my ($proxy) = @_;

    $proxy->to($next->port);
    $proxy->drop;

    return;
}

subtest 'what comes while a gateway is away' => sub {
    begin();

    # Older than the clocks are apart, when it is released.

    $fleet->take(1, 'away');
    release('first');
    copy();

    my $taken = redis_ms($master);

    ok(wait_for { redis_ms($next) > $taken + 100 }, 'there is a lock');
    release('lost');

    my ($last) = split /-/, $fleet->bus(1)->{lastId};

    # The second gateway is cut off, and connects when ids are above what it
    # read last again.

    $proxies[1]->stall;
    $proxies[1]->to($next->port);
    move($proxies[0]);
    $fleet->release(0, 'away');
    ok(wait_for { entries($next) == 2 }, 'a release goes to the next one');

    my ($id) = split /-/, (entries($next))[-1][0];

    cmp_ok($id, '<', $last, 'with an id below what was read');
    ok(wait_for { redis_ms($next) > $last }, 'its clock goes on');
    $fleet->release(0, 'above');
    ok(wait_for { entries($next) == 3 }, 'and another one follows');

    $proxies[1]->drop;
    $proxies[1]->resume;

    ok($fleet->freed(1, 'away'), 'both are read');
    is($fleet->bus(1)->{rewinds}, 1, 'from the start');
    ok($fleet->gateway(1)->log_like(qr/has lost entry $last-\d+, which was/),
       'which is logged');
    end();
};

# It was taken after a release, and by the clock there is now before it.

sub next_operation {
    $fleet->take(1, 'web');
    $fleet->old;
    release('web');
    $fleet->freed(1, 'web') or die 'not freed';
    $fleet->old;
    $fleet->take(1, 'web');
    copy();

    my $at = redis_ms($master);

    ok(wait_for { redis_ms($next) > $at }, 'it was a while ago');

    return;
}

sub keeps_its_lock {
    ok($fleet->working, 'both work');
    ok(release('more'), 'and read on');
    ok($fleet->held(1, 'web'), 'the next operation keeps its lock');

    $fleet->release(0, 'web');
    ok($fleet->freed(1, 'web'), 'until it is released');

    return;
}

subtest 'what was read before' => sub {
    begin();

    next_operation();
    release('lost');
    move($_) for @proxies;

    ok(wait_for { $fleet->bus(1)->{rewinds} == 1 }, 'is read again');
    keeps_its_lock();
    end();
};

subtest 'what was read before, under another name' => sub {
    begin();

    next_operation();
    move($proxies[0]);

    my $t = $fleet->gateway(1);
    my ($from, $to) = ($proxies[1]->port, $next->port);
    my $before = $fleet->bus(1)->{received};

    (my $http = $t->{conf}{text}{http}) =~ s/127\.0\.0\.1:$from/127.0.0.1:$to/;
    $t->http($http);
    $t->reload;

    ok(wait_for { $fleet->bus(1)->{received} > $before }, 'is read again');
    keeps_its_lock();
    end();
};

# Their ids go on from what there was, whatever the clock says.

subtest 'what comes after that' => sub {
    begin(3600);

    release('first');
    copy();
    release('lost');
    move($_) for @proxies;

    ok(wait_for { $fleet->bus(1)->{rewinds} == 1 }, 'it is read again');
    ok($fleet->working, 'both work');
    ok(release('more'), 'and read on');

    $fleet->take(1, 'young');
    $fleet->old;
    $fleet->release(0, 'young');
    ok($fleet->freed(1, 'young'), 'frees a lock, however young it is');
    end();
};

# A gateway was away, and what it read last fell out of the stream.

subtest 'what was not read' => sub {
    begin();

    release('first');
    $proxies[1]->stall;
    $fleet->take(1, 'there');
    ok(wait_for { $fleet->bus(1)->{reading} ne 'works' }, 'it is away');
    $fleet->release(0, $_) for qw(gone there);
    ok(wait_for { entries($master) == 3 }, 'two more come');
    $master->cmd('XTRIM', stream('ops'), 'MAXLEN', 1);

    $proxies[1]->resume;

    ok($fleet->freed(1, 'there'), 'what is there is read');
    ok($fleet->gateway(1)->log_like(qr/has lost entry \d+-\d+, which was read/),
       'and the log tells that something may be missing');
    end();
};

# Nobody was away, but more came at once than the stream keeps.

subtest 'what was gone before it could be read' => sub {
    begin();

    release('first');
    $fleet->take(1, 'there');
    $fleet->old;

    my $rewinds = $fleet->bus(1)->{rewinds};

    $master->cmd('EVAL', <<'LUA', 1, stream('ops'), entry(key => 'there'));
        for i = 1, 200 do
            redis.call('XADD', KEYS[1], '*', 'release', '{"v":2}')
        end
        redis.call('XADD', KEYS[1], '*', 'release', ARGV[1])
        redis.call('XTRIM', KEYS[1], 'MAXLEN', 100)
LUA

    ok($fleet->freed(1, 'there'), 'what is there is read');
    ok($fleet->gateway(1)->log_like(qr/has lost entry \d+-\d+, and may have /),
       'and the log tells that something may be missing');
    is($fleet->bus(1)->{rewinds}, $rewinds + 1, 'and the status');
    end();
};

done_testing();

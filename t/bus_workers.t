#!/usr/bin/perl

# The bus over the lives of workers: one reads for all, and leaves that to
# another; what waits outlives those who put it there; nobody stays because of
# a connection.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(entry stream);
use Vibelock::Process qw(alive);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Util qw(limit now);

my $redis = Vibelock::Redis->start(persist => 1);
my $up = Vibelock::Upstream->new;

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 2,
    server   => <<'CONF',
        location ~ ^/ops/unstick/(?<id>.+)$ {
            vibelock_server_kind STANDALONE;
            vibelock_unstick zone=ops;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
CONF
);

$_->set(UPSTREAM => $up->port) for $fleet->gateways;

$fleet->start;
ok($fleet->working, 'all work');

my $t = $fleet->gateway(0);

sub arrives {
    my ($name) = @_;

    $fleet->take(0, 'arrives');
    $fleet->old;
    $fleet->release(1, 'arrives');

    return ok($fleet->freed(0, 'arrives'), $name);
}

# Connections of this gateway's at Redis: one each worker, and one to read.

sub connections {
    my @lines = grep { !/cmd=client/ } split /\n/,
                $redis->cmd('CLIENT', 'LIST');

    return scalar @lines;
}

subtest 'one reads for all' => sub {
    my @readers = grep { /cmd=xread/ }
                  split /\n/, $redis->cmd('CLIENT', 'LIST');

    is(scalar @readers, 2, 'one in each gateway');
    is(connections(), 6, 'and each worker publishes');

    my $reader = $fleet->bus(0)->{reader};
    ok((grep { $_ == $reader } $t->workers), 'it is one of the workers');
};

subtest 'the reader is killed' => sub {
    for my $round (1 .. 5) {
        my $reader = $fleet->bus(0)->{reader};

        $fleet->take(0, "r$round-$_") for 1 .. 3;
        $fleet->old;

        $fleet->release(1, "r$round-1");
        kill 'KILL', $reader;
        $fleet->release(1, "r$round-2");

        my $start = now();

        ok($fleet->freed(0, "r$round-$_", limit => 2), "$_ is freed")
            for 1, 2;

        $fleet->release(1, "r$round-3");
        ok($fleet->freed(0, "r$round-3", limit => 2), '3 too');

        my $took = now() - $start;
        cmp_ok($took, '<', limit(2), sprintf 'within %.2f s', $took);

        isnt($fleet->bus(0)->{reader}, $reader, 'another one reads');
        ok(wait_for { $t->workers == 2 }, 'and there are two again');

        $t->expect_log(qr/worker process $reader exited on signal 9/);
    }
};

subtest 'the reader is stopped, and goes on' => sub {
    my $reader = $fleet->bus(0)->{reader};

    my ($other) = grep { $_ != $reader } $t->workers;

    kill 'STOP', $reader;

    # The kernel wakes one worker for a connection, and that may be the one that
    # is stopped.  It is woken once: the second one gets the other worker.

    my @wake = map { $t->connect } 1 .. 2;

    ok(wait_for { $fleet->bus(0)->{reader} == $other }, 'another one reads');
    arrives('releases arrive');
    kill 'CONT', $reader;

    ok(wait_for { connections() == 6 }, 'the first one reads no more');
    is($fleet->bus(0)->{reader}, $other, 'and leaves it to the other');
    arrives('and releases still arrive');
};

subtest 'a worker is killed with releases that were sent' => sub {
    $redis->pause;

    my ($one, $two) = $t->workers;

    $fleet->release(0, "sent-$_") for 1 .. 20;

    kill 'KILL', $_ for $one, $two;
    $t->expect_log(qr/worker process $_ exited on signal 9/) for $one, $two;
    ok(wait_for {
        2 == grep { $_ != $one && $_ != $two } $t->workers;
    }, 'both workers are new');

    $redis->resume;

    ok(wait_for {
        my %there = map { $_->[1][1] =~ /"key":"(sent-\d+)"/ ? ($1 => 1) : () }
                    @{ $redis->cmd('XRANGE', stream('ops'), '-', '+') };
        20 == keys %there;
    }, 'all were sent');
    ok(wait_for { $fleet->bus(0)->{queued} == 0 }, 'nothing waits');
};

# With Redis in every state, a reload and a quit leave nobody behind.

sub gone {
    my (@workers) = @_;

    return wait_for { !grep { alive($_) } @workers } 10;
}

for my $state (
    ['up',     sub { },                        sub { }],
    ['down',   sub { $redis->stop },           sub { $redis->start }],
    ['paused', sub { $redis->pause },          sub { $redis->resume }],
)
{
    my ($name, $away, $back) = @$state;

    subtest "a reload with Redis $name" => sub {
        $fleet->take(1, "reload-$name");
        $fleet->old;
        $away->();

        $fleet->release(0, "reload-$name");

        my @before = $t->workers;
        $t->reload;
        ok(gone(@before), 'the old workers are gone');

        $back->();

        ok($fleet->freed(1, "reload-$name"), 'what waited went out');
        ok($fleet->working, 'all work');
        arrives('releases arrive');
        ok(wait_for { connections() == 6 }, 'no connection is left over')
            or diag $redis->cmd('CLIENT', 'LIST');
    };

    subtest "three reloads at once with Redis $name" => sub {
        $away->();

        my @before = $t->workers;
        $t->signal('HUP') for 1 .. 2;
        $t->reload;
        ok(gone(@before), 'the first workers are gone');
        ok(wait_for { $t->leaving == 0 && $t->workers == 2 }, 'all old ones');

        $back->();

        ok($fleet->working, 'all work');
        arrives('releases arrive');
    };

    subtest "quit with Redis $name" => sub {
        $away->();

        my $start = now();
        ok($t->quit(10), 'nginx ends');
        cmp_ok(now() - $start, '<', limit(3), 'soon');

        $t->stop;
        $back->();
        $t->start;

        ok($fleet->working, 'all work');
        arrives('releases arrive');
    };
}

subtest 'a release right before the end is sent' => sub {
    for my $round (1 .. 5) {
        $fleet->take(1, 'quit');
        $fleet->old;
        $fleet->release(0, 'quit');
        $t->quit;
        ok($fleet->freed(1, 'quit'), "freed, $round");
        $t->stop;
        $t->start;
        $fleet->working;
    }
};

subtest 'a worker that leaves with a request' => sub {
    $fleet->take(1, 'leaving');
    $fleet->old;

    my $reader = $fleet->bus(0)->{reader};

    # Both of them have one.

    my %have;
    my @open;

    while (keys %have < 2 && @open < 50) {
        my $pending = $t->async(POST => '/ops/unstick/leaving');
        push @open, [$pending, $up->accept_request];
        my ($worker) = grep { !$have{$_} } $t->workers;
        last unless $worker;
        $have{$_} = 1 for connected_workers($t);
    }

    $t->reload;

    ok(wait_for { $fleet->bus(0)->{reader} != $reader
                  && $fleet->bus(0)->{reader} }, 'does not read any more');
    arrives('releases arrive');

    $fleet->take(1, 'from-leaving');
    $_->[1]->respond(200) for @open;
    is($_->[0]->response->status, 200) for @open;
    ok($fleet->freed(1, 'leaving'), 'what it releases at last goes out');
    ok(wait_for { $t->leaving == 0 }, 'and then it is gone');
};

# Which workers have a connection to the upstream.

sub connected_workers {
    my ($nginx) = @_;

    return grep {
        my @sockets = grep { (readlink($_) // '') =~ /^socket/ }
                      glob "/proc/$_/fd/*";
        @sockets > 8;
    } $nginx->workers;
}

subtest 'the bus comes and goes by a reload' => sub {
    my $http = $t->{conf}{text}{http};

    (my $without = $http) =~ s/^vibelock_redis .*$//m;

    $t->http($without);
    $t->reload;
    is($fleet->bus(0), undef, 'gone');

    $fleet->take(0, 'none');
    $fleet->old;
    is($fleet->release(0, 'none')->json->{data}{released}, JSON::PP::true(),
       'a release is one here');
    ok(wait_for { $t->leaving == 0 }, 'the old workers are gone');

    (my $other = $http)
        =~ s/^(vibelock_redis .*);$/$1 prefix=other: replica=x;/m;

    $t->http($other);
    $t->reload;
    ok(wait_for { ($fleet->bus(0)->{reading} // '') eq 'works' }, 'back');
    $fleet->release(0, 'other');
    ok(wait_for { $redis->cmd('EXISTS', 'other:ops:releases') },
       'with another prefix');

    $t->http($http);
    $t->reload;
    ok($fleet->working, 'and as before');
    arrives('releases arrive');
};

subtest 'a stream that ends before what was read' => sub {
    # No repeat of a release is still to come.
    wait_for { !grep { $fleet->bus($_)->{queued} } 0, 1 };

    my $before = $fleet->bus(0);

    $redis->cmd('DEL', stream('ops'));
    $redis->cmd('XADD', stream('ops'), '1-1', 'release', entry(key => 'old'));
    $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal');

    ok(wait_for { $fleet->bus(0)->{rewinds} == $before->{rewinds} + 1 },
       'is noticed');
    ok(wait_for { $fleet->bus(0)->{lastId} eq '1-1' },
       'and read from its start');
    ok($t->log_like(qr/"vibelock:ops:releases" has lost entry \d+-\d+, which/),
       'which is logged');

    # A failover to a server whose clock is behind: entries follow the last.

    $redis->cmd('XADD', stream('ops'), '1-2', 'release', entry(key => 'old'));
    ok(wait_for { $fleet->bus(0)->{lastId} eq '1-2' }, 'and on');
};

Vibelock::Test->done;

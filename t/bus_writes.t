#!/usr/bin/perl

# How releases that come at once go out: the first at once and by itself, those
# that follow in one write for two turns of the event loop.

use strict;
use warnings;

use File::Temp ();
use Test::More;

use Vibelock::Fleet;
use Vibelock::Preload qw(preload);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(read_file);

use constant RELEASES => 32;
use constant A_TURN   => 2;

my $writes = File::Temp->new;

chmod 0666, $writes;

my $redis = Vibelock::Redis->start;
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    more     => 'timeout=1m keepalive=1h',
    nginx    => {
        workers => 1,
        env     => {
            WRITES => "$writes",
            preload('writes'),
        },
    },
);

my $t = $fleet->gateway(0);

$t->events('epoll_events ' . A_TURN . ';');
$fleet->start;
ok($fleet->working, 'it works');

my ($worker) = $t->workers;
my @connections = map { $t->connect } 1 .. RELEASES;

$t->get('/status', connection => $_) for @connections;

# All are there when the worker looks, which takes so many in a turn, and no
# answer of Redis comes between.

$redis->pause;
kill 'STOP', $worker;
ok(wait_for { read_file("/proc/$worker/stat") =~ /\) T / }, 'nginx is stopped');

my @releases = map {
    $t->async(DELETE => "/ops/lock/web-$_", connection => $connections[$_ - 1])
} 1 .. RELEASES;

kill 'CONT', $worker;

is($_->response->status, 200, 'released') for @releases;

my @written;

ok(wait_for {
    my $sum = 0;

    @written = split /\n/, read_file("$writes");
    $sum += $_ for @written;
    $sum == RELEASES;
}, 'all are written');

note("@written");

is($written[0], 1, 'the first by itself');

# Something else may have been there in a turn.

cmp_ok(scalar @written, '<=', RELEASES / (2 * A_TURN) + 3,
       'the others in a write for two turns');

$redis->resume;
ok(wait_for { $fleet->bus(0)->{published} == RELEASES }, 'all are published');

Vibelock::Test->done;

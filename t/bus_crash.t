#!/usr/bin/perl

# A worker dies at each step that the bus makes inside the zone's mutex: what
# waited still goes out, and the reading goes on.
#
# This needs a build of the module that dies where it is told to.

use strict;
use warnings;

use Test::More;

use Vibelock::Crash;
use Vibelock::Fleet;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(write_file);

my ($module, $armed) = Vibelock::Crash::prepare();
my $redis = Vibelock::Redis->start;

# Workers of the first one die, the second one is its peer.

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 2,
    each     => [{ module => $module, env => { VIBELOCK_CRASH => $armed } },
                 {}],
);

my $t = $fleet->gateway(0);

$t->main('env VIBELOCK_CRASH;');
$t->expect_log(qr/worker process \d+ exited on signal 9/);
$t->expect_log(qr/shared memory zone "ops" was locked by \d+/);

$fleet->start;
ok($fleet->working, 'all work');

# A request whose worker died gets no answer, and is sent again.

sub until_served {
    my ($code) = @_;

    return wait_for { my $r = $code->(); $r->status == 200 ? $r : undef };
}

my $wrong = 0;
my $deaths = 0;

for my $step (0 .. 79) {
    my $id = "step-$step";

    # The zone is as it was before the peer was told, and no later lock is
    # taken: the first DELETE may have gone out although nobody was told so.

    until_served(sub { $t->get("/ops/take/$id-here") });
    $fleet->take(1, "$id-there");
    $fleet->old;

    write_file("$armed/crash", $step);

    # Both go through the queue; a tick of the other worker may be faster, and
    # die in the lease.

    until_served(sub { $t->delete("/ops/lock/$id-there") });
    until_served(sub { $t->delete("/ops/lock/$id-there") });
    $fleet->release(1, "$id-here");

    $wrong += !ok(wait_for { !$fleet->held(1, "$id-there") },
                  "step $step: the release arrives") ;
    $wrong += !ok(wait_for {
        my $r = $t->get("/ops/lock/$id-here");
        $r->status == 200 && !$r->json->{data}{locked};
    }, "step $step: the peer's is read");

    # Whoever had its turn is dead, or lives and goes on with no more of it.

    wait_for { -e "$armed/crash" ? 0 : 1 };
    my ($file) = glob "$armed/crash.*" or next;
    my ($worker) = $file =~ /\.(\d+)$/;

    unlink $file;

    wait_for { !kill 0, $worker } 1;

    if (kill 0, $worker) {

        # It may still come to its step before it is told to go.

        eval { $t->kill_worker($worker); 1 }
            or $@ =~ /^no worker/
            or die $@;

    } else {
        $deaths++;
    }

    wait_for { 2 == (() = $t->workers) };

    last if $wrong > 3;
}

cmp_ok($deaths, '>', 40, "$deaths workers died");
ok($fleet->working, 'all work in the end');
ok(wait_for { ($fleet->bus(0) || { queued => 1 })->{queued} == 0 },
   'and nothing waits');

Vibelock::Test->done;

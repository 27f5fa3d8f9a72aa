#!/usr/bin/perl

# A release that Redis does not take: what is wrong is told for as long as it
# waits, and no longer, once it was dropped.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Temp ();
use Test::More;

use Vibelock::Fleet;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for free_port);

plan skip_all => 'valgrind makes calls of the system its own'
    if $ENV{VIBELOCK_VALGRIND};

my $root = dirname(__FILE__);
my $dir = File::Temp->newdir;
my $later = File::Temp->new;

chmod 0755, $dir;
chmod 0644, $later;

system(split(' ', $ENV{CC} || 'cc'), qw(-shared -fPIC -Wall -Werror),
       "$root/preload/monotonic.c", '-o', "$dir/monotonic.so") == 0
    or BAIL_OUT('what is to be loaded before nginx does not compile');

# By so many seconds nginx's clock is ahead from then on.

sub later {
    my ($seconds) = @_;

    sysseek $later, 0, 0;
    syswrite $later, pack('i', $seconds) or die "later: $!";

    return;
}

later(0);

my $redis = Vibelock::Redis->start;
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    more     => 'timeout=10m keepalive=1h',
    nginx    => {
        workers => 1,
        env     => {
            LATER      => "$later",
            LD_PRELOAD => join(':', $ENV{VIBELOCK_PRELOAD} || (),
                               "$dir/monotonic.so"),
        },
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
ok($fleet->working, 'and of a connection with nothing to send nothing is wrong');
ok($t->log_like(qr/works again/), 'which is logged as well');

$before = $fleet->bus(0)->{reconnects};
later(65);
$fleet->old for 1 .. 5;
is($fleet->bus(0)->{reconnects}, $before, 'it stays');

Vibelock::Test->done;

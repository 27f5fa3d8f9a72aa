#!/usr/bin/perl

# With "accept_mutex on" a worker puts its events aside, runs its timers, and
# then comes to them: a connection to Redis may be gone by then.

use strict;
use warnings;

use Fcntl qw(O_NONBLOCK O_RDWR);
use POSIX qw(mkfifo);
use Test::More;
use Time::HiRes ();

use Vibelock::Fleet;
use Vibelock::Process qw(alive);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(now);

# What a reply may take, s.
use constant TIMEOUT => 2;

my $redis = Vibelock::Redis->start;

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    more     => 'keepalive=50ms timeout=' . TIMEOUT . 's',
    gateways => 1,
    http     => 'log_format stall "$request_uri";',
    server   => <<'CONF',
        location = /pid   { add_header X-Pid $pid; alias %%DIR%%/ok; }
        location = /stall { access_log %%DIR%%/stall stall; alias %%DIR%%/ok; }
CONF
);

my $t = $fleet->gateway(0);

$t->events('accept_mutex on;');

mkfifo($t->path('stall'), 0666) or die "mkfifo: $!";
sysopen my $stall, $t->path('stall'), O_RDWR|O_NONBLOCK or die "stall: $!";

$fleet->start;
ok($fleet->working, 'it works');

# The worker that has the mutex is the one that answers while the other one is
# stopped.

my ($worker, $other);

wait_for {
    $worker = $t->get('/pid')->header('X-Pid');
    ($other) = grep { $_ != $worker } $t->workers;

    kill 'STOP', $other;
    return 1 if $t->get('/pid', limit => 1)->status == 200;
    kill 'CONT', $other;

    return 0;
} or die 'no worker has the mutex';

# It asks Redis for the time, and is held up in writing a log until the answer
# is late and there.

$redis->pause;
Time::HiRes::sleep(0.3);

my $asked = now();
1 while syswrite $stall, 'x' x 4096;
my $pending = $t->async(GET => '/stall');
is($pending->response->status, 200, 'the worker writes its log');

wait_for { now() - $asked > TIMEOUT + 0.2 } TIMEOUT + 5;
$redis->resume;
Time::HiRes::sleep(0.3);

my $text = '';

ok(wait_for {
    1 while sysread $stall, $text, 65536, length $text;
    $text =~ m{/stall$};
}, 'and goes on');
ok(wait_for { $t->get('/pid')->header('X-Pid') == $worker },
   'the same worker answers');

kill 'CONT', $other;

ok($fleet->working, 'all works again');
ok(alive($worker), 'and it lives');

$fleet->take(0, 'web');
$fleet->old;
$fleet->release(0, 'web');
ok(wait_for { $fleet->bus(0)->{queued} == 0 }, 'a release goes out');

Vibelock::Test->done;

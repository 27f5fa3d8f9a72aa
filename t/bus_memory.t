#!/usr/bin/perl

# No memory for a command, in the middle of logging in: the connection is given
# up when its time is over, and made again.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Temp ();
use Test::More;

use Vibelock::Fleet;
use Vibelock::Redis;
use Vibelock::Test;

my $root = dirname(__FILE__);
my $dir = File::Temp->newdir;

chmod 0755, $dir;

system(split(' ', $ENV{CC} || 'cc'), qw(-shared -fPIC -Wall -Werror),
       "$root/preload/time.c", '-o', "$dir/time.so", '-ldl') == 0
    or BAIL_OUT('what is to be loaded before nginx does not compile');

my $redis = Vibelock::Redis->start(requirepass => 'secret');

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    more     => 'password_file=%%DIR%%/password',
    nginx    => {
        workers => 1,
        env     => {
            LD_PRELOAD => join(':', $ENV{VIBELOCK_PRELOAD} || (),
                               "$dir/time.so"),
        },
    },
);

$fleet->gateway(0)->write_file('password', 'secret');
$fleet->start;

ok($fleet->working, 'it works in the end');
ok($fleet->gateway(0)->log_like(qr/is away, it cannot \w+: no reply came/),
   'after it did not');

Vibelock::Test->done;

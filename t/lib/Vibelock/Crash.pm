package Vibelock::Crash;

# Workers that are killed at a chosen step of a change in shared memory: see
# src/ngx_http_vibelock_crash.h.
#
#   my ($module, $armed) = Vibelock::Crash::prepare();
#
#       the module that is built for this, and the directory that tells it where
#       to die: its VIBELOCK_CRASH, which nginx has to pass on. Skips the test
#       where there is no such module

use strict;
use warnings;

use Cwd ();
use File::Basename qw(dirname);
use File::Temp ();
use Test::More ();

my $root = Cwd::abs_path(dirname(__FILE__) . '/../../..');

sub prepare {
    my $module = $ENV{VIBELOCK_CRASH_MODULE}
        // "$root/build/crash/ngx_http_vibelock_module.so";

    Test::More::plan(
        skip_all => './build.sh build --crash makes the module it needs')
        unless -e $module;
    Test::More::plan(
        skip_all => 'it is the killed process that would be looked at')
        if $ENV{VIBELOCK_VALGRIND};

    my $armed = File::Temp::tempdir(CLEANUP => 1);

    chmod 0777, $armed;

    return ($module, $armed);
}

1;

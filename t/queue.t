#!/usr/bin/perl

# The queue of the bus by itself: t/queue/ is a program, compiled here with
# the queue's own source, and each of its lines is a test.
#
# VIBELOCK_LONG=1 makes it do more of everything.

use strict;
use warnings;

use Test::More;

use Vibelock::Program qw(run_program);

run_program('t/queue/queue_test.c',
            $ENV{VIBELOCK_LONG} ? 10_000_000 : 100_000);

done_testing();

#!/usr/bin/perl

# What workers share of the bus by itself: t/share/ is a program, compiled here
# with the share's own source, and each of its lines is a test.

use strict;
use warnings;

use Test::More;

use Vibelock::Program qw(run_program);

run_program('t/share/share_test.c');

done_testing();

#!/usr/bin/perl

# Which workers are there still: t/worker/ is a program, compiled here with its
# own source, and each of its lines is a test.

use strict;
use warnings;

use Test::More;

use Vibelock::Program qw(run_program);

run_program('t/worker/worker_test.c');

done_testing();

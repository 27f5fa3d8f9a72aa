#!/usr/bin/perl

# The mutex of a zone by itself: t/mutex/ is a program, compiled here with the
# mutex's own source, and each of its lines is a test.

use strict;
use warnings;

use Test::More;

use Vibelock::Program qw(run_program);

run_program('t/mutex/mutex_test.c');

done_testing();

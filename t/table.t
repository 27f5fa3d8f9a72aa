#!/usr/bin/perl

# The table of locks by itself: t/c/ is a program that plays nginx, compiled
# here with the table's own source, and each of its lines is a test.
#
# In the environment:
#
#   CC=cc                     the compiler
#   VIBELOCK_LONG=1           ten times the random operations
#   VIBELOCK_ASAN=1           with the address and undefined behaviour
#                             sanitizers, VIBELOCK_VALGRIND=1 under valgrind:
#                             both with less of everything
#   VIBELOCK_TABLE_SEED=<n>   repeats the random operations of that seed
#   VIBELOCK_TABLE_SRC=<dir>  the table's source, default src

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(basename dirname);
use Test::More;

use Vibelock::Program qw(compile_program run_lines);

my $root = abs_path(dirname(__FILE__) . '/..');
my $src = $ENV{VIBELOCK_TABLE_SRC} || "$root/src";

my $asan = $ENV{VIBELOCK_ASAN};
my $valgrind = $ENV{VIBELOCK_VALGRIND};

my %amount = (operations => 2_000_000, locks => 1_000_000, thin => 1,
              tracing => 1);

$amount{operations} *= 10 if $ENV{VIBELOCK_LONG};

%amount = (operations => 400_000, locks => 200_000, thin => 3, tracing => 0)
    if $asan;
%amount = (operations => 40_000, locks => 20_000, thin => 7, tracing => 0)
    if $valgrind;

$amount{seed} = $ENV{VIBELOCK_TABLE_SEED} if $ENV{VIBELOCK_TABLE_SEED};

# The steps at which a process may be killed are marked by calls that are not
# in a module as it is shipped: only what counts them has them.

# the table itself is taken in by whole.c

my @sources = map { 't/c/' . basename($_) } glob("\Q$root\E/t/c/*.c");

my %program = (
    plain => compile_program(@sources, src => $src, steps => 0),
    steps => compile_program(@sources, src => $src),
);

for my $part (qw(facts clock full model stepped race)) {
    subtest $part => sub { run_part('plain', $part) };
}

for my $part (qw(million crash)) {
    subtest $part => sub { run_part('steps', $part) };
}

done_testing();

sub run_part {
    my ($program, $part) = @_;

    my @run = ($program{$program}, $part, map { "$_=$amount{$_}" }
                                          sort keys %amount);

    unshift @run, qw(valgrind -q --error-exitcode=99 --leak-check=no)
        if $valgrind;

    # a lock that is never given back would be waited for without end

    run_lines(qw(timeout -s KILL 600), @run);

    return;
}

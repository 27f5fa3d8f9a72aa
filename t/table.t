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
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use Test::More;

my $root = abs_path(dirname(__FILE__) . '/..');
my $src = $ENV{VIBELOCK_TABLE_SRC} || "$root/src";
my $dir = tempdir(CLEANUP => 1);

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

my %program = (
    plain => compile('plain'),
    steps => compile('steps', '-DNGX_HTTP_VIBELOCK_CRASH=1'),
);

for my $part (qw(facts clock full model stepped race)) {
    subtest $part => sub { run_part('plain', $part) };
}

for my $part (qw(million crash)) {
    subtest $part => sub { run_part('steps', $part) };
}

done_testing();

# Against nginx's headers, as they are configured for the module.

sub compile {
    my ($name, @defines) = @_;

    my @trees = map { "$root/build/$_" } qw(plain crash asan clang static source);
    my ($tree) = grep { -e "$_/objs/ngx_auto_config.h" } @trees;

    BAIL_OUT('nginx is not configured yet: run ./build.sh build')
        unless $tree;

    my @flags = (qw(-g -O2 -Wall -Wextra -Wno-unused-parameter -Werror),
                 @defines);

    push @flags, '-fsanitize=address,undefined', '-fno-omit-frame-pointer',
                 '-fno-sanitize-recover=undefined' if $asan;

    push @flags, map { "-I$tree/$_" } qw(src/core src/event src/event/modules
                                         src/event/quic
                                         src/os/unix objs);

    # the table itself is taken in by whole.c

    my @files = (glob("\Q$root\E/t/c/*.c"),
                 map { "$src/ngx_http_vibelock_$_.c" } qw(hash crash worker));

    my @cc = split ' ', $ENV{CC} || 'cc';

    system(@cc, @flags, "-I$src", "-I$root/t/c", @files,
           '-o', "$dir/$name", '-lcrypto') == 0
        or BAIL_OUT('the test program does not compile');

    return "$dir/$name";
}

sub run_part {
    my ($program, $part) = @_;

    my @run = ($program{$program}, $part);

    unshift @run, qw(valgrind -q --error-exitcode=99 --leak-check=no)
        if $valgrind;

    # a lock that is never given back would be waited for without end

    unshift @run, qw(timeout -s KILL 600);

    my @arguments = map { "$_=$amount{$_}" } sort keys %amount;
    my $done;

    open my $out, '-|', @run, @arguments or die "@run: $!";

    while (my $line = <$out>) {
        chomp $line;

        if ($line =~ /^(not )?ok - (.*)/) {
            ok(!$1, $2);

        } elsif ($line =~ /^skip - (.*) - (.*)/) {
            SKIP: { skip "$1: $2", 1 }

        } elsif ($line eq 'done') {
            $done = 1;

        } else {
            note($line =~ s/^# //r);
        }
    }

    close $out;

    is($?, 0, "$part: the program ended well");
    ok($done, "$part: it came to its end");

    return;
}

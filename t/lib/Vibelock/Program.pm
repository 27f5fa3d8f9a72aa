package Vibelock::Program;

# A program that plays nginx to a part of src/, which it takes in: it is
# compiled here, and each of its lines is a test.
#
#   use Vibelock::Program qw(run_program);
#
#   run_program('t/queue/queue_test.c', 1000);   # with these arguments
#
# What kills it at chosen steps, and what is random, is linked with it.  With
# VIBELOCK_ASAN=1 it is compiled with the sanitizers, and by CC where that is
# set.
#
# In two steps, for one of several sources, or that something else starts:
#
#   my $program = compile_program('t/c/table_test.c', 't/c/whole.c',
#                                 steps => 0, src => 'src');
#
#   run_lines('valgrind', '-q', $program, 1000);

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(basename dirname);
use File::Temp qw(tempdir);
use Test::More;

our @EXPORT_OK = qw(compile_program run_lines run_program);

my $root = abs_path(dirname(__FILE__) . '/../../..');
my $dir = tempdir(CLEANUP => 1);
my $programs = 0;

sub run_program {
    my ($source, @arguments) = @_;

    run_lines(compile_program($source, 't/c/tap.c'), @arguments);

    return;
}

sub run_lines {
    my @command = @_;
    my $done;

    open my $out, '-|', @command or die "$command[0]: $!";

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

    is($?, 0, 'the program ended well');
    ok($done, 'it came to its end');

    return;
}

# Against nginx's headers, as they are configured for the module.  Without steps
# it has none of the calls that mark where it may be killed, as the module that
# is shipped has none.

sub compile_program {
    my (@sources, %how);

    push @sources, shift while @_ && $_[0] =~ /\.c$/;

    %how = (steps => 1, src => "$root/src", @_);

    my ($tree) = grep { -e "$_/objs/ngx_auto_config.h" }
                 map { "$root/build/$_" }
                 qw(plain crash asan clang static source);

    BAIL_OUT('nginx is not configured yet: run ./build.sh build')
        unless $tree;

    my @flags = qw(-g -O2 -Wall -Wextra -Wno-unused-parameter -Werror);

    push @flags, '-DNGX_HTTP_VIBELOCK_CRASH=1' if $how{steps};

    push @flags, '-fsanitize=address,undefined', '-fno-omit-frame-pointer',
                 '-fno-sanitize-recover=undefined' if $ENV{VIBELOCK_ASAN};

    push @flags, map { "-I$tree/$_" } qw(src/core src/event src/event/modules
                                         src/event/quic src/os/unix objs);

    my $program = "$dir/" . $programs++ . '-' . basename($sources[0], '.c');

    system(split(' ', $ENV{CC} || 'cc'), @flags, "-I$how{src}", "-I$root/t/c",
           (map { "$root/$_" } @sources),
           (map { "$how{src}/ngx_http_vibelock_$_.c" } qw(hash worker crash)),
           '-o', $program, '-lcrypto') == 0
        or BAIL_OUT('the test program does not compile');

    return $program;
}

1;

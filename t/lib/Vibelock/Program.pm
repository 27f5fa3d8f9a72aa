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

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(basename dirname);
use File::Temp qw(tempdir);
use Test::More;

our @EXPORT_OK = qw(run_program);

my $root = abs_path(dirname(__FILE__) . '/../../..');
my $dir = tempdir(CLEANUP => 1);

sub run_program {
    my ($source, @arguments) = @_;

    my $program = compile($source);
    my $done;

    open my $out, '-|', $program, @arguments or die "$program: $!";

    while (my $line = <$out>) {
        chomp $line;

        if ($line =~ /^(not )?ok - (.*)/) {
            ok(!$1, $2);

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

# Against nginx's headers, as they are configured for the module.

sub compile {
    my ($source) = @_;

    my ($tree) = grep { -e "$_/objs/ngx_auto_config.h" }
                 map { "$root/build/$_" }
                 qw(plain crash asan clang static source);

    BAIL_OUT('nginx is not configured yet: run ./build.sh build')
        unless $tree;

    my @flags = qw(-g -O2 -Wall -Wextra -Wno-unused-parameter -Werror
                   -DNGX_HTTP_VIBELOCK_CRASH=1);

    push @flags, '-fsanitize=address,undefined',
                 '-fno-sanitize-recover=undefined' if $ENV{VIBELOCK_ASAN};

    push @flags, map { "-I$tree/$_" } qw(src/core src/event src/event/modules
                                         src/event/quic src/os/unix objs);

    my $program = "$dir/" . basename($source, '.c');

    system(split(' ', $ENV{CC} || 'cc'), @flags, "-I$root/src", "-I$root/t/c",
           "$root/$source", "$root/t/c/tap.c",
           "$root/src/ngx_http_vibelock_hash.c",
           "$root/src/ngx_http_vibelock_worker.c",
           "$root/src/ngx_http_vibelock_crash.c",
           '-o', $program, '-lcrypto') == 0
        or BAIL_OUT('the test program does not compile');

    return $program;
}

1;

#!/usr/bin/perl

# The queue of the bus by itself: t/queue/ is a program, compiled here with
# the queue's own source, and each of its lines is a test.
#
# VIBELOCK_LONG=1 makes it do more of everything; VIBELOCK_ASAN=1 compiles it
# with the sanitizers.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use Test::More;

my $root = abs_path(dirname(__FILE__) . '/..');
my $dir = tempdir(CLEANUP => 1);

my ($tree) = grep { -e "$_/objs/ngx_auto_config.h" }
             map { "$root/build/$_" } qw(plain crash asan clang static source);

BAIL_OUT('nginx is not configured yet: run ./build.sh build') unless $tree;

my @flags = qw(-g -O2 -Wall -Wextra -Wno-unused-parameter -Werror
               -DNGX_HTTP_VIBELOCK_CRASH=1);

push @flags, '-fsanitize=address,undefined', '-fno-sanitize-recover=undefined'
    if $ENV{VIBELOCK_ASAN};

push @flags, map { "-I$tree/$_" } qw(src/core src/event src/event/modules
                                     src/event/quic src/os/unix objs);

system(split(' ', $ENV{CC} || 'cc'), @flags, "-I$root/src", "-I$root/t/c",
       "$root/t/queue/queue_test.c", "$root/t/c/tap.c",
       "$root/src/ngx_http_vibelock_hash.c",
       "$root/src/ngx_http_vibelock_crash.c",
       '-o', "$dir/queue_test", '-lcrypto') == 0
    or BAIL_OUT('the test program does not compile');

open my $out, '-|', "$dir/queue_test",
    $ENV{VIBELOCK_LONG} ? 10_000_000 : 100_000 or die "queue_test: $!";

my $done;

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

done_testing();

package Vibelock::Fuzz;

# A test of any bytes: libFuzzer with the address and undefined behaviour
# sanitizers.
#
#   Vibelock::Fuzz::run_test(
#       target    => 'entry',               t/fuzz/entry.c
#       sources   => ['entry', 'plain'],   src/ngx_http_vibelock_<that>.c
#       libraries => ['-ljansson'],
#       seeds     => { name => $bytes },    what it begins with
#       words     => ['"key"', 'null'],     what it puts in
#       max       => 5000,                  bytes
#   );
#
# VIBELOCK_LONG=1 makes it ten million inputs. What it found goes to
# build/fuzz/<target>/, and is tried first the next time.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

use Vibelock::Process qw(run);
use Vibelock::Util qw(write_file);

my $root = abs_path(dirname(__FILE__) . '/../../..');

sub run_test {
    my (%how) = @_;

    plan skip_all => 'no clang'
        unless grep { -x "$_/clang" } split /:/, $ENV{PATH};

    my $dir = tempdir(CLEANUP => 1);
    my $found = "$root/build/fuzz/$how{target}";

    make_path($found, "$dir/seeds");

    write_file("$dir/seeds/$_", $how{seeds}{$_}) for keys %{ $how{seeds} };
    write_file("$dir/words", join '', map {
        '"' . s/(["\\])/\\$1/gr . "\"\n"
    } @{ $how{words} });

    my ($code, $output) = compile("$dir/target", \%how);

    is($code, 0, 'it compiles') or BAIL_OUT($output);

    my $runs = $ENV{VIBELOCK_LONG} ? 10_000_000 : 100_000;

    ($code, $output) = run([
        "$dir/target", "-runs=$runs", "-max_len=$how{max}",
        "-dict=$dir/words", "-artifact_prefix=$found/", '-timeout=10',
        $found, "$dir/seeds",
    ], limit => 3600);

    is($code, 0, "$runs inputs without a report") or diag($output);
    like($output, qr/Done \d+ runs/, 'all of them were tried');

    return;
}

sub compile {
    my ($program, $how) = @_;

    my ($tree) = grep { -e "$_/objs/ngx_auto_config.h" }
                 map { "$root/build/$_" } qw(plain crash asan clang static source);

    BAIL_OUT('nginx is not configured yet: run ./build.sh build')
        unless $tree;

    return run([
        qw(clang -g -O1 -Wall -Wextra -Wno-unused-parameter -Werror),
        '-fsanitize=fuzzer,address,undefined',
        '-fno-sanitize-recover=undefined',
        (map { "-I$tree/$_" } qw(src/core src/event src/event/modules
                                 src/event/quic src/os/unix objs)),
        "-I$root/src", "$root/t/fuzz/$how->{target}.c",
        (map { "$root/src/ngx_http_vibelock_$_.c" } @{ $how->{sources} }),
        '-o', $program, @{ $how->{libraries} },
    ], limit => 120);
}

1;

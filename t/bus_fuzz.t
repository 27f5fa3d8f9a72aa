#!/usr/bin/perl

# The decoder of entries takes any bytes: libFuzzer with the address and
# undefined behaviour sanitizers.
#
# VIBELOCK_LONG=1 makes it ten million inputs.  What it found goes to
# build/fuzz/, and is tried first the next time.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

use Vibelock::Fleet qw(entry);
use Vibelock::Process qw(run);
use Vibelock::Util qw(write_file);

my $root = abs_path(dirname(__FILE__) . '/..');
my $dir = tempdir(CLEANUP => 1);
my $found = "$root/build/fuzz";

plan skip_all => 'no clang' unless grep { -x "$_/clang" } split /:/, $ENV{PATH};

my ($tree) = grep { -e "$_/objs/ngx_auto_config.h" }
             map { "$root/build/$_" } qw(plain crash asan clang static);

BAIL_OUT('nginx is not configured yet: run ./build.sh build') unless $tree;

my $sanitizers = 'fuzzer,address,undefined';

my ($code, $output) = run([
    qw(clang -g -O1 -Wall -Wextra -Wno-unused-parameter -Werror),
    "-fsanitize=$sanitizers", '-fno-sanitize-recover=undefined',
    (map { "-I$tree/$_" } qw(src/core src/event src/event/modules
                             src/event/quic src/os/unix objs)),
    "-I$root/src", "$root/t/fuzz/entry.c",
    "$root/src/ngx_http_vibelock_entry.c",
    (map { "$root/src/ngx_http_vibelock_$_.c" } qw(digest hash)),
    '-o', "$dir/entry", '-ljansson', '-lcrypto',
], limit => 120);

is($code, 0, 'it compiles') or BAIL_OUT($output);

make_path($found, "$dir/seeds");

my $whole = entry(key => 'web-1', at => 1_790_000_000_000);

write_file("$dir/seeds/whole", $whole);
write_file("$dir/seeds/version", entry(key => 'web-1', v => 2));
write_file("$dir/seeds/unknown", $whole =~ s/\{/{"new":[1,{"a":null}],/r);
write_file("$dir/seeds/escapes", $whole =~ s/web-1/\\u0000\\ud83d\\udd12\\n/r);
write_file("$dir/seeds/limit", $whole . ' ' x (4096 - length $whole));
write_file("$dir/seeds/large", $whole . ' ' x (4097 - length $whole));

write_file("$dir/words", join '', map { "\"$_\"\n" }
    qw(\"v\" \"key\" \"owner\" \"at\" \"from\" :1 null true [ ] { }));

my $runs = $ENV{VIBELOCK_LONG} ? 10_000_000 : 100_000;

($code, $output) = run([
    "$dir/entry", "-runs=$runs", '-max_len=5000', "-dict=$dir/words",
    "-artifact_prefix=$found/", '-timeout=10', $found, "$dir/seeds",
], limit => 3600);

is($code, 0, "$runs inputs without a report") or diag($output);
like($output, qr/Done \d+ runs/, 'all of them were tried');

done_testing();

#!/usr/bin/perl

# The benchmark works: every request that it measures is answered as it should
# be, and every row has its figures. They mean nothing here.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Test::More;

use Vibelock::Process qw(run);

plan skip_all => 'it measures the module as it is built for use'
    if $ENV{VIBELOCK_ASAN} || $ENV{VIBELOCK_VALGRIND} || $ENV{VIBELOCK_NGINX};

my $bench = abs_path(dirname(__FILE__) . '/bench');

my ($code, $output) = run(
    [$^X, "$bench/bench.pl", '--smoke',
     map { "--part=$_" } qw(requests growth held bus)],
    limit => 60,
);

is($code, 0, 'it ends well') or diag $output;

my @rows = grep { !/^\| (what |--)/ } $output =~ /^(\|.*\|)$/mg;

cmp_ok(scalar @rows, '>=', 11, 'it has its rows') or diag $output;

for my $row (@rows) {
    my ($what, $alternative, $vibelock) = split /\s*\|\s*/, substr $row, 2;

    like($vibelock, qr/^(-?[\d.,]+ |not measured: no )/, $what);
}

my ($usage) = run([$^X, "$bench/bench.pl", '--nonsense']);
isnt($usage, 0, 'an unknown option is refused');

done_testing();

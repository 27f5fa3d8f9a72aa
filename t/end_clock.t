#!/usr/bin/perl

# Time is the monotonic clock's: a wall clock that is set frees nothing and
# extends nothing.  TTLs from a second to 30 days.

use strict;
use warnings;

use Test::More;
use Time::Local qw(timegm);

use Vibelock::Ends qw(lock_of lock_at gate);
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(limit now write_file);

my ($faketime) = glob '/usr/lib/*/faketime/libfaketime.so.1';

plan(skip_all => 'faketime is not installed') unless $faketime;
plan(skip_all => 'valgrind and faketime do not go together')
    if $ENV{VIBELOCK_VALGRIND};
plan(skip_all => 'nor does a library that has to be loaded before all others')
    if $ENV{VIBELOCK_PRELOAD};

my $dir = File::Temp::tempdir(CLEANUP => 1);
my $ttl = limit(3);

chmod 0755, $dir;

# What the wall clock is to show, from now on.

sub set_clock { write_file("$dir/clock", "$_[0]\n") }

set_clock('+0');

my $t = Vibelock::Test->new(
    workers => 2,
    env => {
        LD_PRELOAD                   => $faketime,
        FAKETIME_TIMESTAMP_FILE      => "$dir/clock",
        FAKETIME_NO_CACHE            => 1,
        FAKETIME_DONT_FAKE_MONOTONIC => 1,
        DONT_FAKE_MONOTONIC          => 1,
    },
);

my %ttls = (
    '1s' => 1, '2s' => 2, '90s' => 90, '15m' => 900, '1h' => 3600,
    '24d' => 24 * 86400, '25d' => 25 * 86400, '30d' => 30 * 86400,
);

$t->main(join '', map { "env $_;\n" } qw(FAKETIME_TIMESTAMP_FILE
    FAKETIME_NO_CACHE FAKETIME_DONT_FAKE_MONOTONIC DONT_FAKE_MONOTONIC));
$t->set(TTL => $ttl);
$t->http(gate(sweep => '1s'));
$t->server(join "\n", 'vibelock exec zone=z; vibelock_keep 1;',
    'location /short { vibelock_ttl %%TTL%%s; empty_gif; }',
    'location /long { vibelock_ttl 1h; empty_gif; }',
    'location /body { vibelock_ttl json=timeout add=90s max=29d; empty_gif; }',
    map { "location /ttl/$_ { vibelock_ttl $_; empty_gif; }" } keys %ttls);
$t->start;

sub take {
    my ($uri, %how) = @_;

    my $r = $t->get($uri, %how);
    is($r->status, 200, "$uri: taken");

    return;
}

# How far nginx's wall clock is from ours, by its Date, in hours.

sub hours {
    my $date = $t->get('/short?id=clock')->header('Date');
    my %month = map { (qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec))[$_]
                      => $_ } 0 .. 11;
    my ($d, $m, $y, @t) = $date =~ /(\d+) (\w+) (\d+) (\d+):(\d+):(\d+)/;
    my $ahead = timegm(reverse(@t), $d, $month{$m}, $y) - time;

    return sprintf '%.0f', $ahead / 3600;
}

# TTL, age and rest: to the millisecond where nothing sets the clock.

for my $name (sort { $ttls{$a} <=> $ttls{$b} } keys %ttls) {
    take("/ttl/$name?id=$name");
    my $lock = lock_at($t, $name);
    is($lock->{ageMs} + $lock->{expiresInMs}, 1000 * $ttls{$name},
       "$name: age and rest are the TTL");
}

for my $timeout (1, 0.5, 60, 3600, 29 * 86400) {
    take("/body?id=b$timeout", json => { timeout => $timeout });
    my $lock = lock_at($t, "b$timeout");
    is($lock->{ageMs} + $lock->{expiresInMs}, 1000 * ($timeout + 90),
       "timeout $timeout");
}

# The clock is set.

for my $set (['-3600', -1, 'back'], ['+3600', 1, 'forward']) {
    my ($to, $hours, $name) = @$set;

    set_clock('+0');
    ok(wait_for { hours() == 0 }, 'the right time');

    my $start = now();
    take("/short?id=short$name");
    take("/long?id=long$name");

    set_clock($to);
    ok(wait_for { hours() == $hours }, "an hour $name");

    my ($short, $long) = map { lock_at($t, "$_$name") } qw(short long);
    my $passed = now() - $start;

    cmp_ok($long->{ageMs}, '<=', 1000 * $passed + 50, 'no older than it is');
    is($long->{ageMs} + $long->{expiresInMs}, 3600_000, 'its rest is right');
    is($short->{ageMs} + $short->{expiresInMs}, 1000 * $ttl,
       'that of a short one too') if $short->{locked};

    ok(wait_for { lock_of($t, "short$name") eq 'free' }, 'the short one goes');
    my $took = now() - $start;
    cmp_ok($took, '>=', $ttl - 0.1, 'not before its time');
    cmp_ok($took, '<', $ttl + limit(2), 'nor long after');
    is(lock_of($t, "long$name"), 'stuck', 'the long one stays');
}

$t->done;

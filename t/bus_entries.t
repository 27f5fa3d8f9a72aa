#!/usr/bin/perl

# Entries of a stream that come from elsewhere: whatever they are, they are
# counted, logged once a minute, and skipped.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);

my $redis = Vibelock::Redis->start;
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    zones    => 2,
    # A megabyte takes its time on a slow machine.
    more     => 'timeout=2s',
);

$fleet->start;
ok($fleet->working, 'the gateway reads and publishes');

my $t = $fleet->gateway(0);

sub add { return $redis->cmd('XADD', stream('ops'), '*', @_) }

# Each is skipped for its reason, and a good one behind it is read.

sub skipped {
    my ($reason, $name, @fields) = @_;

    my $before = $fleet->bus(0);

    $fleet->take(0, 'good');
    $fleet->old;

    add(@fields);
    add(release => entry(key => 'good', at => redis_ms($redis)));

    ok($fleet->freed(0, 'good'), "$name: the next one is read");

    my $after = $fleet->bus(0);

    is($after->{skipped}{$reason}, $before->{skipped}{$reason} + 1,
       "$name: counted as $reason");
    is($after->{received}, $before->{received} + 2, "$name: and as received");

    return;
}

my $whole = entry(key => 'k');

my @malformed = (
    ['no JSON',            'release'],
    ['nothing',            ''],
    ['half of it',         substr $whole, 0, length($whole) / 2],
    ['more behind it',     "$whole {}"],
    ['a list',             "[$whole]"],
    ['a number',           '1'],
    ['null',               'null'],
    ['deep nesting',       '[' x 4000],
    ['deep objects',       '{"v":' x 700],
    ['binary',             join '', map { chr } 0 .. 255],
    ['no UTF-8',           entry(key => 'KEY') =~ s/KEY/\xff\xfe/r],
    ['half a surrogate',   entry(key => 'KEY') =~ s/KEY/\\ud800/r],
    ['two keys',           $whole =~ s/\{/{"key":"x",/r],
    ['no v',               entry(key => 'k', v => undef)],
    ['v as a text',        entry(key => 'k', v => '1x') ],
    ['v with a fraction',  entry(key => 'k', v => 1.5)],
    ['no key',             entry()],
    ['an empty key',       entry(key => '')],
    ['a key of 256 bytes', entry(key => 'x' x 256)],
    ['a key that is none', entry(key => ['k'])],
    ['no owner',           $whole =~ s/"owner":"\w+",//r],
    ['an empty owner',     $whole =~ s/"owner":"\w+"/"owner":""/r],
    ['an owner not hex',   $whole =~ s/"owner":"../"owner":"zz/r],
    ['a short owner',      $whole =~ s/"owner":"./"owner":"/r],
    ['a long owner',       $whole =~ s/"owner":"/"owner":"0/r],
    ['an owner of null',   $whole =~ s/"owner":"\w+"/"owner":null/r],
    ['no at',              entry(key => 'k', at => undef)],
    ['at as a text',       entry(key => 'k', at => 'now')],
    ['at below 0',         entry(key => 'k', at => -1)],
    ['at with a fraction', entry(key => 'k', at => 1.5)],
    ['at too large',       $whole =~ s/"at":\d+/"at":99999999999999999999/r],
    ['no from',            entry(key => 'k', from => undef)],
    ['an empty from',      entry(key => 'k', from => '')],
    ['a long from',        entry(key => 'k', from => 'x' x 256)],
);

subtest 'malformed' => sub {
    skipped('malformed', $_->[0], release => $_->[1]) for @malformed;
    skipped('malformed', 'another field', other => $whole);
};

subtest 'of another version' => sub {
    skipped('version', 'two', release => entry(key => 'k', v => 2));
    skipped('version', 'zero', release => entry(key => 'k', v => 0));
    skipped('version', 'below', release => entry(key => 'k', v => -1));
    skipped('version', 'and nothing else', release => '{"v":2}');
};

subtest 'too large' => sub {
    skipped('tooLarge', '4097 bytes',
            release => $whole . ' ' x (4097 - length $whole));
    skipped('tooLarge', 'a megabyte', release => '[' x 1_048_576);
    skipped('tooLarge', 'a megabyte with a key',
            release => entry(key => 'x' x 1_048_576));
};

subtest 'its own, as it does not write them' => sub {
    $fleet->release(0, 'k');
    ok(wait_for { $fleet->bus(0)->{published} }, 'it has written one');

    my $own = $redis->cmd('XREVRANGE', stream('ops'), '+', '-',
                          'COUNT', 1)->[0][1][1];

    skipped('own', 'with a blank', release => $own =~ s/\}$/ }/r);
    skipped('own', 'with a member', release => $own =~ s/\}$/,"new":1}/r);
    skipped('tooLarge', 'of 4097 bytes',
            release => ' ' x (4097 - length $own) . $own);
};

subtest 'good ones' => sub {
    for my $case (
        ['4096 bytes',      sub { $_[0] . ' ' x (4096 - length $_[0]) }],
        ['another member',  sub { $_[0] =~ s/\{/{"new":{"a":[1,null]},/r }],
        ['other order',     sub { $_[0] =~ s/"v":1,?//r =~ s/,?\}/,"v":1}/r }],
        ['blanks',          sub { $_[0] =~ s/,/ ,\n\t/gr }],
        ['owner in capitals',
         sub { $_[0] =~ s/"owner":"(\w+)"/'"owner":"' . uc($1) . '"'/er }],
    ) {
        my ($name, $change) = @$case;

        $fleet->take(0, 'fine');
        $fleet->old;
        add(release => $change->(entry(key => 'fine',
                                       at => redis_ms($redis))));
        ok($fleet->freed(0, 'fine'), $name);
    }

    $fleet->take(0, 'fine');
    $fleet->old;
    add(trace => 'x', release => entry(key => 'fine', at => redis_ms($redis)),
        release => 'second');
    ok($fleet->freed(0, 'fine'), 'other fields beside it');
};

subtest 'each reason is logged once' => sub {
    my $log = $t->error_log;

    for my $why ('it is malformed', 'it is of another version',
                 'it is over 4 kB')
    {
        my @lines = grep { /vibelock: entry \d+-\d+ of "\S+" is skipped: $why/ }
                    split /\n/, $log;
        is(scalar @lines, 1, $why);
    }
};

# By a sample of before the clock of Redis was set forward, a release is later
# than it was.  But it was: a lock that was just taken is a next operation's.

subtest 'an entry of less than a second ahead' => sub {
    my ($key, $took);

    for my $try (1 .. 50) {
        $key = "next-$try";

        my $before = $fleet->bus(0)->{received};
        my $start = time;

        $fleet->take(0, $key);

        my $at = redis_ms($redis) + 800;

        $redis->cmd('XADD', stream('ops'), "$at-0", 'release',
                    entry(key => $key, at => $at));
        wait_for { $fleet->bus(0)->{received} > $before };

        $took = time - $start;
        last if $took < 0.045;
    }

    plan skip_all => 'too slow here' if $took >= 0.045;

    ok($fleet->held(0, $key), 'leaves a lock that was just taken');
    done_testing;
};

# Of when the clock of Redis was ahead: every zone that is made before that
# moment reads it, whatever was locked since.

subtest 'an entry of a moment that is still to come' => sub {
    my $ahead = redis_ms($redis) + 3600_000;

    $fleet->take(0, 'ahead');
    $fleet->old;

    my $before = $fleet->bus(0)->{skipped}{young};

    $redis->cmd('XADD', stream('ops'), "$ahead-0", 'release',
                entry(key => 'ahead', at => $ahead));
    ok(wait_for { $fleet->bus(0)->{skipped}{young} == $before + 1 }, 'is read');
    ok($fleet->held(0, 'ahead'), 'and leaves the lock');

    # The ids go on from there, and do not matter.

    $redis->cmd('XADD', stream('ops'), '*', 'release',
                entry(key => 'ahead', at => redis_ms($redis)));
    ok($fleet->freed(0, 'ahead'), 'one of now behind it frees');
};

# An id is what somebody says.

subtest 'an id beyond any clock' => sub {
    my $id = '18446744073709551614-1';

    $redis->cmd('XADD', stream('ops'), $id, 'release', entry(key => 'none'));
    ok(wait_for { $fleet->bus(0)->{lastId} eq $id }, 'is read');
    is($fleet->bus(0)->{lagMs}, 0, 'and is not late');

    $fleet->take(0, 'beyond');
    $fleet->old;
    $redis->cmd('XADD', stream('ops'), '*', 'release',
                entry(key => 'beyond', at => redis_ms($redis)));
    ok($fleet->freed(0, 'beyond'), 'nor is what follows it left out');
};

subtest 'a stream of the wrong type' => sub {
    $redis->cmd('DEL', stream('ops'));
    $redis->cmd('SET', stream('ops'), 'something');

    ok($t->log_like(qr/bus of zone "ops" is away, it cannot read: the key of/),
       'logged');
    is($fleet->bus(0)->{reading}, 'wrongtype', 'and seen');

    $fleet->release(0, 'kept');
    ok(wait_for { $fleet->bus(0)->{publishing} eq 'wrongtype' },
       'nothing can be published');
    is($fleet->bus(0)->{queued}, 1, 'it waits');

    # Another zone does not mind.

    $fleet->take(0, 'two', zone => 'two');
    $fleet->old;
    $redis->cmd('XADD', stream('two'), '*', 'release',
                entry(key => 'two', at => redis_ms($redis)));
    ok($fleet->freed(0, 'two', zone => 'two'), 'another zone is read');
    $fleet->release(0, 'two', zone => 'two');
    ok(wait_for { $fleet->bus(0, 'two')->{published} == 1 }, 'and published');

    my $lines = () = $t->error_log =~ /the key of the stream/g;
    is($lines, 1, 'one line in the log');

    $redis->cmd('DEL', stream('ops'));
    ok($fleet->working, 'it works again');
    ok(wait_for { $redis->cmd('XLEN', stream('ops')) == 1 },
       'what waited was sent');
    ok($t->log_like(qr/bus of zone "ops" works again/), 'and that is logged');
};

# The longest one there is, in every zone: nothing can follow it until somebody
# begins the stream anew.

subtest 'the last id there can be' => sub {
    my $id = '18446744073709551615-18446744073709551615';

    for my $zone (qw(ops two)) {
        $redis->cmd('XADD', stream($zone), $id, 'release',
                    entry(key => 'none'));
        ok(wait_for { $fleet->bus(0, $zone)->{lastId} eq $id },
           "$zone: is read");
    }

    $redis->cmd('DEL', stream('ops'), stream('two'));
    $redis->cmd('CLIENT', 'KILL', 'TYPE', 'normal');

    for my $zone (qw(ops two)) {
        ok(wait_for { $fleet->bus(0, $zone)->{lastId} eq '0-0' },
           "$zone: is read from its start");

        $fleet->take(0, 'anew', zone => $zone);
        $fleet->old;
        $redis->cmd('XADD', stream($zone), '*', 'release',
                    entry(key => 'anew', at => redis_ms($redis)));
        ok($fleet->freed(0, 'anew', zone => $zone), "$zone: and releases");
    }
};

my $bus = $fleet->bus(0);
my $skipped = 0;
$skipped += $_ for values %{ $bus->{skipped} };
is($bus->{received}, $bus->{applied} + $skipped, 'the counters add up');

Vibelock::Test->done;

#!/usr/bin/perl

# A release of a server's owner breaks its lock whoever took that, where the
# registry of the replica knows whose the server is.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Test::More;

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);

my $redis = Vibelock::Redis->start;
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    http     => 'vibelock_registry %%DIR%%/registry.json;',
);

my $digest = sha256_hex('key');

$fleet->gateway(0)->write_file('registry.json', <<"JSON");
{"version":1,
 "keys":[{"id":"k1","type":"api","sha256":"$digest"}],
 "servers":[{"id":"web","key":"k1","kind":"STANDALONE"},
            {"id":"gone","key":"k1","kind":"STANDALONE","deleted":true}]}
JSON

$fleet->start;
ok($fleet->working, 'it works');

sub release {
    my ($key, $owner) = @_;

    my $before = $fleet->bus(0)->{received};

    $fleet->old;
    $redis->cmd('XADD', stream('ops'), '*', 'release',
                entry(key => $key, owner => $owner, at => redis_ms($redis)));

    return wait_for { $fleet->bus(0)->{received} > $before };
}

# The locks are bob's.

for my $key ('web', 'gone') {
    $fleet->take(0, $key, owner => 'bob');

    release($key, 'k2');
    ok($fleet->held(0, $key, owner => 'bob'), "$key: not by a stranger");

    release($key, 'k1');
    ok($fleet->freed(0, $key, owner => 'bob'), "$key: by whose the server is");

    $fleet->take(0, $key, owner => 'bob');
    release($key, 'bob');
    ok($fleet->freed(0, $key, owner => 'bob'), "$key: and by who locked it");
}

$fleet->take(0, 'unknown', owner => 'bob');
release('unknown', 'k1');
ok($fleet->held(0, 'unknown', owner => 'bob'),
   'a server that is not in the registry is nobody else\'s');

is($fleet->bus(0)->{skipped}{otherOwner}, 3, 'counted as of another owner');

Vibelock::Test->done;

#!/usr/bin/perl

# vibelock_retry_after: when a client is asked to come back.

use strict;
use warnings;

use Test::More;

use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_keep 1;
EOC

# Locations take locks with one TTL, and say busy with one bound each.

my %ttl = (long => '1h', ten => '10s', half => '500ms');
my %most = (default => '', one => '1s', two => '2s', hour => '1h',
            ms => '300ms', odd => '2500ms', seven => '7s');

$t->server(join "\n",
    (map { "location /ttl/$_ {
                vibelock exec zone=ops; vibelock_ttl $ttl{$_};
                proxy_pass http://127.0.0.1:%%UPSTREAM%%;
            }" } keys %ttl),
    (map { "location /$_ {
                vibelock exec zone=ops;
                @{[ $most{$_} && qq(vibelock_retry_after $most{$_};) ]}
                proxy_pass http://127.0.0.1:%%UPSTREAM%%;
            }" } keys %most),
    'location /overrun {
         vibelock exec zone=ops; vibelock_ttl 1ms; vibelock_overrun on;
         proxy_pass http://127.0.0.1:%%UPSTREAM%%;
     }');
$t->start;

# What was asked for in so many answers: { seconds => times }.

sub asked {
    my ($uri, $times) = @_;

    my %asked;

    for (1 .. $times) {
        my $r = $t->post($uri);
        return { $r->describe => 1 } if $r->status !~ /^(?:409|503)$/;
        my $after = $r->header('Retry-After');
        return { 'no mirror' => 1 }
            if $r->json->{error}{retryAfter} ne $after;
        $asked{$after}++;
    }

    return \%asked;
}

sub values_are {
    my ($uri, $expected, $name) = @_;

    # In 60 answers, one value of six is missing once in 10,000 runs; who is
    # unlucky asks again.
    my $asked = asked($uri, 60);

    wait_for {
        $asked = { %$asked, %{ asked($uri, 60) } };
        keys %$asked >= @$expected;
    } 5 if keys %$asked < @$expected;

    return is_deeply([sort { $a <=> $b } keys %$asked], $expected, $name);
}

is($t->post('/ttl/long?id=1')->status, 200, 'a lock of an hour');

values_are('/default?id=1', [3, 4, 5], 'default 5s: 3 to 5, since 2.5 is none');
values_are('/one?id=1', [1], '1s: 1');
values_are('/two?id=1', [1, 2], '2s: 1 and 2');
values_are('/seven?id=1', [4, 5, 6, 7], '7s: 4 to 7');
values_are('/ms?id=1', [1], '300ms: 1 s at least');
values_are('/odd?id=1', [2], '2500ms: 2, the one whole number there is');

subtest 'an hour' => sub {
    my @asked = sort { $a <=> $b } keys %{ asked('/hour?id=1', 60) };

    cmp_ok($asked[0], '>=', 1790, 'at least half the rest of the TTL');
    cmp_ok($asked[-1], '<=', 3600, 'at most the bound');
    cmp_ok(scalar @asked, '>', 20, 'clients do not come back in step');
};

subtest 'the rest of the TTL is the bound, where it is shorter' => sub {
    $t->post('/ttl/ten?id=2');
    my @asked = sort { $a <=> $b } keys %{ asked('/hour?id=2', 30) };

    cmp_ok($asked[0], '>=', 1, 'not 0');
    cmp_ok($asked[-1], '<=', 10, 'not past the TTL');
    cmp_ok(scalar @asked, '>', 1, 'not always the same');
};

subtest 'the last second of a TTL' => sub {

    # Answers may come too late on a busy machine: then the lock is tried again.
    my $r = wait_for {
        $t->post('/ttl/half?id=3');
        my $r = $t->post('/hour?id=3');
        $r->status == 409 && $r;
    };

    is($r->header('Retry-After'), 1, '1 s at least');
};

subtest 'past the TTL of a lock that runs on' => sub {
    my $pending = $t->async(POST => '/overrun?id=4',
                            headers => { 'X-Upstream' => 'park/over' });
    ok(wait_for {
        my $r = $t->post('/default?id=4');
        $r->status == 409 && $r->json->{error}{expiresInMs} == 0;
    }, 'it is past its TTL');
    values_are('/default?id=4', [3, 4, 5], 'the bound alone counts');
    $up->release('over');
    $pending->response;
};

$t->done;

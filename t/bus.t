#!/usr/bin/perl

# One release, every replica: what a DELETE on one gateway does on the others,
# and what it must not do.

use strict;
use warnings;
use utf8;

use Encode qw(decode);
use Digest::SHA qw(sha256_hex);
use JSON::PP ();
use Test::More;

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $reset = Vibelock::Upstream->new;
my $redis = Vibelock::Redis->start;
my $url = 'redis://127.0.0.1:' . $redis->port;

# The first two go by the name of their host, as replicas in containers may.

my $fleet = Vibelock::Fleet->new(
    redis => $url,
    more  => ['', '', 'replica=third'],
    zones => 2,
    server => <<'CONF' =~ s/RESET/$reset->port/er,
        location ~ ^/ops/unstick/(?<id>.+)$ {
            vibelock_server_kind STANDALONE;
            vibelock_unstick zone=ops;
        }
        location ~ ^/ops/reset/(?<id>.+)$ {
            vibelock_server_kind STANDALONE;
            vibelock_unstick zone=ops;
            proxy_pass http://127.0.0.1:RESET;
        }
CONF
);

$fleet->start;
ok($fleet->working, 'all gateways read and publish');

sub entries {
    my $name = stream($_[0] // 'ops');

    return map { { id => $_->[0], text => $_->[1][1],
                   %{ JSON::PP->new->utf8->decode($_->[1][1]) } } }
           @{ $redis->cmd('XRANGE', $name, '-', '+') };
}

# Waits until every gateway has read all there is.

sub all_read {
    my ($last) = @{ $redis->cmd('XREVRANGE', stream('ops'), '+', '-',
                                'COUNT', 1) };

    return wait_for {
        !grep { $fleet->bus($_)->{lastId} ne $last->[0] } 0 .. 2;
    };
}

subtest 'a release on any frees on all' => sub {
    for my $n (0 .. 2) {
        my $id = "any-$n";

        $fleet->take($_, $id) for 0 .. 2;
        $fleet->old;

        is($fleet->exec($_, $id), 409, "held on $_") for 0 .. 2;

        my $data = $fleet->release($n, $id)->json->{data};

        ok($data->{released}, "released on $n");
        ok($fleet->freed($_, $id), "free on $_") for 0 .. 2;
        is($fleet->exec($_, $id), 200, "and can be taken on $_") for 0 .. 2;
    }
};

subtest 'a release where no lock is goes out too' => sub {
    $fleet->take(2, 'far');
    $fleet->old;

    my $data = $fleet->release(0, 'far')->json->{data};

    ok(!$data->{released}, 'nothing here');
    ok($data->{broadcast}, 'and broadcast');
    ok($fleet->freed(2, 'far'), 'free there');
    ok($fleet->gateway(2)->log_like(
        qr/lock is broken: by the bus, zone "ops", key "far"/), 'and logged');
};

subtest 'unstick goes out as well' => sub {
    $fleet->take(1, 'stuck');
    $fleet->old;

    is($fleet->gateway(0)->post('/ops/unstick/stuck')->status, 200);
    ok($fleet->freed(1, 'stuck'), 'free there');
};

subtest 'unstick breaks what was held when it came' => sub {
    $fleet->take(1, $_) for 'reset-old', 'reset-stays';
    $fleet->old;

    my $pending = $fleet->gateway(0)->async(POST => '/ops/reset/reset-old');
    my $other = $fleet->gateway(0)->async(POST => '/ops/reset/reset-new');
    my @x = map { $reset->accept_request } 1, 2;

    $fleet->take(2, 'reset-new');
    $fleet->old;
    $_->respond(200, {}, 'reset') for @x;
    is($_->response->status, 200, 'answered') for $pending, $other;

    ok($fleet->freed(1, 'reset-old'), 'on any replica');
    is($fleet->exec(1, 'reset-stays'), 409, 'and nothing else');
    ok(all_read(), 'all was read');
    is($fleet->exec(2, 'reset-new'), 409, 'nor what was taken since');
};

subtest 'the form of an entry' => sub {
    my %before = map { $_->{id} => 1 } entries();

    my $start = redis_ms($redis);
    $fleet->release(0, 'form', owner => 'eve');
    ok(wait_for { entries() > keys %before }, 'there is one');
    my $end = redis_ms($redis);

    my ($e) = grep { !$before{ $_->{id} } } entries();
    my $hex = sha256_hex('eve');

    like($e->{text}, qr/^\{"v":1,"key":"form","owner":"$hex","at":\d+,
                         "from":"[^"]+-[0-9a-f]{16}"\}\z/x, 'its members');
    cmp_ok($e->{at}, '>=', $start - 50, 'at is not before the DELETE');
    cmp_ok($e->{at}, '<=', $end + 50, 'nor after it');

    $before{ $e->{id} } = 1;
    $fleet->release(2, 'form');
    ok(wait_for { entries() > keys %before }, 'there is another');

    ($e) = grep { !$before{ $_->{id} } } entries();
    like($e->{from}, qr/^third-[0-9a-f]{16}\z/, 'replica= names it');
};

subtest 'two replicas of one name are two' => sub {
    my %from;
    $from{ $_->{from} }++ for entries();

    is(scalar(grep { !/^third-/ } keys %from), 2, 'by what follows the name');
};

subtest 'only the owner\'s lock is freed' => sub {
    $fleet->take(0, 'whose', owner => 'bob');
    $fleet->old;

    my $before = $fleet->bus(0)->{skipped}{otherOwner};

    $fleet->release(1, 'whose', owner => 'eve');
    ok(wait_for { $fleet->bus(0)->{skipped}{otherOwner} > $before },
       'another\'s release was read');
    ok($fleet->held(0, 'whose', owner => 'bob'), 'and changed nothing');

    $fleet->release(1, 'whose', owner => 'bob');
    ok($fleet->freed(0, 'whose', owner => 'bob'), 'the owner\'s frees it');
};

subtest 'a lock younger than the release is left' => sub {
    my $at = redis_ms($redis) - 5000;
    my $before = $fleet->bus(0)->{skipped}{young};

    $fleet->take(0, 'young');
    $fleet->old;

    $redis->cmd('XADD', stream('ops'), '*', 'release',
                entry(key => 'young', at => $at));
    ok(wait_for { $fleet->bus(0)->{skipped}{young} == $before + 1 },
       'a release of five seconds ago was read');
    ok($fleet->held(0, 'young'), 'and left it');

    # What is read is what counts, not when it is read; "at" cannot be later
    # than the entry.

    my $id = redis_ms($redis);
    my $ahead = $id + 3600_000;

    $redis->cmd('XADD', stream('ops'), '*', 'release',
                entry(key => 'young', at => $ahead));
    ok($fleet->freed(0, 'young'), 'one of now frees it');

    $fleet->take(0, 'young');
    $redis->cmd('XADD', stream('ops'), '*', 'release',
                entry(key => 'young', at => $ahead));
    ok(wait_for { $fleet->bus(0)->{skipped}{young} == $before + 2 },
       'one from the future was read');
    ok($fleet->held(0, 'young'), 'and is of when it came');
    $fleet->old;
    $fleet->release(0, 'young');
};

subtest 'an entry that comes twice frees once' => sub {
    $fleet->take(0, 'twice');
    $fleet->old;

    my $text = entry(key => 'twice', at => redis_ms($redis));

    $redis->cmd('XADD', stream('ops'), '*', 'release', $text);
    ok($fleet->freed(0, 'twice'), 'freed');

    my $before = $fleet->bus(0)->{skipped}{young};

    $fleet->old;
    $fleet->take(0, 'twice');
    $fleet->old;
    $redis->cmd('XADD', stream('ops'), '*', 'release', $text);
    ok(wait_for { $fleet->bus(0)->{skipped}{young} > $before }, 'read again');
    ok($fleet->held(0, 'twice'), 'the next operation keeps its lock');
};

subtest 'a replica\'s own entries change nothing' => sub {
    my $before = $fleet->bus(0)->{skipped}{own};

    $fleet->release(0, 'mine');
    ok(wait_for { $fleet->bus(0)->{skipped}{own} > $before }, 'seen as own');
    $fleet->take(0, 'mine');
    $fleet->old;

    my ($own) = grep { $_->{key} eq 'mine' } entries();

    $redis->cmd('XADD', stream('ops'), '*', 'release',
                entry(key => 'mine', from => $own->{from},
                      at => redis_ms($redis)));
    ok(wait_for { $fleet->bus(0)->{skipped}{own} > $before + 1 }, 'again');
    ok($fleet->held(0, 'mine'), 'the lock is there');
};

subtest 'zones do not mix' => sub {
    $fleet->take(0, 'both');
    $fleet->take(0, 'both', zone => 'two');
    $fleet->old;

    $fleet->release(1, 'both', zone => 'two');
    ok($fleet->freed(0, 'both', zone => 'two'), 'freed in one');
    ok($fleet->held(0, 'both'), 'held in the other');
    is(scalar(entries('two')), 1, 'which has a stream of its own');
};

subtest 'keys of every kind' => sub {
    my @keys = ('%22quoted%5C%22', '%C3%A4%E2%82%AC%F0%9F%94%92', '%01%1F%7F',
                'x' x 255, '%2523', 'a%0D%0Ab', '%F4%8F%BF%BF', '%7B%7D%5B%5D',
                '%F0%9F%94%92' x 63);

    $fleet->take(0, $_) for @keys;
    $fleet->old;
    $fleet->release(1, $_) for @keys;
    ok($fleet->freed(0, $_), "freed: $_") for @keys;
};

subtest 'repeats are merged' => sub {
    my $count = sub { scalar grep { $_->{key} eq 'again' } entries() };

    my $merged = $fleet->bus(1)->{merged};

    for my $round (1 .. 50) {
        $fleet->release(1, 'again');
    }

    ok(wait_for { $count->() >= 2 }, 'the last one goes out in the end');

    # Nothing is left to come: it rests, or is gone.
    ok(wait_for { $fleet->bus(1)->{queued} == 0 }, 'and nothing waits');
    cmp_ok($count->(), '<=', 4, 'of fifty, a few');
    cmp_ok($fleet->bus(1)->{merged}, '>=', $merged + 46, 'merged is counted');

    # It is the last that counts: a lock taken between the first and the last
    # of them is freed.

    $fleet->release(1, 'between');
    $fleet->take(0, 'between');
    $fleet->old;
    $fleet->release(1, 'between');
    ok($fleet->freed(0, 'between'), 'freed by the second of two');
};

subtest 'the stream is capped' => sub {
    my $pipe = $redis->client;

    for my $round (1 .. 30) {
        $pipe->send('XADD', stream('ops'), '*', 'release', "{$_}")
            for 1 .. 500;
        $pipe->read_reply for 1 .. 500;
    }

    $fleet->release(0, 'cap');
    ok(wait_for { $redis->cmd('XLEN', stream('ops')) < 10_300 },
       'near 10,000 entries');
    ok(all_read(), 'and all gateways read on');

    $fleet->take(0, 'cap2');
    $fleet->old;
    $fleet->release(2, 'cap2');
    ok($fleet->freed(0, 'cap2'), 'which still works');
};

subtest 'another prefix never meets this one' => sub {
    my $other = Vibelock::Fleet->new(redis => $url, gateways => 2,
                                     more => 'prefix=staging:');
    $other->start;
    ok($other->working, 'works');

    $fleet->take(0, 'prefix');
    $other->take(0, 'prefix');
    $fleet->old;

    $other->release(1, 'prefix');
    ok($other->freed(0, 'prefix'), 'freed there');
    ok($fleet->held(0, 'prefix'), 'held here');
    is($redis->cmd('XLEN', 'staging:ops:releases'), 1, 'its own stream');
};

Vibelock::Test->done;

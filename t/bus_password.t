#!/usr/bin/perl

# A new password, by reload: what a worker that leaves says of the old one is
# not what is told of the bus.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $redis = Vibelock::Redis->start;
my $up = Vibelock::Upstream->new;

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    more     => 'password_file=%%DIR%%/password',
    server   => 'location /long { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }',
);

my $t = $fleet->gateway(0);

sub password {
    my ($new) = @_;

    $redis->client(password => $new->[0])
        ->cmd('CONFIG', 'SET', 'requirepass', $new->[1]);

    return $redis->client(password => $new->[1]);
}

# Logins that Redis refused, up to now.

sub refused {
    my ($client) = @_;

    my $n = 0;

    for my $entry (map { +{ @$_ } } @{ $client->cmd('ACL', 'LOG') }) {
        $n += $entry->{count} if $entry->{reason} eq 'auth';
    }

    return $n;
}

$t->set(UPSTREAM => $up->port);
$t->write_file('password', 'one');
$redis->cmd('CONFIG', 'SET', 'requirepass', 'one');
$fleet->start;
ok($fleet->working, 'it works');

# A worker that will not have left for a while.

my $pending = $t->async(GET => '/long');
my $x = $up->accept_request;

my $client = password(['one', 'two']);

$client->cmd('CLIENT', 'KILL', 'TYPE', 'normal');
ok(wait_for { $fleet->bus(0)->{publishing} eq 'noauth' }, 'a new password');

$t->write_file('password', "two\r\n");
$t->reload;
ok(scalar $t->leaving, 'an old worker is there after the reload');
ok($fleet->working, 'and it works again');

# The old worker goes on to try.

my $before = refused($client);
my %seen;

ok(wait_for {
    $seen{ $fleet->bus(0)->{publishing} }++;
    refused($client) >= $before + 5;
}, 'the old worker is refused again and again');

is(join(' ', sort keys %seen), 'works', 'which is not told of the bus');

$x->respond(200);
is($pending->response->status, 200, 'its request ends');
ok(wait_for { !$t->leaving }, 'it is gone');

# One that failed before it was told to leave may have had the last word.

for my $round (1 .. 4) {
    my $old = $round == 1 ? 'two' : 'round' . ($round - 1);

    $client = password([$old, "round$round"]);
    $client->cmd('CLIENT', 'KILL', 'TYPE', 'normal');
    wait_for { $fleet->bus(0)->{publishing} eq 'noauth' };

    $t->write_file('password', "round$round");
    $t->reload;

    ok($fleet->working && wait_for { !$t->leaving }, "round $round");
    ok($fleet->working, 'and it works still');
}

$t->done;

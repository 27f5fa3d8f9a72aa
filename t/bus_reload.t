#!/usr/bin/perl

# A reload that leads the bus to another Redis: workers that still finish a
# request know the one before, and send nothing there any more.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(stream);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $before = Vibelock::Redis->start;
my $after = Vibelock::Redis->start;
my $up = Vibelock::Upstream->new;

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $before->port,
    gateways => 1,
    server   => <<'CONF',
        location ~ ^/ops/unstick/(?<id>.+)$ {
            vibelock_server_kind STANDALONE;
            vibelock_unstick zone=ops;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
CONF
);

my $t = $fleet->gateway(0);

$t->set(UPSTREAM => $up->port);
$fleet->start;
ok($fleet->working, 'it works');

my $pending = $t->async(POST => '/ops/unstick/open');
my $request = $up->accept_request;

my ($from, $to) = map { $_->port } $before, $after;
(my $http = $t->{conf}{text}{http}) =~ s/127\.0\.0\.1:$from/127.0.0.1:$to/;

$after->stop;
$t->http($http);
$t->reload;

# The state is what the new workers find, whatever the old one could do.

ok(wait_for { $fleet->bus(0)->{publishing} eq 'failed' },
   'the new one is away');
$fleet->release(0, 'waits');

my $works = 0;
my $end = time + 2;

while (time < $end) {
    $works += $fleet->bus(0)->{publishing} eq 'works';
    select undef, undef, undef, 0.02;
}

is($works, 0, 'and stays so in the status');
is($fleet->bus(0)->{queued}, 1, 'the release waits');
is($before->cmd('XLEN', stream('ops')), 0, 'and does not go where it was');

$request->respond(200);
is($pending->response->status, 200, 'the old worker releases');
is($before->cmd('XLEN', stream('ops')), 0, 'nor does that one go there');

$after->start;
ok(wait_for { $after->cmd('XLEN', stream('ops')) == 2 }, 'both go to the new');
is($fleet->bus(0)->{dropped}, 0, 'nothing is lost');

Vibelock::Test->done;

#!/usr/bin/perl

# A report on many locks is gathered in steps, between which others are served,
# and a worker that leaves ends the one that is under way first.

use strict;
use warnings;

use Test::More;

use Vibelock::Pipeline qw(pipeline);
use Vibelock::Test qw(wait_for);

my $t = Vibelock::Test->new(workers => 1);

$t->http('vibelock_zone $arg_id zone=ops:8m;');
$t->server(<<'EOC');
    location /kept { vibelock deploy zone=ops; vibelock_keep 1; empty_gif; }
    location /other { empty_gif; }
    location /status { vibelock_status; }
EOC
$t->start;

pipeline($t->port, map { "/kept?id=$_" } 1 .. 30_000);

my ($worker) = $t->workers;
my ($reporter, $other) = map { $t->connect } 1 .. 2;

$t->get('/other', connection => $_) for $reporter, $other;

for my $uri ('/status?limit=5', '/status?format=prometheus') {

    # Both requests are there when the worker looks, the report's first.

    kill 'STOP', $worker;

    my $report = $t->async(GET => $uri, connection => $reporter);
    my $quick = $t->async(GET => '/other?meanwhile', connection => $other);

    kill 'CONT', $worker;

    is($quick->response->status, 200, 'another request');
    is($report->response->status, 200, $uri);

    ok($t->access_like(qr/\Q$uri\E/), 'both are logged');

    my @order = $t->access_log =~ /^GET (\S+)/mg;

    is($order[-2], '/other?meanwhile', 'the other one is over first');
    is($order[-1], $uri, 'then the report');
}

is($t->get('/status')->json->{data}{zones}[0]{locks}{held}, 30_000,
   'which is whole');

# One that is under way when its client leaves ends with it

for (1 .. 20) {
    kill 'STOP', $worker;

    my $report = $t->async(GET => '/status');

    $report->abort;
    kill 'CONT', $worker;
}

is($t->get('/other')->status, 200, 'the worker goes on');

my @reports;

ok(wait_for {
    @reports = $t->access_log =~ m{^GET /status (\d+)}mg;
    @reports == 21;
}, 'and has ended all of them');
is("@reports", join(' ', 200, (499) x 20), 'none of which was gathered');

# One that begins in the very turn in which its worker is told to leave

my $last = $t->connect;

$t->get('/other', connection => $last);
kill 'STOP', $worker;

my $report = $t->async(GET => '/status', connection => $last);

$t->signal('HUP');
ok((wait_for { grep { $_ != $worker } $t->workers }), 'a reload');

# The master does one thing after the other: it has told the old worker now.

$t->signal('USR1');
ok($t->log_like(qr/reopening logs/), 'which the worker will know of');

kill 'CONT', $worker;

is($report->response->status, 200, 'the report comes');
ok((wait_for { !kill 0, $worker }), 'then the worker goes');

$t->done;

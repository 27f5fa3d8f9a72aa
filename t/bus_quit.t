#!/usr/bin/perl

# What a worker releases with its last requests is sent before it ends, also
# where many of them end at once: after it there may be nobody else who could.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(stream);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Util qw(read_file);

use constant RELEASES => 16;

my $redis = Vibelock::Redis->start;
my $up = Vibelock::Upstream->new;

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 1,
    nginx    => { workers => 1 },
    server   => <<'CONF' =~ s/%%UPSTREAM%%/$up->port/er,
        location ~ ^/ops/unstick/(?<id>.+)$ {
            vibelock_server_kind STANDALONE;
            vibelock_unstick zone=ops;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
CONF
);

my $t = $fleet->gateway(0);

$fleet->start;
ok($fleet->working, 'it works');

my @pending = map { $t->async(POST => "/ops/unstick/web-$_") } 1 .. RELEASES;
my @requests = map { $up->accept_request } 1 .. RELEASES;
my ($worker) = $t->workers;

# It sees all of their ends in one turn, which is its last.

$t->signal('QUIT');
ok(wait_for { $t->leaving }, 'it wants to end');

kill 'STOP', $worker;
ok(wait_for { read_file("/proc/$worker/stat") =~ /\) T / }, 'it is stopped');
$_->respond(200) for @requests;
kill 'CONT', $worker;

is($_->response->status, 200, 'answered') for @pending;
ok($t->quit, 'it is gone');

my %sent;

wait_for {
    %sent = map { $_->[1][1] =~ /"key":"(web-\d+)"/ ? ($1 => 1) : () }
            @{ $redis->cmd('XRANGE', stream('ops'), '-', '+') };
    keys %sent == RELEASES;
} 5;

is(keys %sent, RELEASES, 'every release was sent');

Vibelock::Test->done;

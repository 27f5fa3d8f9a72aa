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

# The keys of all that was sent, as soon as there are so many.

sub sent {
    my ($n) = @_;

    my @sent;

    wait_for {
        @sent = map { $_->[1][1] =~ /"key":"([^"]+)"/ ? $1 : () }
                @{ $redis->cmd('XRANGE', stream('ops'), '-', '+') };
        @sent >= $n;
    } 5;

    return @sent;
}

# A repeat goes out a second after the one before it, where there is one.

$fleet->release(0, 'web');
ok(wait_for { $fleet->bus(0)->{published} == 1 }, 'a release is sent');
$fleet->release(0, 'web');
ok($t->quit, 'it ends');
is(join(' ', sent(2)), 'web web', 'its repeat was sent as well');

$redis->cmd('DEL', stream('ops'));
$t->stop;
$t->start;
ok($fleet->working, 'it works again');

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

my %sent = map { $_ => 1 } sent(RELEASES);

is(keys %sent, RELEASES, 'every release was sent');

Vibelock::Test->done;

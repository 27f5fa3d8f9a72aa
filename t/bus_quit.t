#!/usr/bin/perl

# What a worker releases with its last requests is sent before it ends, also
# where many of them end at once: after it there may be nobody else who could.
# What Redis does not take is told of.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(stream);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Util qw(limit now read_file);

# More than a worker has on their way at once, and than Redis reads at once.

use constant RELEASES => 300;
use constant LONG     => 'x' x 200;

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

my @pending = map { $t->async(POST => "/ops/unstick/web-$_-" . LONG) }
              1 .. RELEASES;
my @requests = map { $up->accept_request } 1 .. RELEASES;
my ($worker) = $t->workers;

# It sees all of their ends in one turn, which is its last.

$t->signal('QUIT');
ok(wait_for { $t->leaving }, 'it wants to end');

kill 'STOP', $worker;
ok(wait_for { read_file("/proc/$worker/stat") =~ /\) T / }, 'it is stopped');
$_->respond(200) for @requests;
kill 'CONT', $worker;

my @answered = grep { $_->response->status == 200 } @pending;

is(@answered, RELEASES, 'all are answered');
ok($t->quit, 'it is gone');

my %sent = map { $_ => 1 } sent(RELEASES);

is(keys %sent, RELEASES, 'every release was sent');
unlike($t->error_log, qr/ end with nginx/, 'none is lost');

# Redis does not answer, or is not there.

for my $case (['silent', sub { $redis->pause }, sub { $redis->resume }],
              ['gone', sub { $redis->stop }, sub { $redis->start }])
{
    my ($name, $away, $back) = @$case;

    $t->stop;
    $t->start;
    ok($fleet->working, "it works, before Redis is $name");

    $away->();
    $fleet->release(0, "$name-$_") for 1 .. 3;

    my $start = now();

    ok($t->quit, 'it ends');
    cmp_ok(now() - $start, '<', limit(2), 'soon');
    ok($t->log_like(qr/ 3 releases of zone "ops" end with nginx: /),
       'what Redis did not take is told of');

    $back->();
}

Vibelock::Test->done;

#!/usr/bin/perl

# A worker that came late to what it does, as its event loop stood still: what
# it locks and what it releases is of now, and not of when the loop last looked
# at its clock; and what others logged meanwhile is not logged again.

use strict;
use warnings;

use POSIX qw(mkfifo);
use Test::More;
use Time::HiRes ();

use Vibelock::Fleet qw(entry stream redis_ms);
use Vibelock::Redis;
use Vibelock::Socket;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $redis = Vibelock::Redis->start;
my $up = Vibelock::Upstream->new;

# What stands still is one worker: it opens a log that is a FIFO, and waits for
# somebody who reads it.

my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 2,
    each     => [{ workers => 1 }, { workers => 2 }],
    more     => 'timeout=10s keepalive=100ms',
    server   => <<'EOC' =~ s/%%UPSTREAM%%/$up->port/er,
        location = /slow {
            proxy_pass          http://127.0.0.1:%%UPSTREAM%%;
            proxy_read_timeout  1s;
        }
        location = /still {
            root        %%DIR%%;
            access_log  %%DIR%%/$arg_log;
            empty_gif;
        }
        location = /keyless {
            vibelock   exec zone=ops;
            empty_gif;
        }
EOC
);

$fleet->start;
ok($fleet->working, 'all work');

# Sends a request that stands still, and more: until somebody reads the file.

my $still = 0;

sub still {
    my ($t, $socket, $more) = @_;

    my $name = 'fifo' . ++$still;
    my $fifo = $t->path($name);

    mkfifo($fifo, 0666) or die "$fifo: $!";

    $socket->write("GET /still?log=$name HTTP/1.1\r\nHost: localhost\r\n\r\n"
                   . $more);

    return $fifo;
}

# Sends a request behind one that stands still for as long as the code runs; it
# is read with that one, and comes when that one is over.

sub late {
    my ($n, $request, $code) = @_;

    my $t = $fleet->gateway($n);
    my $socket = Vibelock::Socket->connect(port => $t->port);
    my $fifo = still($t, $socket, "$request HTTP/1.1\r\nHost: localhost\r\n"
                                  . "Connection: close\r\n\r\n");

    $socket->read_until("\x3b");        # the end of the picture

    Time::HiRes::sleep(0.3);
    $code->();

    open my $log, '<', $fifo or die "$fifo: $!";

    my $head = $socket->read_until("\r\n\r\n");

    $socket->close;

    return $head =~ m{^HTTP/1\.1 200};
}

subtest 'a lock' => sub {
    my $before = $fleet->bus(0)->{skipped}{young};

    ok(late(0, 'GET /ops/take/late', sub {
           $redis->cmd('XADD', stream('ops'), '*', 'release',
                       entry(key => 'late', at => redis_ms($redis)));
       }), 'is taken, after it was released elsewhere');

    wait_for { my $bus = $fleet->bus(0);
               $bus->{applied} || $bus->{skipped}{young} > $before };

    ok($fleet->held(0, 'late'), 'and is not what was released');
};

subtest 'a release' => sub {
    ok(late(0, 'DELETE /ops/lock/there', sub {
           $fleet->take(1, 'there');
           $fleet->old;
       }), 'of a lock that was taken elsewhere a little before');

    ok($fleet->freed(1, 'there'), 'frees it');
};

subtest 'a line that is logged once a minute' => sub {
    my $t = $fleet->gateway(1);

    ok(late(1, 'GET /keyless', sub {
           is($t->get('/keyless')->status, 200, 'the other worker logs it');
       }), 'the late one has the same to say');

    my $lines = () = $t->error_log =~ /runs without a lock/g;

    is($lines, 1, 'once');
};

# A worker reads what Redis says of the time after it stood still: what came for
# others meanwhile is not late for that.

subtest 'an answer of an upstream' => sub {
    my $t = $fleet->gateway(0);
    my @sockets = map { Vibelock::Socket->connect(port => $t->port) } 1 .. 2;

    for my $socket (@sockets) {
        $socket->write("GET /ops/exec/web HTTP/1.1\r\nHost: localhost\r\n\r\n");
        $socket->read_until("ok\n");
    }

    # It was asked for the time, and answers while the worker stands still; then
    # the worker stands still again, and comes to the answer after that.

    $redis->pause;
    Time::HiRes::sleep(0.3);

    my $c = $t->async(GET => '/slow');
    my $x = $up->accept_request;
    my @fifos = still($t, $sockets[0], '');

    $sockets[0]->read_until("\x3b");
    Time::HiRes::sleep(0.1);

    push @fifos, still($t, $sockets[1], '');
    $redis->resume;
    Time::HiRes::sleep(0.2);

    open my $first, '<', $fifos[0] or die "$fifos[0]: $!";
    $sockets[1]->read_until("\x3b");

    $x->respond(200);
    Time::HiRes::sleep(1.2);

    open my $second, '<', $fifos[1] or die "$fifos[1]: $!";

    is($c->response->status, 200, 'that came in time is in time');
};

Vibelock::Test->done;

#!/usr/bin/perl

# A range that cannot be had, or a condition that does not hold: nginx answers
# with an error of its own and reads the upstream's response no further.  That is
# the client's doing, who may not free a lock by a header.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(lock_of gate);
use Vibelock::Test;
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port);
$t->http(gate());
$t->server(<<'EOC');
    location / {
        vibelock exec zone=z;
        proxy_force_ranges on;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
EOC
$t->start;

my $pending = $t->async(GET => '/x?id=1',
                        headers => { Range => 'bytes=9999-' });
my $x = $up->accept_request;

$x->send_head(200, { 'Content-Length' => 100 });
$x->send('a few bytes');

is($pending->response->status, 416, 'no such range');
is($t->logged('/x?id=1')->{result}, 'KEPT', 'the operation may still run');
is(lock_of($t, 1), 'stuck', 'the lock is stuck');
like($t->error_log, qr/is stuck: nginx answered with an error of its own/,
     'the log says why');

$t->done;

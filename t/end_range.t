#!/usr/bin/perl

# A range that cannot be had: nginx answers with an error of its own and reads
# the upstream's response no further.

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

$up->accept_request->respond(200, {}, 'a few bytes');

is($pending->response->status, 416, 'no such range');
is($t->logged('/x?id=1')->{result}, 'RELEASED',
   'nginx stopped reading on purpose');
is(lock_of($t, 1), 'free', 'the lock is free');

$t->done;

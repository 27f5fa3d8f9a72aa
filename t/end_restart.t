#!/usr/bin/perl

# What loses locks: a restart, and a binary upgrade.  The token grows over both.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::Process qw(alive);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;

sub nginx {
    my (%how) = @_;

    my $t = Vibelock::Test->new(workers => 1, %how);
    $t->set(UPSTREAM => $up->port);
    $t->http(gate());
    $t->server(<<'EOC');
        vibelock exec zone=z;
        location /op   { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
        location /kept { vibelock_keep 1; empty_gif; }
        location /free { empty_gif; }
EOC

    return $t->start;
}

{
    my $t = nginx();
    my $before = do { $t->get('/kept?id=1'); $t->logged('/kept?id=1') };
    is(lock_of($t, 1), 'stuck', 'a lock');

    $t->reload;
    is(lock_of($t, 1), 'stuck', 'a reload keeps it');

    $t->stop;
    $t->start;
    is(lock_of($t, 1), 'free', 'a restart loses it');

    $t->get('/free?id=2');
    cmp_ok($t->logged('/free?id=2')->{token}, '>', $before->{token},
           'the token has grown');
    $t->finish;
}

{
    my $t = nginx(daemon => 1);
    my $uri = '/op?id=1';
    my $pending = $t->async(GET => $uri);
    my $x = $up->accept_request;
    is(lock_of($t, 1), 'running', 'an operation runs');

    my $old = $t->upgrade;
    my ($other, $y);

    # Both accept: the old one answers 409, the new one does not know.
    ok(wait_for {
        $other = $t->async(GET => $uri);
        wait_for { $up->pending || $other->answered };
        $up->pending;
    }, 'during an upgrade, old and new do not exclude each other');

    $y = $up->accept_request;
    kill 'WINCH', $old;
    ok(wait_for { lock_of($t, 1) eq 'running' }, 'it runs twice');

    my $mark = length $t->access_log;
    $x->respond(200);
    $pending->response;
    ok(wait_for { length $t->access_log > $mark }, 'the old one ends');

    # For a moment an old worker may still be the one that is asked.
    ok(wait_for { lock_of($t, 1) eq 'running' },
       'and frees nothing of the new one');

    $y->respond(200);
    $other->response;
    ok(wait_for { lock_of($t, 1) eq 'free' }, 'the new one ends');
    is(scalar(() = $t->access_log =~ / result=RELEASED /g), 2,
       'each has freed its own');

    my @tokens = $t->access_log =~ / token=(\d+)/g;
    cmp_ok($tokens[-1], '>', $tokens[0], 'the token has grown');

    kill 'QUIT', $old;
    ok(wait_for { !alive($old) }, 'the old nginx is gone');
    $t->finish;
}

Vibelock::Test->done;

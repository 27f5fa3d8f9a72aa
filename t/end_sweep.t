#!/usr/bin/perl

# The sweep: what is past its TTL is freed within its interval, although nobody
# asks for it, and nothing else is.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of zone_of gate);
use Vibelock::Pipeline qw(pipeline);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Util qw(limit now);

my $up = Vibelock::Upstream->new;
my $ttl = limit(3);

sub nginx {
    my ($sweep) = @_;

    my $t = Vibelock::Test->new(workers => 2);
    $t->set(UPSTREAM => $up->port, TTL => $ttl);
    $t->http(gate(sweep => $sweep) . "keepalive_requests 10000;
                                      proxy_read_timeout 60s;
                                      lingering_close off;");
    $t->server(<<'EOC');
        location /short  { vibelock exec zone=z; vibelock_ttl %%TTL%%s;
                           vibelock_keep 1; empty_gif; }
        location /long   { vibelock exec zone=z; vibelock_ttl 1h;
                           vibelock_keep 1; empty_gif; }
        location /exec   { vibelock exec zone=z; vibelock_ttl %%TTL%%s;
                           proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
        location /deploy { vibelock deploy zone=z; vibelock_ttl %%TTL%%s;
                           vibelock_overrun on;
                           proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
EOC

    return $t->start;
}

sub used { return zone_of($_[0])->{memory}{cellsUsed} }

# Many at once: how many were taken.

sub take {
    my ($t, $where, $from, $to) = @_;

    my %count = pipeline($t->port, map { "$where?id=$_" } $from .. $to);

    return $count{200};
}

{
    my $t = nginx('1s');
    my $before = used($t);
    my $start = now();

    is(take($t, '/long', 1, 500), 500, 'some that are not due');
    my @running = map {
        my $pending = $t->async(POST => "$_?id=open$_", body => 'b');
        [$_, $pending, $up->accept_request];
    } qw(/exec /deploy);
    is(take($t, '/short', 1001, 4000), 3000, 'many that soon are');
    my $taken = now();

    my $early = used($t);
    is($early, $before + 3502, 'nothing is freed before')
        if now() - $start < $ttl - 0.5;

    my $left = wait_for { used($t) <= $before + 501 } $ttl + 5;
    my $took = now() - $taken;

    ok($left, 'what is due is freed');
    cmp_ok($took, '<', $ttl + 1 + limit(2), 'within the interval');
    is(used($t), $before + 501, 'and what is not is there');
    is(lock_of($t, 1), 'stuck', 'such as this one');
    is(lock_of($t, 'open/deploy'), 'running', 'and a deploy that is open');
    is(lock_of($t, 'open/exec'), 'free', 'but no exec');

    for (@running) {
        my ($where, $pending, $x) = @$_;
        $x->respond(200);
        ends($t, "$where?id=open$where",
             $where eq '/exec' ? 'LOST' : 'RELEASED', "$where ends");
    }

    is(used($t), $before + 500, 'the rest is not due');
    $t->finish;
}

# Swept or not, what is due blocks nobody and is told to nobody.

{
    my $t = nginx('1h');
    my $before = used($t);

    is(take($t, '/short', 1, 100), 100, 'some that are soon due');
    ok(wait_for { lock_of($t, 100) eq 'free' }, 'they are');
    cmp_ok(used($t), '>=', $before + 90, 'and not swept');
    is(zone_of($t)->{locks}{held}, 0, 'no lock is held');
    is(take($t, '/short', 1, 100), 100, 'all can be taken again');
    is(used($t), $before + 100, 'in their place');
    $t->finish;
}

Vibelock::Test->done;

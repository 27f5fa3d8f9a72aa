#!/usr/bin/perl

# Workers that are killed, crash, or leave while operations run.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of lock_at gate);
use Vibelock::Http qw(http_connect http_request);
use Vibelock::Process qw(fork_child end_group);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Upstream::Auto;
use Vibelock::Util qw(limit);

my $up = Vibelock::Upstream->new;
my $auto = Vibelock::Upstream::Auto->start;
my $ttl = limit(3);

my $server = <<'EOC';
    location /op     { vibelock exec zone=z;
                       proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /short  { vibelock exec zone=z; vibelock_ttl %%TTL%%s;
                       proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /deploy { vibelock deploy zone=z; vibelock_ttl %%TTL%%s;
                       vibelock_overrun on;
                       proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /auto   { vibelock exec zone=z;
                       proxy_pass http://127.0.0.1:%%AUTO%%; }
EOC

sub nginx {
    my (%how) = @_;

    my $t = Vibelock::Test->new(%how);
    $t->set(UPSTREAM => $up->port, AUTO => $auto->port, TTL => $ttl);
    $t->http(gate(sweep => '1s') . 'proxy_read_timeout 60s;
                                    proxy_set_header X-Worker $pid;
                                    lingering_close off;');
    $t->server($server);

    return $t->start;
}

my $n = 0;

sub begin {
    my ($t, $where) = @_;

    my $id = ++$n;
    my $uri = "$where?id=$id";
    my $pending = $t->async(GET => $uri);
    my $x = $up->accept_request;

    return { uri => $uri, id => $id, x => $x, pending => $pending };
}

sub is_lock {
    my ($t, $operation, $state, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is(lock_of($t, $operation->{id}), $state, $name);
}

sub finish {
    my ($t, $operation, $result, $name) = @_;

    $operation->{x}->respond(200);

    return ends($t, $operation->{uri}, $result, $name);
}

# Killed, and crashed.

for my $signal (qw(KILL SEGV)) {
    my $t = nginx(workers => 2);
    my @operations = map { begin($t, '/op') } 1 .. 12;
    my $victim = $operations[0]{x}->header('X-Worker');

    is_lock($t, $_, 'running', 'all run') for @operations;
    $t->expect_log(qr/^sanitizer\.$victim: .*Sanitizer: SEGV/,
                   'the sanitizer reports the signal that we send');
    $t->kill_worker($victim, $signal);

    my (@gone, @there);

    for my $operation (@operations) {
        my $worker = $operation->{x}->header('X-Worker');
        push @{ $worker == $victim ? \@gone : \@there }, $operation;
    }

    note(scalar @gone, ' of them were the victim\'s');
    is_lock($t, $_, 'stuck', "$signal: its locks are stuck") for @gone;
    is_lock($t, $_, 'running', "$signal: the others' run on") for @there;
    ok($t->log_like(qr/is stuck.*worker is gone/), 'the log says why');

    is($t->get("/auto/ok?id=$_->{id}")->status, 409, 'still locked') for @gone;
    finish($t, $_, 'RELEASED', "$signal: the others end") for @there;
    $t->finish;
}

# What it held does not stay for ever: not before its TTL, nor long after.

{
    my $t = nginx(workers => 1);
    my $over = begin($t, '/deploy');

    ok(wait_for { (lock_at($t, $over->{id})->{ageMs} // 0)
                  > 1000 * $ttl }, 'a deploy past its TTL');

    my @operations = ($over, map { begin($t, $_) } qw(/short /deploy));
    $t->kill_worker($t->workers);

    for my $operation (@operations) {
        my $lock = lock_at($t, $operation->{id});
        is($lock->{state}, 'stuck', "$operation->{uri}: stuck");
        cmp_ok($lock->{expiresInMs}, '<=', 1000 * $ttl, 'for one TTL at most');
        cmp_ok($lock->{expiresInMs}, '>', 0, 'and not for none');
    }

    for my $operation (@operations) {
        my $free = wait_for { lock_of($t, $operation->{id}) eq 'free' } 3 * $ttl;
        ok($free, "$operation->{uri}: free after that");
    }

    $t->finish;
}

# At any moment, while requests come and go.

{
    my $t = nginx(workers => 2);
    my $port = $t->port;

    my @load = map {
        my $from = $_;
        fork_child(sub {
            my $i = 0;
            while (1) {
                http_request(port => $port, limit => 5,
                             uri => '/auto/ok?id=load' . $from . $i++ % 5);
            }
        });
    } 1 .. 3;

    for my $round (1 .. 12) {
        my $mark = length $t->access_log;
        wait_for { length $t->access_log > $mark + 2000 };
        $t->kill_worker(($t->workers)[$round % 2]);
    }

    end_group($_) for @load;
    $t->expect_log(qr/worker process \d+ exited on signal 9/, 'we did that');

    for my $id (map { my $from = $_; map { "load$from$_" } 0 .. 4 } 1 .. 3) {
        my $settled = wait_for { lock_of($t, $id) ne 'running' };
        ok($settled, "$id: nobody is left who holds it");
        lock_at($t, $id, 'DELETE');
        is($t->get("/auto/ok?id=$id")->status, 200, 'and it can be taken');
    }

    $t->finish;
}

# Reloads.

{
    my $t = nginx(workers => 2);
    my @operations = map { begin($t, '/op') } 1 .. 4;

    $t->reload;
    is_lock($t, $_, 'running', 'after a reload') for @operations;
    is($t->get("/auto/ok?id=$_->{id}")->status, 409, 'the new workers know')
        for @operations;
    finish($t, shift @operations, 'RELEASED', 'an old worker ends one');

    $t->signal('HUP') for 1 .. 2;
    $t->reload;
    is_lock($t, $_, 'running', 'after more, in quick succession')
        for @operations;
    ok(scalar $t->leaving, 'the old workers are still there');

    $t->http(gate() =~ s/\$arg_id/\$arg_other/r);
    like($t->reload_fails, qr/has the key/, 'one that is refused');
    $t->http(gate(sweep => '1s'));
    is_lock($t, $_, 'running', 'after that') for @operations;

    finish($t, $_, 'RELEASED', 'an old worker ends the last') for @operations;
    ok(wait_for { !$t->leaving }, 'no old worker lingers');
    is($t->get("/auto/ok?id=$_->{id}")->status, 200, 'and all is free')
        for @operations;

    # Keep-alive connections hold no worker up either, nor does the sweep.
    my $idle = http_connect(port => $t->port);
    is(http_request(uri => '/auto/ok?id=idle', connection => $idle,
                    keepalive => 1)->status, 200, 'a connection is kept');
    my $last = begin($t, '/op');
    kill 'QUIT', $t->master;
    ok(wait_for { scalar $t->leaving }, 'quit');
    $last->{x}->respond(200);
    is($t->logged($last->{uri})->{result}, 'RELEASED',
       'the operation ends first');
    ok($t->quit, 'and then nginx is gone');
    $t->finish;
}

{
    my $t = nginx(workers => 2, shutdown_timeout => '1s');
    my $operation = begin($t, '/op');

    $t->reload;
    ends($t, $operation->{uri}, 'KEPT', 'worker_shutdown_timeout');
    like($t->error_log, qr/is stuck: its worker was shut down/,
         'the log says why');
    ok(wait_for { !$t->leaving }, 'no worker lingers');
    is_lock($t, $operation, 'stuck', 'and the lock outlives it');
    is($t->get("/auto/ok?id=$operation->{id}")->status, 409, 'for all');
    $t->finish;
}

Vibelock::Test->done;

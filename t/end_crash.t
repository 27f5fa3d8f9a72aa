#!/usr/bin/perl

# A worker dies at each step it makes inside the zone's mutex: the others go
# on, and a lock is as it was before the step, or as it was to be after.
#
# This needs a build of the module that dies where it is told to.

use strict;
use warnings;

use POSIX qw(_SC_CLK_TCK mkfifo sysconf);
use Test::More;
use Time::HiRes ();

use Vibelock::Crash;
use Vibelock::Ends qw(lock_of zone_of gate);
use Vibelock::Process qw(end_group fork_child);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Util qw(now read_file write_file);

my ($module, $armed) = Vibelock::Crash::prepare();
my $up = Vibelock::Upstream->new;
my $t;

sub nginx {
    my ($sweep, $server, $before) = @_;

    $t = Vibelock::Test->new(workers => 2, module => $module,
                             env => { VIBELOCK_CRASH => $armed });
    $t->main('env VIBELOCK_CRASH;');
    $t->set(UPSTREAM => $up->port);
    $t->http(gate(sweep => $sweep) . 'lingering_close off;
                                      proxy_read_timeout 60s;');
    $t->server("vibelock exec zone=z; $server");
    $t->expect_log(qr/worker process \d+ exited on signal 9/, 'we do that');
    $t->expect_log(qr/shared memory zone "z" was locked by \d+/,
                   'and nginx takes its mutex away');
    $before->() if $before;

    return $t->start;
}

# Who takes the file dies in time; until then it is armed.

sub arm {
    my ($steps) = @_;

    return write_file("$armed/crash", $steps);
}

sub taken { return (glob "$armed/crash.*")[0] }

# What a process has had of the processor, s.

sub cpu {
    my ($pid) = @_;

    my ($utime, $stime) = (split ' ', read_file("/proc/$pid/stat"))[13, 14];

    return ($utime + $stime) / sysconf(_SC_CLK_TCK);
}

# Another process that has this pid, where the system lets us choose one.

sub process_of {
    my ($pid) = @_;

    for (1 .. 10) {
        open my $last, '>', '/proc/sys/kernel/ns_last_pid' or return;
        syswrite $last, $pid - 1 or return;
        close $last;

        my $child = fork_child(sub { sleep 60 });
        return $child if $child == $pid;
        end_group($child);
    }

    return;
}

sub gone { my ($worker) = @_; return wait_for { !kill 0, $worker } }

sub settle {
    my ($survived) = @_;

    my $file = wait_for { taken() } or die 'nobody took the mutex';
    my ($worker) = $file =~ /\.(\d+)$/;

    $survived ? $t->kill_worker($worker) : gone($worker);
    unlink $file;
    wait_for { scalar(() = $t->workers) == 2 };

    return;
}

# Each play gives the lock it was about, whether it came to its end, and what
# the lock may be where it did not, and must be where it did.  An end that is
# told to nobody is none: what comes from then on is another play.

my $n = 0;

sub begin {
    my $id = 'n' . ++$n;
    my $c = $t->async(GET => "/op?id=$id");

    return ($id, $c, $up->accept_request);
}

sub acquire {
    my ($steps) = @_;

    my $id = 'n' . ++$n;
    arm($steps);
    my $c = $t->async(GET => "/op?id=$id");
    wait_for { $up->pending || !$c->is_open };

    # While both connections are open, nothing else happens to it; then who
    # holds it is killed.
    return ($id, $up->pending && [$c, $up->accept_request], qr/^(?:free|stuck)$/,
            'stuck');
}

sub release {
    my ($steps) = @_;

    my ($id, $c, $x) = begin();
    arm($steps);
    $x->respond(200, { Connection => 'close' });

    return ($id, $c->response->status == 200, qr/^(?:free|stuck)$/, 'free');
}

sub keep {
    my ($steps) = @_;

    my ($id, $c, $x) = begin();
    arm($steps);
    $x->close;

    return ($id, $c->response->status == 502, qr/^stuck$/, 'stuck');
}

sub break {
    my ($steps) = @_;

    my $id = 'n' . ++$n;
    $t->get("/kept?id=$id");
    arm($steps);
    my $r = $t->delete("/lock?id=$id", port => $t->port(9));

    return ($id, $r->status == 200, qr/^(?:free|stuck)$/, 'free');
}

# A worker sweeps soon after its start, and not again here: its successor's
# sweep may be what dies, that is in order too.

nginx('1h', <<'EOC');
    location /op   { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /kept { vibelock_keep 1; empty_gif; }
    location /free { empty_gif; }
EOC

my %plays = (acquire => \&acquire, release => \&release, keep => \&keep,
             break => \&break);

for my $name (sort keys %plays) {
    my ($steps, $wrong, $slowest) = (0, 0, 0);
    my $used = zone_of($t)->{memory}{cellsUsed};

    for ($steps = 0; $steps < 100; $steps++) {
        my $start = now();
        my ($id, $survived, $may, $must) = $plays{$name}->($steps);

        settle($survived);

        my $state = lock_of($t, $id);

        ($survived ? $state eq $must : $state =~ $may)
            or $wrong++, diag("$name, $steps steps: the lock is $state");

        # Nobody waits for the dead one: another lock, and this one.
        $t->get("/free?id=other")->status == 200
            or $wrong++, diag("$name, $steps steps: another lock");
        $t->delete("/lock?id=$id", port => $t->port(9));
        $t->get("/free?id=$id")->status == 200
            or $wrong++, diag("$name, $steps steps: the same lock");

        my $zone = zone_of($t);
        $zone->{memory}{cellsUsed} == $used && $zone->{locks}{held} == 0
            or $wrong++, diag("$name, $steps steps: something is left");

        my $took = now() - $start;
        $slowest = $took if $took > $slowest;
        last if $survived;
    }

    is($wrong, 0, "$name: sound after each of its $steps steps");
    cmp_ok($steps, '>', 4, 'which are some');
    cmp_ok($steps, '<', 100, 'and came to an end');
    cmp_ok($slowest, '<', Vibelock::Util::limit(10), 'nothing stalls');
}

$t->finish;

# The sweep: locks fall due all the while.

{
    nginx('50ms', 'vibelock_ttl json=ttl; vibelock_keep 1;
                   location / { empty_gif; }');

    my $used = zone_of($t)->{memory}{cellsUsed};
    my (%due, $count);
    my $start = now();

    for my $i (1 .. 150) {
        my $ttl = 1 + $i * 0.06;
        my $r = $t->request(GET => "/?id=sweep$i",
                            json => { ttl => $ttl });
        $r->status == 200 or diag("not taken: " . $r->describe);
        $due{"sweep$i"} = now() + $ttl;
    }

    $t->get('/?id=stays', json => { ttl => 600 });

    for my $steps (0 .. 40) {
        arm($steps);
        my $file = wait_for { taken() } or last;
        gone($file =~ /\.(\d+)$/) or last;
        unlink $file;
        $count++;
    }

    is($count, 41, 'so many workers died in the sweep');

    my $state = sub { return lock_of($t, $_[0]) ne 'free' };

    ok(wait_for { !grep { $due{$_} < now() - 1 && $state->($_) } keys %due },
       'what was due is gone');
    ok($state->('stays'), 'what was not is there');
    my $gone = wait_for { !grep { $state->($_) } keys %due } 30;
    ok($gone, 'so is the rest, in its time');

    my $zone = zone_of($t);
    is($zone->{memory}{cellsUsed}, $used + 1, 'no memory is lost');
    is($zone->{locks}{held}, 1, 'one lock is left');
}

$t->finish;

# A worker dies while the master reads its configuration again, and so hears of
# no death: it wants the mutex too, to look operations up.

{
    nginx('1h', 'location / { empty_gif; } include more;',
          sub { $t->write_file('more', '') });

    # Whoever opens it waits for somebody who writes.

    my $fifo = $t->path('more');

    unlink $fifo;
    mkfifo($fifo, 0600) or die "$fifo: $!";

    my @workers = $t->workers;

    $t->log_mark;
    $t->signal('HUP');
    $t->log_like(qr/reconfiguring/);

    arm(0);
    my $c = $t->async(GET => '/?id=dies');
    ok(wait_for { taken() }, 'a worker dies in a reload');

    my ($dead) = taken() =~ /\.(\d+)$/;
    my ($other) = grep { $_ != $dead } @workers;

    unlink taken();

    # The other one waits for the mutex meanwhile, and not in a tight loop.

    my $waits = $t->async(GET => '/?id=waits');

    Time::HiRes::sleep(0.2);
    my $before = cpu($other);
    Time::HiRes::sleep(1);
    cmp_ok(cpu($other) - $before, '<', 0.5, 'the other one lets others run');

    open my $more, '>', $fifo or die "$fifo: $!";
    close $more;

    ok($t->log_like(qr/worker process \d+ exited on signal 9/),
       'the reload comes to its end');
    ok(wait_for { !grep { kill 0, $_ } @workers }, 'the old workers go');
    is($t->get('/?id=after')->status, 200, 'the new ones lock');
}

$t->finish;

# A zone that the configuration has no more: the master does not look for its
# mutex when a worker of before dies, whose pid comes back.

{
    nginx('1h', 'location / { proxy_set_header X-Worker $pid;
                              proxy_pass http://127.0.0.1:%%UPSTREAM%%; }');

    my @workers = $t->workers;
    my (@open, %ends);

    # Of a dozen operations each has some, which end after the reload.

    for my $n (1 .. 12) {
        push @open, $t->async(GET => "/?id=gone$n");
        my $x = $up->accept_request;
        push @{ $ends{$x->header('X-Worker')} }, $x;
    }

    $t->http('');
    $t->server('location / { empty_gif; }');
    $t->reload;

    my ($dies) = keys %ends;
    my ($other) = grep { $_ != $dies } @workers;

    arm(0);
    $_->respond(200, { Connection => 'close' }) for @{ $ends{$dies} };

    ok(gone($dies), 'a worker dies with a zone that is gone');
    unlink taken();

    my $stranger = process_of($dies);

    $_->respond(200, { Connection => 'close' }) for @{ $ends{$other} };

    ok(wait_for { !kill 0, $other }, 'the other one goes, too');
    end_group($stranger) if $stranger;
}

$t->done;

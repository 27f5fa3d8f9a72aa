#!/usr/bin/perl

# Operations that take longer than their TTL.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends lock_of lock_at gate);
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(limit);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 2);

# Long enough for what is looked at within it, also where all is slow.

my $ttl = limit(2);

$t->set(UPSTREAM => $up->port, TTL => $ttl);
$t->http(gate() . <<'EOC');
    proxy_http_version 1.1;
    proxy_read_timeout 60s;
    vibelock_keep $upstream_http_x_operation_running;
EOC
$t->server(<<'EOC');
    vibelock_ttl %%TTL%%s;
    lingering_close off;

    location /exec   { vibelock exec zone=z;
                       proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /deploy { vibelock deploy zone=z; vibelock_overrun on;
                       proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /stays  { vibelock deploy zone=z; vibelock_overrun on;
                       proxy_ignore_client_abort on;
                       proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
EOC
$t->start;

my $n = 0;

sub begin {
    my ($where, $id) = @_;

    $id //= ++$n;
    my $uri = "$where?id=$id&call=" . ++$n;

    return ($uri, begins($t, $up, $uri, body => 'b'), $id);
}

sub wait_past_ttl {
    my ($id) = @_;

    return ok(wait_for {
        my $lock = lock_at($t, $id);
        !$lock->{locked} || $lock->{ageMs} > $ttl * 1000 + 200;
    }, 'past its TTL');
}

# Exec: it lets the next one in.

my %running = map { $_ => [begin('/exec')] } qw(respond keep close abort);

for my $how (sort keys %running) {
    my ($uri, $x, $pending, $id) = @{ $running{$how} };
    wait_past_ttl($id);
    is(lock_of($t, $id), 'free', 'the lock is gone');

    my ($next, $y, $other) = begin('/exec', $id);

    if ($how eq 'abort') {
        $pending->abort;

    } else {
        $how eq 'close' ? $x->close
            : $x->respond(200, $how eq 'keep'
                               ? { 'X-Operation-Running' => 1 } : {});
        $pending->response;
    }

    my $line = ends($t, $uri, 'LOST', "its own end changes nothing: $how");
    cmp_ok($line->{age}, '>', $ttl * 1000, 'its age');
    is(lock_of($t, $id), 'running', "the next one's lock is there");
    $y->respond(200);
    $other->response;
    my $after = ends($t, $next, 'RELEASED', 'until its own end');
    cmp_ok($after->{token}, '>', $line->{token}, 'with a token that is higher');
}

# Deploy: it holds while its request is open.

%running = map { $_ => [begin($_)] } qw(/deploy /stays);

for my $where (qw(/deploy /stays)) {
    my ($uri, $x, $pending, $id) = @{ $running{$where} };
    $pending->abort if $where eq '/stays';
    wait_past_ttl($id);

    my $lock = lock_at($t, $id);
    is($lock->{state}, 'running', "$where: it still holds");
    is($lock->{expiresInMs}, 0, 'past its TTL');

    my $busy = $t->post("/exec?id=$id");
    is($busy->status, 409, 'others are told so');
    is($busy->json->{error}{state}, 'running', 'that it runs');
    like($busy->header('Retry-After'), qr/^[1-5]$/, 'and to come back');

    $x->respond(200);
    ends($t, $uri, 'RELEASED', "$where: freed by its end");
}

{
    my ($uri, $x, $pending, $id) = begin('/stays');
    wait_past_ttl($id);
    my $broken = lock_at($t, $id, 'DELETE');
    ok($broken->{released}, 'freed by DELETE');
    is(lock_of($t, $id), 'free', 'gone');
    $x->respond(200);
    $pending->response;
    ends($t, $uri, 'LOST', 'its end finds nothing');
    is(scalar(() = $t->error_log =~ /was lost.*key "$id"/g), 1, 'logged once');
}

# One that becomes stuck past its TTL has one more.

{
    my ($uri, $x, $pending, $id) = begin('/deploy');
    wait_past_ttl($id);
    $pending->abort;
    ends($t, $uri, 'KEPT', 'stuck past its TTL');

    my $lock = lock_at($t, $id);
    my $rest = $lock->{expiresInMs};
    cmp_ok($rest, '>', 0, 'one more TTL');
    cmp_ok($rest, '<=', $ttl * 1000, 'and not two');
    my $gone = wait_for { lock_of($t, $id) eq 'free' } 3 * $ttl;
    ok($gone, 'then it is gone');
}

for my $where (qw(/exec /deploy)) {
    my ($uri, $x, $pending, $id) = begin($where);
    $x->respond(200, { 'X-Operation-Running' => 1 });
    $pending->response;
    my $line = ends($t, $uri, 'KEPT', "$where: stuck within its TTL");

    my ($age, $rest) = (lock_at($t, $id) || {})->@{qw(ageMs expiresInMs)};
    cmp_ok(($age // 0) + ($rest // 0), '<=', $ttl * 1000,
           'that is all it has');
    my $gone = wait_for { lock_of($t, $id) eq 'free' } 3 * $ttl;
    ok($gone, 'then it is gone');
}

$t->done;

#!/usr/bin/perl

# Locks are broken below the status, by those who may.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet;
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id$http_x_key zone=ops:1m;
    vibelock_zone $arg_id 'zone=odd /name%:1m';
EOC
$t->server(<<'EOC');
    location /exec { vibelock exec zone=ops; vibelock_owner me;
                     proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /kept { vibelock deploy zone=ops; vibelock_keep 1; empty_gif; }
    location /odd { vibelock deploy 'zone=odd /name%'; vibelock_keep 1;
                    empty_gif; }
    location /status { vibelock_status break=on; vibelock_log_level error; }
    location /locks/status/ { vibelock_status break=on; }
    location /off { vibelock_status json break=off; }
    location ~ ^/regex { vibelock_status break=on; }
    location /renamed/ { rewrite ^/renamed/(.*) /status/$1 last; }
EOC
$t->start;

sub escape {
    my ($text) = @_;

    $text =~ s/([^\w.~-])/sprintf '%%%02X', ord $1/ge;

    return $text;
}

sub breaks {
    my ($path, %how) = @_;

    return $t->delete($path, headers => { 'X-Vibelock-Break' => 1 }, %how);
}

sub fails {
    my ($r, $status, $code, $what) = @_;

    is($r->status, $status, $what);
    is($r->json->{error}{code}, $code, "$what: $code");
    is($r->header('Access-Control-Allow-Origin'), undef,
       "$what: nobody else may ask");
}

sub locks {
    my ($zone) = @_;

    return $t->get('/status?limit=250&zone=' . escape($zone // 'ops'))
        ->json->{data}{list}{locks};
}

ok($t->get('/status')->json->{data}{breakable}, 'break=on is told');
ok(!$t->get('/off')->json->{data}{breakable}, 'and so is break=off');

# A lock that runs

my $pending = $t->async(POST => '/exec?id=a');
my $x = $up->accept_request;
my $token = locks()->[0]{token};
my $r = breaks('/status/locks/ops/a');

is($r->status, 200, 'broken');
is($r->header('Content-Type'), 'application/json', 'JSON');
is($r->header('Cache-Control'), 'no-store', 'not to be kept');

my $data = $r->json->{data};

ok($data->{released}, 'released');
is($data->{operation}, 'exec', 'its operation');
is($data->{state}, 'running', 'its state');
cmp_ok($data->{ageMs}, '<', 60_000, 'its age');
cmp_ok($data->{expiresInMs}, '>', 0, 'and the rest of its TTL');
is_deeply(locks(), [], 'it is gone');

ok($t->log_like(qr/\[error\].*lock\ is\ broken:\ at\ the\ status\ address,
                   \ zone\ "ops",\ key\ "a",\ operation\ "exec",
                   \ owner\ 2744ccd1/x), 'a line, at the level of the log');
ok($t->access_like(qr{DELETE\ /status/locks/ops/a\ 200\ result=BROKEN
                      \ age=\d+\ token=$token\ operation=exec}x),
   'the access log');

$x->respond(200);
$pending->response;
ok($t->access_like(qr/POST .* result=LOST/), 'its operation has lost it');

$r = breaks('/status/locks/ops/a');
is($r->status, 200, 'none there');
ok(!$r->json->{data}{released}, 'not released');
ok($t->access_like(qr{DELETE /status/locks/ops/a 200 result=ABSENT}),
   'ABSENT');

my $counters = $t->get('/status')->json->{data}{zones}[0]{counters};
is($counters->{broken}, 1, 'counted once');

# A key that no lock can have

$r = breaks('/status/locks/ops/' . 'a' x 4000);
is($r->status, 200, 'none can be there');
ok(!$r->json->{data}{released}, 'and none was released');

# A token: that lock, and none younger

$t->get('/kept?id=b');
$token = locks()->[0]{token};

ok(!breaks('/status/locks/ops/b?token=' . ($token - 1))
   ->json->{data}{released}, 'another lock is meant');
is(scalar @{ locks() }, 1, 'and this one stays');
fails(breaks("/status/locks/ops/b?token=$_"), 400, 'VALIDATION_ERROR',
      "\"$_\" is no token") for 'x', '0', '00', '';
like(breaks('/status/locks/ops/b?token=x')->json->{error}{hint}, qr/token/,
     'and the hint knows that there is one');
ok(breaks("/status/locks/ops/b?token=$token")->json->{data}{released},
   'this one is');

# Who may not

$t->get('/kept?id=c');

fails($t->delete('/off/locks/ops/c', headers => { 'X-Vibelock-Break' => 1 }),
      403, 'FORBIDDEN', 'no break=on');
fails($t->get('/off/locks/ops/c'), 403, 'FORBIDDEN', 'whatever the method');
fails($t->delete('/status/locks/ops/c'), 403, 'FORBIDDEN', 'no header');
fails($t->delete('/status/locks/ops/c',
                headers => { 'X-Vibelock-Break' => $_ }),
      403, 'FORBIDDEN', "the header is '$_'") for '', '0', 'yes', '11';

for my $method (qw(GET HEAD POST PUT OPTIONS PATCH)) {
    my $r = $t->request($method => '/status/locks/ops/c',
        headers => { 'X-Vibelock-Break' => 1, Origin => 'http://evil' });

    is($r->status, 405, "$method: 405");
    is($r->header('Allow'), 'DELETE', "$method: Allow");
    is($r->header('Access-Control-Allow-Headers'), undef, "$method: no CORS");
}

is(scalar @{ locks() }, 1, 'it is still there');

fails(breaks("/status/locks/$_"), 404, 'NOT_FOUND', $_)
    for 'none/c', 'ops', 'ops/', '', '/', 'ops?key=';

# Other ways to it

ok(breaks('/status/locks/ops/?key=c')->json->{data}{released},
   'the key as an argument');

for my $path (qw(/locks/status/locks/ops/d /regex/locks/ops/d
                 /renamed/locks/ops/d /%73tatus/locks/ops/d
                 /status/locks/%6Fps/%64 /./status//locks/ops/d))
{
    $t->get('/kept?id=d');
    my $r = breaks($path);
    ok($r->json->{data}{released}, $path) or diag $r->describe;
}

# A body is read and thrown away, and the connection goes on

my $c = $t->connect;

$r = breaks('/status/locks/ops/e', body => 'x' x 100_000, connection => $c);
is($r->status, 200, 'with a body');
is($t->get('/status', connection => $c)->status, 200, 'and the next request');

# Odd keys: by the path where it can carry them

my @odd = (
    '<script>', q{"'\\`}, 'a/b', 'a//b', 'a/../b', 'a/./b', '/', '//',
    '%2e%2e', '%', '%00', '?', '#', '&x=y', 'a b', 'a+b', "\x01\x7f",
    "\xc3\xa9\xf0\x9f\x98\x80", 'x' x 255, '/locks/ops/x', '...',
);

$t->get('/kept', headers => { 'X-Key' => $_ }) for @odd, '.', '..', 'a/b/';

for my $key (@odd) {
    my $before = @{ locks() };
    my $r = breaks('/status/locks/ops/' . escape($key));

    ok($r->json->{data}{released}, 'broken: ' . escape($key))
        or diag $r->describe;
    is(scalar @{ locks() }, $before - 1, 'and no other');
}

for my $key ('.', '..') {
    ok(breaks('/status/locks/ops/?key=' . escape($key))
       ->json->{data}{released}, "as an argument: $key");
}

is_deeply([map { $_->{key} } @{ locks() }], ['a/b/'], 'one is left');
ok(breaks('/status/locks/ops/a/b/')->json->{data}{released},
   'slashes need no escape');

# A zone with an odd name

$t->get('/odd?id=k');
ok(breaks('/status/locks/odd%20%2Fname%25/k')->json->{data}{released},
   'an odd zone');

# A server that is guarded, and has its status in an "if" too

$t->server(<<'EOC');
    vibelock all zone=ops;
    location /kept { vibelock deploy zone=ops; vibelock_keep 1; empty_gif; }
    location /status {
        vibelock_status json break=on;
        if ($request_method = DELETE) { set $x 1; }
    }
EOC
$t->reload;
$t->get('/kept?id=in');

ok(breaks('/status/locks/ops/in?id=in')->json->{data}{released},
   'the guard of the server does not guard its status');

# Other replicas break the owner's lock too

my $redis = Vibelock::Redis->start;
my $fleet = Vibelock::Fleet->new(
    redis    => 'redis://127.0.0.1:' . $redis->port,
    gateways => 2,
    server   => 'location /people { vibelock_status break=on; }',
);

$fleet->start->working;

for my $n (0, 1) {
    $fleet->take($n, 'ours', owner => 'ann');
    $fleet->take($n, 'theirs', owner => $n ? 'bob' : 'ann');
}

$fleet->old;

for my $id (qw(ours theirs)) {
    my $r = $fleet->gateway(0)->delete("/people/locks/ops/$id",
        headers => { 'X-Vibelock-Break' => 1 });
    ok($r->json->{data}{released}, "$id: broken here");
}

ok($fleet->freed(1, 'ours', owner => 'ann'), 'and on the other replica');
ok(wait_for { $fleet->bus(1)->{skipped}{otherOwner} == 1 },
   'which leaves the lock of another owner alone');
ok($fleet->held(1, 'theirs', owner => 'bob'), 'as it is');

$t->done;

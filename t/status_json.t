#!/usr/bin/perl

# The status as JSON, and which of its forms a client gets.

use strict;
use warnings;

use Test::More;

use Vibelock::Pipeline qw(pipeline);
use Vibelock::Registry qw(registry account server);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new;

my $locations = <<'EOC';
    location /exec { vibelock exec zone=ops;
                     proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /deploy { vibelock deploy zone=ops; vibelock_keep 1; empty_gif; }
    location /brief { vibelock deploy zone=ops; vibelock_ttl 100ms;
                      vibelock_keep 1; empty_gif; }
    location /dry { vibelock exec zone=ops; vibelock_dry_run on; empty_gif; }
    location /fill { vibelock fill zone=small; vibelock_keep 1; empty_gif; }
    location /fill/dry { vibelock fill zone=small; vibelock_dry_run on;
                         empty_gif; }
    location /status { vibelock_status; }
    location /html/ { vibelock_status html; }
    location /prometheus { vibelock_status prometheus; }
    location ~ ^/regex { vibelock_status; }
    location = /exact { vibelock_status; }
    location /limited { limit_except GET { deny all; } vibelock_status; }
    location /if { vibelock_status;
                   if ($arg_if) { set $x 1; } }
EOC

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_zone $arg_id zone=small:32k;
    vibelock_registry %%DIR%%/registry.json check=100ms;
EOC
# the server is guarded; its status is not
$t->server("vibelock_owner me; vibelock all zone=ops;\n$locations");
$t->write_file('registry.json', registry(
    keys    => [account('k', 'key')],
    servers => [map { server("s$_", 'k') } 1 .. 3],
));
$t->start;

sub status {
    my ($uri, %how) = @_;

    return $t->get($uri // '/status', %how)->json->{data};
}

sub zone {
    my ($name) = @_;

    return (grep { $_->{name} eq $name } @{ status()->{zones} })[0];
}

# What is there before anything was

my $r = $t->get('/status');

is($r->status, 200, 'the status is there');
is($r->header('Content-Type'), 'application/json', 'JSON by default');
is($r->header('Cache-Control'), 'no-store', 'not to be kept');
is($r->header('Vary'), 'Accept', 'another for another Accept');
ok($r->json->{success}, 'success');

my $data = $r->json->{data};

is_deeply([map { $_->{name} } @{ $data->{zones} }], ['ops', 'small'],
          'all zones, in their order');
cmp_ok(abs($data->{time} / 1000 - time), '<', 60, 'the time, in ms');
ok(!$data->{breakable}, 'no break=on');
ok(!exists $data->{list}, 'no list that was not asked for');
is_deeply($data->{zones}[0]{locks}, {
    held => 0, running => 0, stuck => 0,
    oldestRunningMs => undef, oldestStuckMs => undef,
    operations => [map { { operation => $_, running => 0, stuck => 0 } }
                   qw(all exec deploy)],
}, 'operations are there before their first lock');

my $memory = $data->{zones}[0]{memory};

is($memory->{bytes}, 1 << 20, 'the size of a zone');
is($memory->{bytesUsed}, 128 * $memory->{cellsUsed}, 'bytes used');
is($memory->{cellsUsed} + $memory->{cellsFree}, $memory->{cells},
   'used and free cells are all cells');

# Locks

my $pending = $t->async(POST => '/exec?id=a');
my $x = $up->accept_request;

is($t->get('/exec?id=a')->status, 409, 'busy') for 1 .. 2;
is($t->get("/deploy?id=$_")->status, 200, 'kept') for 'b', 'c';

my $ops = zone('ops');

is($ops->{locks}{held}, 3, 'held');
is($ops->{locks}{running}, 1, 'running');
is($ops->{locks}{stuck}, 2, 'stuck');
is_deeply($ops->{locks}{operations}, [
    { operation => 'all', running => 0, stuck => 0 },
    { operation => 'exec', running => 1, stuck => 0 },
    { operation => 'deploy', running => 0, stuck => 2 },
], 'by operation');
is($ops->{memory}{cellsUsed} - $memory->{cellsUsed}, 3,
   'a lock with a short key is one cell');

ok(wait_for {
    my $locks = zone('ops')->{locks};
    $locks->{oldestRunningMs} > $ops->{locks}{oldestRunningMs}
        && $locks->{oldestStuckMs} > $ops->{locks}{oldestStuckMs}
        && $locks->{oldestRunningMs} >= $locks->{oldestStuckMs};
}, 'the oldest grow older');

$x->respond(200, {}, 'done');
is($pending->response->status, 200, 'the operation ends');

is($t->get('/deploy?id=')->status, 200, 'no key, no lock');
is($t->get('/deploy?id=' . 'x' x 256)->status, 400, 'no such key');
is($t->get('/dry?id=c')->status, 200, 'dry run');
is($t->get('/brief?id=d')->status, 200, 'a short one');
ok(wait_for { zone('ops')->{locks}{stuck} == 2 }, 'is gone when it expires');

$t->get('/deploy?id=d');

my $counters = zone('ops')->{counters};

is($counters->{acquired}, 5, 'acquired');
is($counters->{busy}, 2, 'busy');
is($counters->{released}, 1, 'released');
is($counters->{kept}, 4, 'kept');
is($counters->{expired}, 1, 'expired');
is($counters->{bypassed}, 1, 'bypassed');
is($counters->{invalid}, 1, 'invalid');
is($counters->{dryRun}{busy}, 1, 'busy, but for dry run');

# A full zone

pipeline($t->port, map { "/fill?id=$_" } 1 .. 300);

my $small = zone('small');

is($small->{memory}{cellsFree}, 0, 'no cell is free');
is($small->{counters}{full}, 300 - $small->{counters}{acquired},
   'full, and the rest was taken');
is($t->get('/fill/dry?id=x')->status, 200, 'dry run of a full zone');
is(zone('small')->{counters}{dryRun}{full}, 1, 'is counted');

# The registry

is_deeply([@{ status()->{registry} }{qw(keys servers failed)}], [1, 3, 0],
          'the registry');
cmp_ok(abs(status()->{registry}{read} / 1000 - time), '<', 300,
       'and when it was read');

# Workers and reloads add up

$t->reload;
is_deeply(zone('ops')->{counters}, $counters, 'counters outlive a reload');
is(zone('ops')->{locks}{stuck}, 3, 'and so do locks');

# Forms

my %accept = (
    ''                                          => 'application/json',
    '*/*'                                       => 'application/json',
    'application/json'                          => 'application/json',
    'text/html'                                 => 'text/html',
    'text/html,application/xhtml+xml,*/*;q=0.8' => 'text/html',
    'text/plain'                                => 'text/plain',
    'text/plain;q=0.5, text/html;q=0.4'         => 'text/plain',
    'text/*, application/json;q=0.9'            => 'text/plain',
    'text/html;q=0, */*'                        => 'application/json',
    'application/json;q=0.1, */*'               => 'text/plain',
    '*/*, application/json;q=0.1'               => 'text/plain',
    'TEXT/HTML ; Q=0.9 , application/json;q=.8' => 'text/html',
    'text/html;q=x'                             => 'text/html',
    'image/png'                                 => 'application/json',
    ';;,,;q=,text'                              => 'application/json',
    'application/openmetrics-text;version=1.0.0;q=0.5,'
        . 'text/plain;version=0.0.4;q=0.3,*/*;q=0.1' => 'text/plain',
);

for my $accept (sort keys %accept) {
    my $type = $t->get('/status', headers => { Accept => $accept })
        ->header('Content-Type');
    like($type, qr/^\Q$accept{$accept}\E(?:;|$)/, "Accept: $accept");
}

my %browser = (headers => { Accept => 'text/html' });

like($t->get('/html/')->header('Content-Type'), qr/^text\/html; charset=utf-8/,
     'html by default');
like($t->get('/prometheus')->header('Content-Type'),
     qr/^text\/plain; version=0\.0\.4/, 'prometheus by default');
is($t->get('/html/?format=json', %browser)->header('Content-Type'),
   'application/json', 'format outweighs all');
is($t->get("/$_")->status, 200, "/$_")
    for qw(status/ html/ prometheus/ regex exact regex/x limited if if?if=1);
is($t->get("/$_")->status, 404, "/$_ is nothing")
    for qw(status/x statusx html/x status/locks exact/);

# HEAD, and what is wrong

for my $format (qw(json prometheus html)) {
    my $head = $t->request(HEAD => "/status?format=$format");
    my $get = $t->get("/status?format=$format");

    is($head->status, 200, "HEAD of $format");
    is($head->body, '', 'has no body');
    like($head->header('Content-Length'), qr/^[1-9]/, 'but its length');
    is($head->header('Content-Type'), $get->header('Content-Type'),
       'and its type');
}

sub fails {
    my ($r, $status, $code, $what) = @_;

    is($r->status, $status, $what);
    is($r->json->{error}{code}, $code, "$what: $code");
    is($r->header('Content-Type'), 'application/json', "$what: JSON");
    ok(!$r->json->{success}, "$what: no success");
}

for my $method (qw(POST PUT DELETE OPTIONS)) {
    my $r = $t->request($method => '/status', body => 'x' x 1000);

    fails($r, 405, 'METHOD_NOT_ALLOWED', $method);
    is($r->header('Allow'), 'GET, HEAD', "$method: Allow");
}

fails($t->get('/status?format=xml'), 400, 'VALIDATION_ERROR', 'format=xml');
fails($t->get('/status/nothing'), 404, 'NOT_FOUND', 'below it');

# A client that leaves while its report is gathered

pipeline($t->port, map { "/deploy?id=many-$_" } 1 .. 5000);

for (1 .. 50) {
    $t->async(GET => '/status?limit=250')->abort;
    $t->async(GET => '/status?format=prometheus')->reset;
}

is(status('/status?zone=ops')->{list}{matched}, 5003, 'it harms nobody');

# Configuration

my %bad = (
    'vibelock_status xml;'           => qr/"xml" .* "json", "prometheus" or/,
    'vibelock_status json json;' => qr/one parameter twice, .* as "json"/,
    'vibelock_status break=on break=off;' => qr/twice, .* as "break=off"/,
    'vibelock_status; vibelock_status;' => qr/"vibelock_status".*duplicate/,
    'vibelock_status; vibelock exec zone=ops;'    => qr/of its own/,
    'vibelock_status; vibelock_release zone=ops;' => qr/of its own/,
    'vibelock_status; vibelock_unstick zone=ops;' => qr/of its own/,
    'vibelock_status; proxy_pass http://127.0.0.1;' => qr/of its own/,
    'proxy_pass http://127.0.0.1; vibelock_status;' => qr/of its own/,
    'empty_gif; vibelock_status;'                   => qr/of its own/,
    'vibelock_release zone=ops; vibelock_status;'   => qr/of its own/,
    'vibelock_status json html json;' => qr/number of arguments/,
);

for my $conf (sort keys %bad) {
    $t->server("vibelock_owner me; location /bad { $conf }");
    my ($code, $output) = $t->config_test;
    isnt($code, 0, $conf);
    like($output, $bad{$conf}, "$conf: why");
}

$t->server('location = /status { vibelock_status break=on; }');
my ($code, $output) = $t->config_test;
like($output, qr/lets nothing come; write "location \/status"/,
     'break=on where nothing comes below');

$t->done;

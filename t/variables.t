#!/usr/bin/perl

# $vibelock_operation, $vibelock_token, $vibelock_age and $vibelock_result: what
# the upstream and the access log get.

use strict;
use warnings;

use Test::More;
use Time::HiRes ();

use Vibelock::Registry qw(registry account server);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json;
    vibelock_keep $upstream_http_x_operation_running;

    proxy_set_header X-Operation "[$vibelock_operation]";
    proxy_set_header X-Token     "[$vibelock_token]";
    proxy_set_header X-Age       "[$vibelock_age]";
    proxy_set_header X-Result    "[$vibelock_result]";
EOC
$t->server(<<'EOC');
    add_header X-Result "$vibelock_result" always;

    location / {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/deploy {
        vibelock deploy zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/brief {
        vibelock brief zone=ops;
        vibelock_ttl 1ms;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
    location = /empty {
        set $server_id "";
        vibelock deploy zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
EOC
$t->write_file('registry.json', registry(
    keys    => [account('me', 'my key')],
    servers => [map { server($_, 'me') } qw(one two three)],
));

my $started = Time::HiRes::time();
$t->start;

my %me = ('X-Api-Key' => 'my key');
my $n = 0;

# The fields of the log's line of a request.

sub logged {
    my ($uri) = @_;

    $t->access_like(qr/^\w+ \Q$uri\E \d+ /m);

    my ($line) = $t->access_log =~ /^\w+ \Q$uri\E \d+ (.*)$/m;
    my %field = map { split /=/, $_, 2 } split / /, $line // '';

    return \%field;
}

sub post {
    my ($uri, %how) = @_;

    $uri .= '?n=' . ++$n;

    return ($t->post($uri, headers => \%me, %how), $uri);
}

subtest 'to the upstream' => sub {
    my ($r) = post('/one/deploy');
    my $got = $r->json->{headers};

    is($got->{'x-operation'}, '[deploy]', 'operation');
    like($got->{'x-token'}, qr/^\[\d{16}\]$/, 'token');
    like($got->{'x-age'}, qr/^\[\d{1,4}\]$/, 'age');
    is($got->{'x-result'}, '[ACQUIRED]', 'result: still held');

    ($r) = post('/plain');
    $got = $r->json->{headers};
    is($got->{"x-$_"}, '[]', "$_, in a location without a guard")
        for qw(operation token age result);
};

subtest 'the token' => sub {
    my @tokens = map {
        my ($r) = post('/one/deploy');
        $r->json->{headers}{'x-token'} =~ /(\d+)/;
    } 1 .. 5;

    my @sorted = sort { $a <=> $b } @tokens;
    is_deeply(\@tokens, \@sorted, 'only grows');
    isnt($tokens[0], $tokens[1], 'and is never the same');

    cmp_ok($tokens[0], '>=', $started * 1e6,
           'it begins with the time of the zone, in microseconds');
    cmp_ok($tokens[-1], '<', 2 ** 53, 'and fits into a double');

    my ($r) = post('/two/deploy');
    cmp_ok($r->json->{headers}{'x-token'} =~ s/\D//gr, '>', $tokens[-1],
           'it is the zone\'s, not the server\'s');

    $t->reload;
    ($r) = post('/one/deploy');
    cmp_ok($r->json->{headers}{'x-token'} =~ s/\D//gr, '>', $tokens[-1],
           'it grows over a reload');

    $t->quit;
    $t->start;
    ($r) = post('/one/deploy');
    cmp_ok($r->json->{headers}{'x-token'} =~ s/\D//gr, '>', $tokens[-1],
           'it grows over a restart');
};

subtest 'in the access log' => sub {
    my ($r, $uri) = post('/one/deploy');
    my $log = logged($uri);
    is($log->{result}, 'RELEASED', 'RELEASED');
    is($log->{operation}, 'deploy', 'its operation');
    is("[$log->{token}]", $r->json->{headers}{'x-token'}, 'its token');
    like($log->{age}, qr/^\d+$/, 'its age');

    (undef, $uri) = post('/one/deploy/running');
    is(logged($uri)->{result}, 'KEPT', 'KEPT');

    ($r, $uri) = post('/one/deploy');
    is($r->status, 409, 'a busy server');
    $log = logged($uri);
    is($log->{result}, 'BUSY', 'BUSY');
    is($log->{operation}, 'deploy', 'the operation that was asked for');
    is($log->{token}, '-', 'no token');
    like($log->{age}, qr/^\d+$/, 'the age of the lock that is held');
    cmp_ok(abs($log->{age} - $r->json->{error}{ageMs}), '<=', 0,
           'as in the 409');

    $t->delete('/one/lock', headers => \%me);
    $log = logged('/one/lock');
    is($log->{result}, 'BROKEN', 'BROKEN');
    is($log->{operation}, 'deploy', 'the operation that was broken');
    like($log->{token}, qr/^\d+$/, 'its token');
    like($log->{age}, qr/^\d+$/, 'its age');

    $t->delete('/two/lock', headers => \%me);
    is(logged('/two/lock')->{result}, 'ABSENT', 'ABSENT');

    (undef, $uri) = post('/one/deploy', headers => {});
    is(logged($uri)->{result}, 'DENIED', 'DENIED, of a 401');
    (undef, $uri) = post('/none/deploy');
    is(logged($uri)->{result}, 'DENIED', 'DENIED, of a 404');
    is(logged($uri)->{operation}, 'deploy', 'with the operation');
    (undef, $uri) = post('/' . 'x' x 256 . '/deploy');
    is(logged($uri)->{result}, 'INVALID', 'INVALID');
    $t->get('/' . 'x' x 256 . '/lock', headers => \%me);
    is(logged('/' . 'x' x 256 . '/lock')->{result}, 'INVALID',
       'INVALID, at the endpoint');

    ($r, $uri) = post('/empty');
    is($r->status, 200, 'an empty key');
    is(logged($uri)->{result}, 'BYPASSED', 'BYPASSED');

    (undef, $uri) = post('/plain');
    $log = logged($uri);
    is($log->{$_}, '-', "no $_ without a guard")
        for qw(operation token age result);

    $t->request(OPTIONS => '/one/deploy?options');
    is(logged('/one/deploy?options')->{result}, '-', 'nor of OPTIONS');
};

subtest 'LOST' => sub {
    my $before = () = $up->requests;
    my $uri = '/three/deploy?lost=broken';
    my $pending = $t->async(POST => $uri,
        headers => { %me, 'X-Upstream' => 'park/broken' });
    $up->wait_requests(++$before);
    $t->delete('/three/lock', headers => \%me);
    $up->release('broken');
    is($pending->response->status, 200, 'its operation ends well');
    is(logged($uri)->{result}, 'LOST', 'LOST, where it was broken');

    $uri = '/three/brief?lost=expired';
    $pending = $t->async(POST => $uri,
        headers => { %me, 'X-Upstream' => 'park/expired' });
    $up->wait_requests(++$before);
    wait_for {
        !$t->get('/three/lock', headers => \%me)->json->{data}{locked};
    };
    $up->release('expired');
    is($pending->response->status, 200, 'its operation ends well');
    is(logged($uri)->{result}, 'LOST', 'LOST, where it had expired');

    ok($t->log_like(qr/vibelock: lock was lost: broken, or past its TTL, before its operation ended, zone "ops", key "three", operation "brief"/),
       'and a line in the log');
};

subtest 'in a header of the answer' => sub {
    my ($r) = post('/one/deploy', headers => {});
    is($r->header('X-Result'), 'DENIED', 'of a 401');
};

subtest 'the age grows' => sub {
    my $before = () = $up->requests;
    my $uri = '/two/deploy?age';
    my $pending = $t->async(POST => $uri,
        headers => { %me, 'X-Upstream' => 'park/age' });
    $up->wait_requests($before + 1);
    my $age;
    wait_for {
        $age = $t->get('/two/lock', headers => \%me)->json->{data}{ageMs};
        $age >= 50;
    };
    $up->release('age');
    $pending->response;
    cmp_ok(logged($uri)->{age}, '>=', $age, 'up to the end of the operation');
};

$t->done;

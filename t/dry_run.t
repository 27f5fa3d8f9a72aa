#!/usr/bin/perl

# vibelock_dry_run: nothing is refused, and what would have been is told.

use strict;
use warnings;

use Test::More;

use Vibelock::Registry qw(registry account server);
use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json;
    vibelock_dry_run on;
    proxy_set_header X-Token $vibelock_token;
    client_max_body_size 8m;
EOC
$t->server(<<'EOC');
    location ~ ^/(?<server_id>[^/]+)/exec$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/real$ {
        vibelock real zone=ops;
        vibelock_dry_run off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
    location ~ ^/(?<server_id>[^/]+)/unstick$ {
        vibelock_unstick zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/alone$ {
        vibelock_unstick zone=ops;
    }
EOC
$t->write_file('registry.json', registry(
    keys    => [account('me', 'my key')],
    servers => [server('mine', 'me'),
                server('host', 'me', kind => 'GALAXY_HOST')],
));
$t->start;

my %me = ('X-Api-Key' => 'my key');

# What is asked goes through, and the log says what it would have been.

my $n = 0;

sub passes {
    my ($uri, $result, $name, %how) = @_;

    my $query = 'n=' . ++$n;
    my $r = $t->request($how{method} // 'POST', "$uri?$query",
                        headers => \%me, %how);

    is($r->status, 200, "$name: passes");
    ok($t->access_like(qr{^\w+ \Q$uri?$query\E 200 result=$result }m),
       "$name: $result");

    return $r;
}

subtest 'a lock is taken and released' => sub {
    my $r = passes('/mine/exec', 'RELEASED', 'a free server', body => '{}');
    like($r->json->{headers}{'x-token'}, qr/^\d+$/, 'with its token');
};

subtest 'busy' => sub {
    my $before = () = $up->requests;
    my $holder = $t->async(POST => '/mine/exec',
        headers => { %me, 'X-Upstream' => 'park/one' });
    $up->wait_requests($before + 1);

    my $r = passes('/mine/exec', 'BUSY_DRY_RUN', 'a second operation');
    ok(!exists $r->json->{headers}{'x-token'}, 'it has no token');
    passes('/mine/exec', 'BUSY_DRY_RUN', 'a third one', body => 'bad');

    my $lock = $t->get('/mine/lock', headers => \%me)->json->{data};
    is($lock->{operation}, 'exec', 'the first holds the lock still');

    is($t->post('/mine/real', headers => \%me)->status, 409,
       'where it is off, 409 is 409');

    $up->release('one');
    is($holder->response->status, 200, 'the first ends');
    ok($t->access_like(qr/^POST .mine.exec 200 result=RELEASED/m),
       'and releases its lock');
};

subtest 'denied' => sub {
    passes('/mine/exec', 'DENIED_DRY_RUN', 'no key', headers => {});
    passes('/mine/exec', 'DENIED_DRY_RUN', 'an unknown key',
           headers => { 'X-Api-Key' => 'x' });
    passes('/none/exec', 'DENIED_DRY_RUN', 'an unknown server');
};

subtest 'invalid' => sub {
    passes('/' . 'x' x 256 . '/exec', 'INVALID_DRY_RUN', 'a long id');

    for my $body ('no JSON', '{"timeout":"x"}', '{"timeout":1,"timeout":2}') {
        my $r = passes('/mine/exec', 'INVALID_DRY_RUN', $body, body => $body);
        is($r->json->{body}, $body, 'and comes whole');
    }

    my $large = 'x' x 2_000_000;
    my $r = passes('/mine/exec', 'INVALID_DRY_RUN', 'a large body',
                   body => $large);
    ok($r->json->{body} eq $large, 'and comes whole');
    $r = passes('/mine/exec', 'INVALID_DRY_RUN', 'a large chunked body',
                chunks => [$large]);
    ok($r->json->{body} eq $large, 'and comes whole');
};

subtest 'unstick beside an upstream' => sub {
    passes('/mine/unstick', 'DENIED_DRY_RUN', 'no key', headers => {});
    passes('/none/unstick', 'DENIED_DRY_RUN', 'an unknown server');
    passes('/' . 'x' x 256 . '/unstick', 'INVALID_DRY_RUN', 'a long id');
    passes('/host/unstick', '-', 'a galaxy host');
    passes('/mine/unstick', '-', 'another method', method => 'GET');

    my $before = () = $up->requests;
    my $holder = $t->async(POST => '/mine/exec',
        headers => { %me, 'X-Upstream' => 'park/two' });
    $up->wait_requests($before + 1);
    passes('/mine/unstick', 'DENIED_DRY_RUN', 'a stranger',
           headers => { 'X-Api-Key' => 'x' });
    ok($t->get('/mine/lock', headers => \%me)->json->{data}{locked},
       'who would be refused breaks no lock');
    passes('/mine/unstick', 'BROKEN', 'who may');
    $up->release('two');
    $holder->response;
};

subtest 'what has nothing to go on to answers' => sub {
    is($t->delete('/mine/lock')->status, 401, 'the endpoint');
    is($t->post('/mine/alone')->status, 401, 'unstick without an upstream');
    is($t->post('/host/alone', headers => \%me)->status, 409,
       'for a galaxy host');
};

$t->done;

#!/usr/bin/perl

# No way around a refusal: neither through a body that is none, nor through an
# error page, nor by taking one's time.

use strict;
use warnings;

use Test::More;

use Vibelock::Registry qw(registry account server);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);

sub owned {
    my ($owner) = @_;

    return registry(
        keys    => [map { account("k$_", "key$_") } 1, 2],
        servers => [server('1', 'k1'), server('2', $owner)],
    );
}

$t->set(UPSTREAM => $up->port);
$t->write_file('registry.json', owned('k2'));
$t->http(<<'EOC');
    vibelock_zone $server zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json check=100ms;
    proxy_set_header Connection close;
EOC

# errors of nginx's own go to the platform, so that all answers look alike

$t->server(<<'EOC');
    set $server "";
    vibelock any zone=ops;
    error_page 400 413 = @platform;

    location ~ ^/servers/([^/]+)/exec$ {
        set $server $1;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/servers/([^/]+)/json$ {
        set $server $1;
        vibelock_ttl json=timeout;
        client_max_body_size 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/servers/([^/]+)/lock$ {
        set $server $1;
        vibelock_release zone=ops;
    }
    location ~ ^/servers/([^/]+)/unstick$ {
        set $server $1;
        vibelock_unstick zone=ops;
        error_page 502 503 = @fallback;
        proxy_intercept_errors on;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /route/ {
        try_files /none @route;
    }
    location @route {
        set $server 2;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @platform {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @fallback {
        vibelock off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
EOC
$t->start;

# a chunk that is none, so that discarding the body fails

sub bad_chunk {
    my ($method, $uri, @headers) = @_;

    my $c = $t->connect;

    $c->send_raw(join("\r\n", "$method $uri HTTP/1.1", 'Host: localhost',
                      @headers, 'Transfer-Encoding: chunked', '', 'zz', '',
                      ''));

    my $r = $c->read_response;

    $c->close;

    return $r;
}

my @key1 = ('X-Api-Key: key1');
my @key2 = ('X-Api-Key: key2');
my $good = { 'X-Api-Key' => 'key2' };

is(bad_chunk(POST => '/servers/2/exec')->status, 401,
   '401 with a body that is none');
is(bad_chunk(POST => '/servers/2/exec', @key1)->status, 404,
   '404 with a body that is none');

my $pending = $t->async(POST => '/servers/2/exec', headers => $good);
my $x = $up->accept_request;

is(bad_chunk(POST => '/servers/2/exec', @key2)->status, 409,
   '409 with a body that is none');
is(bad_chunk(POST => '/servers/2/json', @key2)->status, 409,
   '... where the body has the TTL');
ok(!$up->pending, 'none of them got to the upstream');

is(bad_chunk(DELETE => '/servers/2/lock', @key1)->status, 404,
   'the same for who may not break a lock');

# unstick: the answer of an error page is not the upstream's

my $unstick = $t->async(POST => '/servers/2/unstick', headers => $good);

$up->accept_request->respond(503);
$up->accept_request->respond(200, {}, 'sorry');

is($unstick->response->status, 200, 'unstick that failed, behind a page');
is($t->get('/servers/2/lock', headers => $good)->json->{data}{locked}, 1 == 1,
   '... breaks no lock');

is(bad_chunk(DELETE => '/servers/2/lock', @key2)->json->{data}{released},
   1 == 1, 'DELETE with a body that is none breaks the lock, and says so');

$x->respond(200);
$pending->response;

# a body that is refused by nginx comes back through the error page

$pending = $t->async(POST => '/servers/2/json', headers => $good,
                     chunks => ['x' x 2000]);
$x = $up->accept_request;

is($t->get('/servers/2/lock', headers => $good)->json->{data}{locked}, 1 == 1,
   'what an error page lets run has a lock');

$x->respond(200);
$pending->response;

# an empty key goes without a lock, and without more

is($t->post('/route/x')->status, 401,
   'an empty key before a redirect is not good for what comes after it');

# the right to operate is that of the moment the lock is taken

my $c = $t->connect;

$c->send_raw(join("\r\n", 'POST /servers/2/json HTTP/1.1', 'Host: localhost',
                  @key2, 'Content-Length: 14', '', '{"timeout"'));

$t->write_file('registry.new', owned('k1'));
rename $t->path('registry.new'), $t->path('registry.json');

ok(wait_for(sub {
       $t->get('/servers/2/lock', headers => $good)->status == 404
   }), 'the server becomes another key\'s, while a body comes in');

$c->send_raw(':60}');

is($c->read_response->status, 404, '... and the rest of the body is too late');
ok(!$up->pending, '... for the upstream too');

$t->done;

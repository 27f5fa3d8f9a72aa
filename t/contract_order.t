#!/usr/bin/perl

# In which order a request is checked: the first that applies answers.

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
EOC
$t->server(<<'EOC');
    location ~ ^/servers/(?<server_id>[^/]*)/exec$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/servers/(?<server_id>[^/]*)/lock$ {
        vibelock_release zone=ops;
    }
    location = /nobody/lock {
        vibelock_release zone=ops;
    }
EOC

$t->write_file('registry.json', registry(
    keys    => [map { account($_, "$_ key") } qw(my your)],
    servers => [server('mine', 'my'), server('yours', 'your')],
));
$t->start;

my $mine = [['X-Api-Key', 'my key']];

sub code {
    my ($r) = @_;

    return $r->status . ($r->body =~ /"code":"(\w+)"/ ? " $1" : '');
}

subtest 'the order of the checks of a guard' => sub {
    my $before = () = $up->requests;
    my $holder = $t->async(POST => '/servers/mine/exec', json => {},
        headers => { 'X-Api-Key' => 'my key', 'X-Upstream' => 'park/order' });
    ok($up->wait_requests($before + 1), 'an operation runs');

    my $post = sub {
        my ($server, $key, %how) = @_;
        return code($t->post("/servers/$server/exec", %how,
            headers => [$key ? ['X-Api-Key', $key] : ()]));
    };

    is($post->('never', undef, body => 'bad'), '401 MISSING_API_KEY',
       '401 before 404');
    is($post->('mine', 'unknown', body => 'bad'), '401 INVALID_API_KEY',
       '401 before 409');
    is($post->('x' x 256, undef), '401 MISSING_API_KEY',
       '401 before the 400 of an id');
    is($post->('x' x 256, 'my key'), '400 VALIDATION_ERROR',
       'an id too long to ask for');
    is($post->('mine', 'your key', body => 'bad'), '404 NOT_FOUND',
       '404 before 409');
    is($post->('yours', 'my key', body => 'bad'), '404 NOT_FOUND',
       '404 before 400');
    is($post->('mine', 'my key', body => 'bad'), '409 EXEC_BUSY',
       '409 before 400');

    my $c = $t->connect;
    $c->send_raw("POST /servers/mine/exec HTTP/1.1\r\nHost: x\r\n"
                 . "X-Api-Key: my key\r\nContent-Length: 20\r\n\r\n");
    is(code($c->read_response), '409 EXEC_BUSY', '409 before the body');
    $c->close;

    $c = $t->connect;
    $c->send_raw("POST /servers/mine/exec HTTP/1.1\r\nHost: x\r\n"
                 . "Content-Length: 20\r\n\r\n");
    is(code($c->read_response), '401 MISSING_API_KEY', '401 before the body');
    $c->close;

    is(scalar(() = $up->requests), $before + 1, 'none of them went upstream');

    $up->release('order');
    is($holder->response->status, 200, 'the operation ends');
    is($post->('mine', 'my key', body => 'bad'), '400 VALIDATION_ERROR',
       '400 when the lock is free');
};

subtest 'the order of the checks of the endpoint' => sub {
    is(code($t->post('/servers/never/lock')), '405 METHOD_NOT_ALLOWED',
       '405 before 401');
    is(code($t->delete('/servers/never/lock')), '401 MISSING_API_KEY',
       '401 before 404');
    is(code($t->delete('/servers/never/lock', headers => $mine)),
       '404 NOT_FOUND', 'at last 404');
    is(code($t->delete('/nobody/lock')), '401 MISSING_API_KEY',
       '401 before the 404 of an empty id');
    is(code($t->delete('/nobody/lock', headers => $mine)), '404 NOT_FOUND',
       'an empty id is nobody');
    is(code($t->delete('/servers/' . 'x' x 256 . '/lock')),
       '401 MISSING_API_KEY', '401 before the 400 of an id');
    is(code($t->delete('/servers/' . 'x' x 256 . '/lock', headers => $mine)),
       '400 VALIDATION_ERROR', 'an id too long to ask for');
};

$t->done;

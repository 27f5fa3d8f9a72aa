#!/usr/bin/perl

# The lock endpoint: DELETE breaks a lock, GET and HEAD tell of it.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use Vibelock::Http qw(http_request);
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
    location ~ ^/servers/(?<server_id>[^/]+)/deploy$ {
        vibelock deploy zone=ops;
        vibelock_keep $upstream_http_x_operation_running;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/servers/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
        expires 1h;
    }
EOC

sub registered {
    my (@servers) = @_;

    return $t->write_file('registry.json', registry(
        keys    => [map { account($_, "$_ key") } qw(me you)],
        servers => [map { server($_->{id}, 'me', %$_) } @servers],
    ));
}

registered(map { { id => $_ } } qw(one two leaves dies moves));
$t->start;

my %me = (headers => { 'X-Api-Key' => 'me key' });
my %you = (headers => { 'X-Api-Key' => 'you key' });

my $absent = '{"success":true,"data":{"released":false,"localLock":false,'
    . '"broadcast":true,"message":"No lock on this replica; a fleet-wide'
    . ' EXEC-lock release was broadcast to peers"}}';
my $unlocked = '{"success":true,"data":{"locked":false}}';

# An operation that runs until it is released, and one that is over and left
# its lock.

sub running {
    my ($server, $name) = @_;

    my $before = () = $up->requests;
    my $pending = $t->async(POST => "/servers/$server/deploy",
        headers => { %{ $me{headers} }, 'X-Upstream' => "park/$name" });
    $up->wait_requests($before + 1) or die "nothing runs on $server";

    return $pending;
}

sub stuck {
    my ($server) = @_;

    my $r = $t->post("/servers/$server/deploy",
        headers => { %{ $me{headers} }, 'X-Upstream' => 'running' });

    return is($r->status, 200, "a lock is left on $server");
}

subtest 'a lock that is held' => sub {
    my $holder = running('one', 'a');

    like($t->get('/servers/one/lock', %me)->body,
         qr/^\{"success":true,"data":\{"locked":true,"operation":"deploy",
            "state":"running","ageMs":\d+,"expiresInMs":(\d+)\}\}$/x,
         'GET tells of it');

    my $get = $t->get('/servers/one/lock', %me);
    my $head = $t->request(HEAD => '/servers/one/lock', %me);
    is($head->status, 200, 'HEAD: the same status');
    is($head->body, '', 'HEAD: no body');
    is($head->header($_), $get->header($_), "HEAD: the same $_")
        for 'Content-Type';
    like($head->header('Content-Length'), qr/^\d+$/, 'HEAD: a length');

    my $data = $get->json->{data};
    cmp_ok($data->{ageMs} + $data->{expiresInMs}, '==', 900_000,
           'age and rest make the TTL');

    my $r = $t->delete('/servers/one/lock', %me);
    is($r->status, 200, 'DELETE: 200');
    like($r->body,
         qr/^\{"success":true,"data":\{"released":true,"localLock":true,
            "broadcast":true,"operation":"deploy","ageMs":\d+,
            "expiresInMs":\d+\}\}$/x,
         'DELETE: what was released');
    is($r->header('Content-Type'), 'application/json', 'its Content-Type');
    is($r->header('Content-Length'), length $r->body, 'its length');
    like($r->header('Cache-Control'), qr/^no-store/, 'it is not stored');
    cmp_ok($r->json->{data}{ageMs} + $r->json->{data}{expiresInMs}, '==',
           900_000, 'age and rest make the TTL');

    is($t->get('/servers/one/lock', %me)->body, $unlocked, 'it is gone');
    is($t->delete('/servers/one/lock', %me)->body, $absent,
       'the second DELETE finds none');

    my $next = running('one', 'b');
    $up->release('a');
    is($holder->response->status, 200, 'the broken operation ends');
    is($t->get('/servers/one/lock', %me)->json->{data}{locked},
       JSON::PP::true, "and leaves its successor's lock alone");
    $up->release('b');
    is($next->response->status, 200, 'the successor ends');
};

subtest 'no lock' => sub {
    my $r = $t->delete('/servers/two/lock', %me);
    is($r->status, 200, 'DELETE: 200');
    is($r->body, $absent, 'DELETE: the text of the contract');
    is($r->header('Content-Type'), 'application/json', 'its Content-Type');

    $r = $t->get('/servers/two/lock', %me);
    is($r->status, 200, 'GET: 200');
    is($r->body, $unlocked, 'GET: not locked');

    $r = $t->request(HEAD => '/servers/two/lock', %me);
    is($r->status, 200, 'HEAD: 200');
    is($r->header('Content-Length'), length $unlocked, 'HEAD: the length');
};

subtest 'a stuck lock' => sub {
    stuck('two');
    is($t->get('/servers/two/lock', %me)->json->{data}{state}, 'stuck',
       'GET says so');
    is($t->request(HEAD => '/servers/two/lock', %me)->status, 200, 'HEAD');
    is($t->delete('/servers/two/lock', %you)->status, 404,
       'nobody else breaks it');
    is($t->get('/servers/two/lock', %me)->json->{data}{locked},
       JSON::PP::true, 'all that changed nothing');
    is($t->delete('/servers/two/lock', %me)->json->{data}{released},
       JSON::PP::true, 'DELETE breaks it');
};

subtest 'other methods' => sub {
    stuck('two');

    for my $method (qw(POST PUT PATCH OPTIONS TRACE PROPFIND COPY FOO delete))
    {
        my $r = $t->request($method => '/servers/two/lock', %me);

        # nginx refuses some of them before they come here.
        if ($method eq 'TRACE' || $method eq 'delete') {
            like($r->status, qr/^40[05]$/, "$method is refused by nginx");
            next;
        }

        is($r->status, 405, "$method: 405");
        is($r->header('Allow'), 'DELETE, GET, HEAD', "$method: Allow");
    }

    is($t->delete('/servers/two/lock', %me)->json->{data}{released},
       JSON::PP::true, 'none of them released the lock');
};

subtest 'a body is discarded' => sub {
    my $c = $t->connect;

    for (['a few bytes', body => '{"force":true}'],
         ['100 kB', body => 'x' x 100_000],
         ['an empty one', body => ''],
         ['chunked', chunks => ['DELETE / HTTP/1.1', 'x' x 5000]],
         ['expected', body => 'x' x 10, expect => 1])
    {
        my ($name, %how) = @$_;

        for my $method ('DELETE', 'GET') {
            my $r = http_request(method => $method, connection => $c, %me,
                                 uri => '/servers/two/lock', %how);
            is($r->status, 200, "$method, $name");
        }
    }

    is($c->available, '', 'nothing of it was taken for a request');

    my $r = http_request(method => 'POST', connection => $c, %me,
        uri => '/servers/two/lock', body => "GET /x HTTP/1.1\r\n\r\n" x 100);
    is($r->status, 405, 'nor of the body of a 405');
    $r = http_request(connection => $c, %me, uri => '/servers/two/lock');
    is($r->body, $unlocked, 'the connection goes on');
};

subtest 'connections' => sub {
    my $c = $t->connect;
    my $line = "/servers/two/lock HTTP/1.1\r\nHost: x\r\n"
               . "X-Api-Key: me key\r\n\r\n";

    $c->send_raw("DELETE ${line}GET ${line}POST ${line}DELETE ${line}");
    is($c->read_response->body, $absent, 'pipelined: DELETE');
    is($c->read_response->body, $unlocked, 'pipelined: GET');
    is($c->read_response->status, 405, 'pipelined: POST');
    is($c->read_response->body, $absent, 'pipelined: DELETE again');
    ok($c->is_open, 'kept alive');

    my $r = $t->delete('/servers/two/lock', %me, version => '1.0');
    is($r->status, 200, 'HTTP/1.0: 200');
    is($r->body, $absent, 'HTTP/1.0: the same body');
    ok($r->complete, 'HTTP/1.0: complete');

    $c = $t->connect;
    $c->send_raw("DELETE /servers/two/lock HTTP/1.0\r\n"
                 . "X-Api-Key: me key\r\n\r\n");
    is($c->read_response->body, $absent, 'HTTP/1.0 without Host');
    is($c->wait_closed, 'closed', 'and closed after it');
};

subtest 'headers that would change the answer' => sub {
    for (['Range', 'bytes=0-1'], ['If-Match', '"x"'], ['If-None-Match', '*'],
         ['If-Modified-Since', 'Fri, 01 Jan 2100 00:00:00 GMT'],
         ['If-Unmodified-Since', 'Thu, 01 Jan 1970 00:00:00 GMT'])
    {
        my $r = $t->delete('/servers/two/lock',
                           headers => { %{ $me{headers} }, @$_ });
        is($r->status . $r->body, "200$absent", "$_->[0] does not");
    }
};

subtest 'a server that is no more' => sub {
    stuck($_) for qw(dies leaves moves);

    registered({ id => 'two' }, { id => 'dies', deleted => JSON::PP::true },
             { id => 'moves', key => 'you' });
    $t->reload;

    is($t->post('/servers/dies/deploy', %me)->status, 404,
       'deleted: no operation');
    is($t->get('/servers/dies/lock', %me)->json->{data}{state}, 'stuck',
       'deleted: its owner sees its lock');
    is($t->delete('/servers/dies/lock', %you)->status, 404,
       'deleted: nobody else does');
    is($t->delete('/servers/dies/lock', %me)->json->{data}{released},
       JSON::PP::true, 'deleted: its owner breaks it');
    is($t->delete('/servers/dies/lock', %me)->body, $absent,
       'deleted: 200 without a lock as well');

    is($t->post('/servers/leaves/deploy', %me)->status, 404,
       'unknown now: no operation');
    is($t->delete('/servers/leaves/lock', %you)->status, 404,
       'unknown now: another account learns nothing');
    is($t->get('/servers/leaves/lock', %me)->json->{data}{state}, 'stuck',
       'unknown now: who locked it sees the lock');
    is($t->delete('/servers/leaves/lock', %me)->json->{data}{released},
       JSON::PP::true, 'unknown now: who locked it breaks it');
    is($t->delete('/servers/leaves/lock', %me)->status, 404,
       'unknown now: 404 from then on');

    is($t->post('/servers/moves/deploy', %you)->status, 409,
       'in new hands: busy with the lock of the old ones');
    is($t->get('/servers/moves/lock', %me)->json->{data}{locked},
       JSON::PP::true, 'in new hands: who locked it sees the lock');
    is($t->delete('/servers/moves/lock', %you)->json->{data}{released},
       JSON::PP::true, 'in new hands: the new owner breaks it');
};

subtest 'the access log' => sub {
    my $one = 'DELETE /servers/one/lock 200';

    ok($t->access_like(
        qr/^$one result=BROKEN age=\d+ token=\d+ operation=deploy$/m),
       'BROKEN, and what was');
    ok($t->access_like(qr/^$one result=ABSENT age=- token=- operation=-$/m),
       'ABSENT');
    ok($t->access_like(qr{^DELETE /servers/dies/lock 404 result=DENIED}m),
       'DENIED');
    ok($t->access_like(qr{^GET /servers/one/lock 200 result=- }m),
       'GET has no result');
};

$t->done;

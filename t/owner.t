#!/usr/bin/perl

# vibelock_owner, vibelock_server_found and vibelock_server_kind: a platform
# that knows by itself who calls, and whose server is whose.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Test::More;

use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $auth = Vibelock::Upstream::Auto->start(handler => sub {
    my ($request) = @_;

    my %h = map { $_ => $request->{headers}{$_}[0] }
            keys %{ $request->{headers} };

    return (401, {}, '') if ($h{'x-api-key'} // '') eq 'banned';
    return (204, {
        defined $h{'x-api-key'} ? ('X-Owner' => $h{'x-api-key'}) : (),
        'X-Found' => $h{'x-server'} // 1,
        'X-Kind'  => $h{'x-kind'} // 'STANDALONE',
    });
});
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port, AUTH => $auth->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;

    map $http_x_api_key $account {
        ""        "";
        "a key"   ann;
        "a key 2" ann;
        "b key"   bob;
        default   "";
    }
    map $arg_id:$account $owns {
        default    0;
        "~^a.*:ann" 1;
        "~^b.*:bob" 1;
    }
    map $arg_id $kind {
        default STANDALONE;
        "~host" GALAXY_HOST;
        "~app"  GALAXY_APP;
        "~low"  standalone;
        "~none" "";
    }

    # Neither a registry nor an owner: everybody's locks, and nobody's.
    server {
        listen 127.0.0.1:%%PORT_0%%;

        location /open/exec {
            vibelock exec zone=ops;
            vibelock_keep 1;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }

        # An owner alone.
        location /owner/ {
            vibelock exec zone=ops;
            vibelock_owner $account;
            vibelock_keep 1;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
        location = /owner/lock {
            vibelock off;
            vibelock_owner $account;
            vibelock_release zone=ops;
        }

        # And whose server it is.
        location /found/ {
            vibelock exec zone=ops;
            vibelock_owner $account;
            vibelock_server_found $owns;
            vibelock_keep 1;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
        location = /found/lock {
            vibelock_owner $account;
            vibelock_server_found $owns;
            vibelock_release zone=ops;
        }
        location /value/ {
            vibelock exec zone=ops;
            vibelock_owner me;
            vibelock_server_found $arg_found;
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }

        # And its kind.
        location = /kind/unstick {
            vibelock_owner $account;
            vibelock_server_found $owns;
            vibelock_server_kind $kind;
            vibelock_unstick zone=ops;
        }

        # All of that from auth_request.
        location /auth/ {
            auth_request /who;
            auth_request_set $auth_owner $upstream_http_x_owner;
            auth_request_set $auth_found $upstream_http_x_found;
            auth_request_set $auth_kind $upstream_http_x_kind;

            vibelock_owner $auth_owner;
            vibelock_server_found $auth_found;
            vibelock_server_kind $auth_kind;

            location /auth/exec {
                vibelock exec zone=ops;
                vibelock_keep 1;
                proxy_pass http://127.0.0.1:%%UPSTREAM%%;
            }
            location = /auth/lock {
                vibelock_release zone=ops;
            }
            location = /auth/unstick {
                vibelock_unstick zone=ops;
            }
        }
        location = /who {
            internal;
            proxy_pass http://127.0.0.1:%%AUTH%%;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }
    }
EOC
$t->start;

sub answer {
    my ($method, $uri, $key, @headers) = @_;

    my $r = $t->request($method, $uri,
        headers => [defined $key ? ['X-Api-Key', $key] : (), @headers]);

    return $r->status . ($r->body =~ /"code":"(\w+)"/ ? " $1" : '')
        . ($r->body =~ /"released":(\w+)/ ? " $1" : '')
        . ($r->body =~ /"locked":(\w+)/ ? " $1" : '');
}

sub post   { return answer(POST => @_) }
sub get    { return answer(GET => @_) }
sub delete { return answer(DELETE => @_) }

subtest 'neither registry nor owner' => sub {
    is(post('/open/exec?id=o1'), 200, 'locked');
    is(post('/open/exec?id=o1'), '409 EXEC_BUSY', 'and busy');
    is(post('/open/exec?id=o1', 'a key'), '409 EXEC_BUSY',
       'whatever key is shown');
    is(post('/owner/exec?id=o1', 'a key'), '409 EXEC_BUSY',
       'and where there are owners: it is not another\'s');
    is(&delete('/owner/lock?id=o1', 'a key'), '404 NOT_FOUND',
       'such a lock is nobody\'s to break');
};

subtest 'an owner alone' => sub {
    is(post('/owner/exec?id=p1'), '401 MISSING_API_KEY', 'empty: 401');
    is(&delete('/owner/lock?id=p1'), '401 MISSING_API_KEY',
       'empty: 401 at the endpoint');
    is(&delete('/owner/lock?id=p1', 'a key'), '200 false',
       'no lock, nothing to hide: 200');

    is(post('/owner/exec?id=p1', 'a key'), 200, 'locked');
    is(post('/owner/exec?id=p1', 'a key'), '409 EXEC_BUSY', 'busy');
    is(post('/owner/exec?id=p1', 'a key 2'), '409 EXEC_BUSY',
       'busy for another key of the same account');
    is(post('/owner/exec?id=p1', 'b key'), '404 NOT_FOUND',
       "another owner's lock answers 404");
    is(get('/owner/lock?id=p1', 'b key'), '404 NOT_FOUND',
       'at the endpoint as well');
    is(&delete('/owner/lock?id=p1', 'b key'), '404 NOT_FOUND',
       'and is not broken');
    is(get('/owner/lock?id=p1', 'a key'), '200 true', 'its owner sees it');
    is(&delete('/owner/lock?id=p1', 'a key 2'), '200 true',
       'and breaks it, with any key');
    is(post('/owner/exec?id=p1', 'b key'), 200, 'now it is the next one\'s');
    is(post('/owner/exec?id=p1', 'a key'), '404 NOT_FOUND',
       'and 404 for the first');
};

subtest 'whose server it is' => sub {
    is(post('/found/exec?id=a1'), '401 MISSING_API_KEY', '401 before 404');
    is(post('/found/exec?id=a1', 'b key'), '404 NOT_FOUND', '"0": 404');
    is(&delete('/found/lock?id=a1', 'b key'), '404 NOT_FOUND',
       '"0": 404 at the endpoint');
    is(post('/found/exec?id=a1', 'a key'), 200, '"1": locked');
    is(post('/found/exec?id=a1', 'a key'), '409 EXEC_BUSY', '"1": busy');
    is(post('/found/exec?id=a1', 'b key'), '404 NOT_FOUND',
       '404 before 409');
    is(&delete('/found/lock?id=a1', 'a key'), '200 true', '"1": released');

    is(post('/owner/exec?id=a2', 'b key'), 200,
       "a lock of who does not own the server");
    is(post('/found/exec?id=a2', 'a key'), '409 EXEC_BUSY',
       'makes its owner busy');
    is(&delete('/found/lock?id=a2', 'b key'), '200 true',
       'and is its own to release, server or not');
    is(&delete('/found/lock?id=a2', 'b key'), '404 NOT_FOUND',
       'once');

    is(post('/owner/exec?id=a3', 'b key'), 200, 'another such lock');
    is(&delete('/found/lock?id=a3', 'a key'), '200 true',
       'the owner of the server breaks that as well');

    for (['', 404], ['0', 404], ['1', 200], ['2', 404], ['true', 404],
         ['01', 404], ['1%20', 404])
    {
        my ($value, $status) = @$_;
        is($t->get("/value/ok?id=v&found=$value")->status, $status,
           "found \"$value\": $status");
    }
};

subtest 'its kind' => sub {
    my $galaxy = '409 GALAXY_UNSTICK_UNSUPPORTED';

    for (['a-alone', '200 true'], ['a-host', $galaxy], ['a-app', $galaxy],
         ['a-low', $galaxy], ['a-none', $galaxy])
    {
        my ($id, $expected) = @$_;
        is(post("/found/exec?id=$id", 'a key'), 200, "$id is locked");
        is(post("/kind/unstick?id=$id", 'a key'), $expected, "$id: $expected");
    }

    is(get('/found/lock?id=a-host', 'a key'), '200 true',
       'nothing was released there');
    is(post('/kind/unstick?id=a-host', 'b key'), '404 NOT_FOUND',
       'a stranger does not learn the kind');
};

subtest 'auth_request' => sub {
    my $lost = ['X-Server', 0];

    is(post('/auth/exec?id=r1', 'banned'), 401, 'its 401 comes first');
    is(post('/auth/exec?id=r1'), '401 MISSING_API_KEY', 'no owner: 401');
    is(post('/auth/exec?id=r1', 'cy', $lost), '404 NOT_FOUND',
       'not found: 404');
    is(post('/auth/exec?id=r1', 'cy'), 200, 'locked');
    is(post('/auth/exec?id=r1', 'cy'), '409 EXEC_BUSY', 'busy');
    is(post('/auth/unstick?id=r1', 'cy', ['X-Kind', 'GALAXY_HOST']),
       '409 GALAXY_UNSTICK_UNSUPPORTED', 'kind');
    is(&delete('/auth/lock?id=r1', 'cy', $lost), '200 true',
       'released, although the server is gone');
    is(post('/auth/exec?id=r1', 'cy'), 200, 'locked again');
    is(post('/auth/unstick?id=r1', 'cy'), '200 true', 'unstuck');
    is(&delete('/auth/lock?id=r1', 'dee'), '200 false', 'no lock');
};

my $log = $t->error_log;
ok($log =~ /owner ([0-9a-f]{8})\b/, 'the log names an owner');
ok((grep { sha256_hex($_) =~ /^$1/ } qw(ann bob cy me)),
   'by the beginning of a digest of the account, not of the key');

$t->done;

#!/usr/bin/perl

# Where directives hold: inheritance, "off", nested locations, if and
# limit_except.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start(handler => sub {
    my ($request) = @_;
    return (200, { 'X-Keep' => $request->{headers}{'x-keep'}[0] // 1 }, 'up');
});
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_zone $arg_id zone=other:1m;

    vibelock base zone=ops;
    vibelock_ttl json=timeout default=10s;
    vibelock_keep $upstream_http_x_keep;
    vibelock_retry_after 1s;
    vibelock_owner me;
    vibelock_server_found 0;
    vibelock_server_kind $arg_kind;

    map $arg_id $known { default 1; }
EOC

my $pass = 'proxy_pass http://127.0.0.1:%%UPSTREAM%%;';

$t->server(<<"EOC");
    vibelock_server_found \$known;

    location / { $pass }
    location /deploy { vibelock deploy zone=ops; $pass }
    location /ttl { vibelock_ttl 20s; $pass }
    location /keep { vibelock_keep ""; $pass }
    location /retry { vibelock_retry_after 1h; $pass }
    location /other { vibelock exec zone=other; $pass }
    location /owner { vibelock_owner you; $pass }
    location /off {
        vibelock off;
        $pass

        location /off/in { $pass }
        location /off/on { vibelock inner zone=ops; $pass }
    }
    location /outer {
        vibelock outer zone=ops;
        vibelock_ttl 30s;

        location /outer/in { $pass }
        location /outer/deep {
            vibelock deep zone=ops;
            location /outer/deep/er { $pass }
        }
    }
    location /if {
        if (\$arg_if) {
            $pass
        }
        $pass
    }
    location /if/off {
        vibelock off;
        if (\$arg_if) {
            $pass
        }
        $pass
    }
    location /except {
        limit_except GET {
            deny 127.0.0.2;
        }
        $pass
    }
    location = /lock { vibelock_release zone=ops; }
    location = /lock/other { vibelock_release zone=other; }
    location = /lock/if {
        if (\$arg_if) { set \$x 1; }
        vibelock_release zone=ops;
    }
    location = /lock/except {
        limit_except DELETE { deny all; }
        vibelock_release zone=ops;
    }
    location /lock/outer/ {
        vibelock_release zone=ops;
        location /lock/outer/in { $pass }
    }
    location = /unstick { vibelock_unstick zone=ops; }
    location = /unstick/if {
        vibelock_unstick zone=ops;
        if (\$arg_if) { set \$x 1; }
    }
    location = /unstick/except {
        vibelock_unstick zone=ops;
        limit_except POST { deny all; }
    }
    location /unstick/outer/ {
        vibelock_unstick zone=ops;
        location /unstick/outer/in { $pass }
    }
    location /status/outer/ {
        vibelock_status;
        location /status/outer/in { $pass }
    }
EOC

$t->start;

my $n = 0;

# The lock that a request left: "operation TTL", or what was not.

sub lock_of {
    my ($uri, $lock) = @_;

    my $id = ++$n;
    my $r = $t->post("$uri?id=$id");
    my $data = $t->delete(($lock // '/lock') . "?id=$id")->json->{data};

    return $r->describe if $r->status != 200;
    return 'none' if !$data->{released};
    return "$data->{operation} "
        . ($data->{ageMs} + $data->{expiresInMs}) / 1000;
}

subtest 'inheritance' => sub {
    is(lock_of('/'), 'base 10', 'all of it from http');
    is(lock_of('/deploy'), 'deploy 10', 'another operation');
    is(lock_of('/ttl'), 'base 20', 'another TTL, of the other form');
    is(lock_of('/keep'), 'none', 'another vibelock_keep replaces all of it');
    is(lock_of('/other'), 'none', 'another zone is not this one');
    is(lock_of('/other', '/lock/other'), 'exec 10', 'but that one');

    $t->post('/?id=retry');
    is($t->post('/?id=retry')->header('Retry-After'), 1, 'Retry-After');
    cmp_ok($t->post('/retry?id=retry')->header('Retry-After'), '>=', 4,
           'another one');
    is($t->post('/owner?id=retry')->status, 409,
       'another owner, of a server that is found');
};

subtest 'off' => sub {
    is(lock_of('/off'), 'none', 'off');
    is(lock_of('/off/in'), 'none', 'and in the locations in it');
    is(lock_of('/off/on'), 'inner 10', 'and on again in there');
};

subtest 'nested locations' => sub {
    is(lock_of('/outer/in'), 'outer 30', 'as the one around');
    is(lock_of('/outer/deep/er'), 'deep 30', 'as the nearest one around');
    is(lock_of('/lock/outer/in'), 'base 10',
       'a release is not inherited, the guard around it is');
    is($t->delete('/lock/outer/?id=x')->status, 200, 'the release itself is');
    is(lock_of('/unstick/outer/in'), 'base 10', 'nor is unstick');
    is(lock_of('/status/outer/in'), 'base 10', 'nor is the status');
    is($t->get('/status/outer/?id=x')->status, 200, 'which has no guard');
};

subtest 'if and limit_except' => sub {
    is($t->post('/if?id=if&if=1')->status, 200, 'if: locked');
    is($t->post('/if?id=if')->status, 409, 'if: busy outside');
    is($t->post('/if?id=if&if=1')->status, 409, 'if: busy inside');
    is($t->post('/if/off?id=if&if=1')->status, 200, 'if: off inside too');
    is($t->delete('/lock/if?id=if&if=1')->json->{data}{released},
       JSON::PP::true, 'if: beside a release');

    is($t->post('/except?id=except')->status, 200, 'limit_except: locked');
    is($t->post('/except?id=except')->status, 409, 'limit_except: busy');
    is($t->get('/except?id=except')->status, 409,
       'limit_except: busy for the other methods');
    is($t->get('/lock/except?id=except')->status, 403,
       'limit_except: keeps methods from a release');
    is($t->delete('/lock/except?id=except')->json->{data}{released},
       JSON::PP::true, 'limit_except: lets others pass');

    $t->post('/?id=unstick');
    is($t->post('/unstick/if?id=unstick&if=1&kind=STANDALONE')
       ->json->{data}{released}, JSON::PP::true, 'if: beside unstick');
    $t->post('/?id=unstick');
    is($t->get('/unstick/except?id=unstick')->status, 403,
       'limit_except: keeps methods from unstick');
    is($t->post('/unstick/except?id=unstick&kind=STANDALONE')
       ->json->{data}{released}, JSON::PP::true,
       'limit_except: lets POST pass');
};

subtest 'release and unstick in a server that is guarded' => sub {
    is($t->post('/?id=busy')->status, 200, 'locked');
    is($t->post('/unstick?id=busy&kind=STANDALONE')->json->{data}{released},
       JSON::PP::true, 'unstick does not wait for what it breaks');
    is($t->post('/?id=busy')->status, 200, 'locked again');
    is($t->delete('/lock?id=busy')->json->{data}{released}, JSON::PP::true,
       'nor does release');
};

$t->done;

#!/usr/bin/perl

# When a request is guarded: after what decides on access, before the content;
# and never for a subrequest.

use strict;
use warnings;

use Test::More;

use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start(handler => sub {
    my ($request) = @_;

    my ($status) = $request->{uri} =~ m{/status/(\d+)};

    return ($status // 200, { 'Content-Type' => 'text/html' },
        $request->{uri} =~ m{^/ssi}
            ? 'a<!--#include virtual="/held/part?id=ssi" -->z' : 'up');
});
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_owner me;
    vibelock_keep $arg_keep;
    limit_req_zone $server_name zone=limit:1m rate=1r/m;

    upstream platform {
        server 127.0.0.1:%%UPSTREAM%%;
    }
EOC
$t->server(<<'EOC');
    location /held {
        vibelock held zone=ops;
        proxy_pass http://platform;
    }
    location = /lock {
        vibelock_release zone=ops;
    }

    location /return {
        vibelock exec zone=ops;
        return 200 "returned\n";
    }
    location /rewrite {
        vibelock exec zone=ops;
        rewrite ^ /plain last;
    }
    location /deny {
        vibelock exec zone=ops;
        deny all;
        proxy_pass http://platform;
    }
    location /limit {
        vibelock exec zone=ops;
        limit_req zone=limit;
        proxy_pass http://platform;
    }
    location /auth-401 {
        vibelock exec zone=ops;
        auth_request /status/401;
        proxy_pass http://platform;
    }
    location /satisfy {
        vibelock exec zone=ops;
        satisfy any;
        deny all;
        auth_request /status/204;
        proxy_pass http://platform;
    }
    location /satisfy-not {
        vibelock exec zone=ops;
        satisfy any;
        deny all;
        auth_request /status/403;
        proxy_pass http://platform;
    }
    location /small {
        vibelock exec zone=ops;
        client_max_body_size 10;
        proxy_pass http://platform;
    }
    location /status/ {
        internal;
        proxy_pass http://platform;
    }
    location /plain {
        proxy_pass http://platform;
    }

    location /auth {
        vibelock exec zone=ops;
        auth_request /held/auth;
        proxy_pass http://platform;
    }
    location /mirror {
        vibelock exec zone=ops;
        mirror /held/mirror;
        proxy_pass http://platform;
    }
    location /ssi {
        vibelock exec zone=ops;
        ssi on;
        proxy_pass http://platform;
    }
    location /ssi-plain {
        ssi on;
        proxy_pass http://platform;
    }
    location /add {
        vibelock exec zone=ops;
        add_before_body /held/before;
        add_after_body /held/after;
        proxy_pass http://platform;
    }
EOC
$t->start;

sub locked {
    my ($id) = @_;

    return $t->get("/lock?id=$id")->json->{data}{locked} ? 1 : 0;
}

# The uris that came to the upstream while the block ran.

sub went_upstream (&) {
    my ($block) = @_;

    my $before = () = $up->requests;
    $block->();
    my @requests = $up->requests;

    return join ' ', sort map { $_->{uri} } @requests[$before .. $#requests];
}

is($t->post('/held?id=1&keep=1')->status, 200, 'a lock is held');

subtest 'what answers before the guard' => sub {
    my $r = $t->post('/return?id=1');
    is($r->body, "returned\n", 'return');
    is($t->post('/rewrite?id=1')->status, 200,
       'rewrite to a location without a guard');
    is($t->post('/deny?id=1')->status, 403, 'deny');
    is($t->post('/auth-401?id=1')->status, 401, 'auth_request');
    is($t->post('/satisfy-not?id=1')->status, 403, 'satisfy');
    is($t->post('/small?id=1', body => 'x' x 11)->status, 413,
       'client_max_body_size');
    is($t->post('/limit?id=1')->status, 409,
       'limit_req lets the first one come to the guard');
    is($t->post('/limit?id=1')->status, 503, 'and the second not');
    unlike($t->post('/limit?id=1')->body, qr/LOCK_ZONE_FULL/, 'with its own 503');

    ok($t->access_like(qr{^POST /$_\?id=1 \d+ result=- }m),
       "$_ leaves no result")
        for qw(return deny auth-401 satisfy-not small);
};

subtest 'what they refuse locks nothing' => sub {
    is($t->post('/deny?id=2')->status, 403, 'deny');
    ok(!locked(2), 'no lock');
    is($t->post('/auth-401?id=2&keep=1')->status, 401, 'auth_request');
    ok(!locked(2), 'no lock');
};

subtest 'what they let pass is guarded' => sub {
    is($t->post('/satisfy?id=1')->status, 409, 'satisfy: busy');
    is($t->post('/satisfy?id=2')->status, 200, 'satisfy: free');
    is($t->post('/small?id=1', body => 'x' x 10)->status, 409, 'a small body');
};

subtest 'OPTIONS' => sub {
    is($t->request(OPTIONS => '/held?id=1')->status, 200,
       'passes while the lock is held');
    is($t->request(OPTIONS => '/held?id=3&keep=1')->status, 200,
       'passes when it is free');
    ok(!locked(3), 'and takes none');
};

subtest 'auth_request to a guarded location' => sub {
    my $uris = went_upstream {
        is($t->post('/auth?id=4&keep=1')->status, 200, 'passes');
    };
    is($uris, '/auth?id=4&keep=1 /held/auth', 'both go upstream');
    is($t->get('/lock?id=4')->json->{data}{operation}, 'exec',
       'the lock is the main request\'s');
    is($t->post('/auth?id=4')->status, 409, 'and busy for the next one');
};

subtest 'mirror' => sub {
    my $uris = went_upstream {
        is($t->post('/mirror?id=5&keep=1', body => 'x')->status, 200,
           'passes');
        ok(wait_for { grep { $_->{uri} =~ m{^/held/mirror} } $up->requests },
           'the mirror gets it');
    };
    is($uris, '/held/mirror?id=5&keep=1 /mirror?id=5&keep=1',
       'it does not meet the lock of its request');
    is($t->get('/lock?id=5')->json->{data}{operation}, 'exec',
       'nor changes it');

    $uris = went_upstream {
        is($t->post('/mirror?id=5', body => 'x')->status, 409, 'busy');
    };
    is($uris, '', 'who is refused is not mirrored');
};

subtest 'SSI' => sub {
    is($t->get('/ssi?id=ssi')->body, 'aupz',
       'a part does not meet the lock of its page');
    ok(!locked('ssi'), 'which is free when it is over');

    $t->post('/held?id=ssi&keep=1');
    is($t->get('/ssi-plain')->body, 'aupz',
       'a part is not guarded at all');
    is($t->get('/ssi?id=ssi')->status, 409, 'its page is');
    ok(locked('ssi'), 'and no part released what was held');
};

subtest 'parts before and after a body' => sub {
    is($t->get('/add?id=6')->body, 'upupup', 'pass');
    ok(!locked(6), 'and leave no lock');
    ok($t->access_like(qr{^GET /add\?id=6 200 result=RELEASED}m),
       'but that of the main request, released');
};

$t->done;

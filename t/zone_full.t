#!/usr/bin/perl

# A zone without room: nothing that runs is harmed, and what is over makes room.

use strict;
use warnings;

use Test::More;

use Vibelock::Http qw(http_request);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start(handler => sub { return 200 });
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=tiny:32k sweep=1d;
    vibelock_zone $arg_id zone=other:32k;
    vibelock_owner me;
    vibelock_keep 1;
    vibelock_ttl 1h;
    vibelock_retry_after 2s;
    proxy_http_version 1.1;

    upstream platform {
        server 127.0.0.1:%%UPSTREAM%%;
        keepalive 1;
    }
EOC
$t->server(<<'EOC');
    location /exec {
        vibelock exec zone=tiny;
        proxy_pass http://platform;
    }
    location /short {
        vibelock exec zone=tiny;
        vibelock_ttl 300ms;
        proxy_pass http://platform;
    }
    location /json {
        vibelock exec zone=tiny;
        vibelock_ttl json=timeout;
        proxy_pass http://platform;
    }
    location /dry {
        vibelock exec zone=tiny;
        vibelock_dry_run on;
        proxy_pass http://platform;
    }
    location /other {
        vibelock exec zone=other;
        proxy_pass http://platform;
    }
    location = /lock {
        vibelock_release zone=tiny;
    }
EOC
$t->start;

my $c = $t->connect;

sub post {
    my ($uri, %how) = @_;

    return http_request(method => 'POST', uri => $uri, connection => $c, %how);
}

# Takes locks until there is no room; returns their ids.

sub fill {
    my ($uri, $name) = @_;

    my @ids;

    for my $n (1 .. 2000) {
        my $id = sprintf '%s-%032d', $name, $n;
        return @ids if post("$uri?id=$id")->status == 503;
        push @ids, $id;
    }

    die 'the zone has no end';
}

my @held = fill('/exec', 'one');

cmp_ok(scalar @held, '>', 50, 'fifty locks and more fit into 32k');

subtest 'no room' => sub {
    my $r = post('/exec?id=more');

    is($r->status, 503, 'status');
    is($r->body =~ s/[12]\}\}$/N}}/r,
       '{"success":false,"error":{"code":"LOCK_ZONE_FULL",'
       . '"message":"There is no memory for another lock; nothing was'
       . ' started",'
       . '"hint":"Repeat the request after retryAfter seconds",'
       . '"retryAfter":N}}', 'body');
    like($r->header('Retry-After'), qr/^[12]$/, 'Retry-After');
    is($r->json->{error}{retryAfter}, $r->header('Retry-After'), 'mirrored');
    is($r->header('Content-Type'), 'application/json', 'Content-Type');
    is($r->header('Cache-Control'), 'no-store', 'Cache-Control');
    ok($t->access_like(qr{^POST /exec\?id=more 503 result=FULL}m), 'FULL');

    is(post("/exec?id=$held[0]")->status, 409, '409 comes before 503');
    is(post('/json?id=more', body => 'x')->status, 400, '400 does as well');
    is(post('/json?id=more', body => '{"timeout":5}')->status, 503,
       '503 after a good body');
    is(post('/dry?id=more')->status, 200, 'a dry run goes on');
    ok($t->access_like(qr{^POST /dry\?id=more 200 result=FULL_DRY_RUN}m),
       'FULL_DRY_RUN');
    is(post('/other?id=more')->status, 200, 'another zone has room');
};

subtest 'nothing that is held is harmed' => sub {
    my @lost = grep {
        http_request(uri => "/lock?id=$_", connection => $c)->body
            !~ /"locked":true/;
    } @held;
    is_deeply(\@lost, [], 'every lock is there');

    my $id = shift @held;
    is($t->delete("/lock?id=$id")->json->{data}{released},
       JSON::PP::true, 'one is broken');
    is(post("/exec?id=$id")->status, 200, 'and makes room for one');
    is(post('/exec?id=' . 'x' x 36)->status, 503, 'and no more');
    push @held, $id;
};

subtest 'once a minute in the log' => sub {
    my @lines = $t->error_log =~ /(\[\w+\] .*zone "tiny" is full.*)/g;

    is(scalar @lines, 1, 'one line');
    like($lines[0],
         qr/^\[warn\].*: zone "tiny" is full, no lock for operation "exec"; give the zone more memory/,
         'that says what to do');
};

subtest 'long keys take more room' => sub {
    $t->delete("/lock?id=$_") for splice @held, 0, 3;

    is(post('/exec?id=' . 'x' x 255)->status, 200, 'one for three short ones');
    is($t->delete('/lock?id=' . 'x' x 255)->json->{data}{released},
       JSON::PP::true, 'and all of it comes back');

    my @short = map { sprintf 'short-%030d', $_ } 1 .. 3;
    is(post("/exec?id=$_")->status, 200, "for $_") for @short;
    is(post('/exec?id=' . 'x' x 36)->status, 503, 'and no more');
    push @held, @short;
};

subtest 'what has expired makes room, swept or not' => sub {
    $t->delete("/lock?id=$_") for splice @held, 0, 20;

    my @short = map { sprintf 'brief-%030d', $_ } 1 .. 20;
    my @took = grep { post("/short?id=$_")->status == 200 } @short;
    is(scalar @took, 20, 'twenty short locks');

    my @more = map { sprintf 'after-%030d', $_ } 1 .. 20;
    my @got = grep {
        my $id = $_;
        wait_for { post("/exec?id=$id")->status == 200 };
    } @more;
    is(scalar @got, 20, 'make room for twenty others when they are over');

    is(post('/exec?id=' . 'z' x 36)->status, 503, 'then it is full again');

    my @lost = grep {
        http_request(uri => "/lock?id=$_", connection => $c)->body
            !~ /"locked":true/;
    } @held;
    is_deeply(\@lost, [], 'no other lock went for it');
};

$t->done;

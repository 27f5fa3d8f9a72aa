#!/usr/bin/perl

# A reload with another key or size is refused, and what ran runs on.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->server(<<'EOC');
    location /exec {
        vibelock exec zone=ops;
        vibelock_keep $upstream_http_x_operation_running;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location = /lock {
        vibelock_owner me;
        vibelock_server_found 1;
        vibelock_release zone=ops;
    }
EOC

sub zone {
    my (@lines) = @_;

    return $t->http(join "\n", 'vibelock_owner me;', @lines);
}

zone('vibelock_zone $arg_id zone=ops:1m;');
$t->start;

my $kept = { 'X-Upstream' => 'running' };

is($t->post('/exec?id=kept', headers => $kept)->status, 200, 'a stuck lock');
my $running = $t->async(POST => '/exec?id=runs',
                        headers => { 'X-Upstream' => 'park/one' });
$up->wait_requests(2);

sub refused {
    my ($line, $pattern, $name) = @_;

    zone($line);

    return subtest $name => sub {
        my $text = $t->reload_fails;
        my @lines = grep { /\[emerg\]/ } split /\n/, $text;

        is(scalar @lines, 1, 'one sentence');
        like($text, $pattern, 'which says why');
        is($t->post('/exec?id=kept')->status, 409, 'the stuck lock is there');
        is($t->post('/exec?id=runs')->status, 409, 'the running one too');
        is($t->post('/exec?id=new')->status, 200, 'a new one may come and go');
    };
}

refused('vibelock_zone $arg_server zone=ops:1m;',
    qr/"vibelock_zone" "ops" has the key "\$arg_server" while its locks were taken with "\$arg_id"; restart nginx to change the key/,
    'another key');

refused('vibelock_zone $arg_id$arg_id zone=ops:1m;', qr/has the key/,
    'a longer key');

refused('vibelock_zone $arg_i zone=ops:1m;', qr/has the key/,
    'the beginning of the key');

refused('vibelock_zone $arg_id zone=ops:2m;',
    qr/"vibelock_zone" "ops" has 2097152 bytes while its locks are held in 1048576; restart nginx to change the size/,
    'more memory');

refused('vibelock_zone $arg_id zone=ops:512k;',
    qr/has 524288 bytes while its locks are held in 1048576/,
    'less memory');

refused('vibelock_zone $arg_id zone=ops:1m; vibelock_zone x zone=ops:1m;',
    qr/"vibelock_zone" "ops" is defined twice/, 'a second definition');

refused('vibelock_zone $arg_id zone=opsy:1m;',
    qr/no "vibelock_zone" defines the zone "ops" that is used/,
    'another name');

refused('limit_req_zone $arg_id zone=ops:1m rate=1r/s;
         vibelock_zone $arg_id zone=o:1m;',
    qr/no "vibelock_zone" defines the zone "ops"/,
    'the zone of another module');

subtest 'what a reload may change' => sub {
    zone('vibelock_zone $arg_id zone=ops:1024k sweep=10s;');
    $t->reload;
    is($t->post('/exec?id=kept')->status, 409, 'sweep, and how a size is told');

    zone('vibelock_zone $arg_x zone=first:64k;',
         'vibelock_zone $arg_id zone=ops:1m;');
    $t->reload;
    is($t->post('/exec?id=kept')->status, 409, 'a zone is added');

    zone('vibelock_zone $arg_id zone=ops:1m;');
    $t->reload;
    is($t->post('/exec?id=kept')->status, 409, 'and taken away');
    is($t->post('/exec?id=runs')->status, 409,
       'the running lock is there through all of this');

    $up->release('one');
    is($running->response->status, 200, 'until its operation ends');
    is($t->post('/exec?id=runs')->status, 200, 'and frees it');
};

subtest 'a restart changes anything' => sub {
    ok($t->quit, 'nginx stops');
    zone('vibelock_zone $arg_server zone=ops:2m;');
    $t->start;
    is($t->post('/exec?server=kept', headers => $kept)->status, 200,
       'and starts with another key and size');
    is($t->post('/exec?server=kept')->status, 409, 'which it locks by');
};

subtest 'a zone of another module' => sub {
    zone('limit_req_zone $arg_id zone=ops:2m rate=1r/s;',
         'vibelock_zone $arg_server zone=ops:2m;');
    like($t->reload_fails,
         qr/the shared memory zone "ops" is already declared for a different use/,
         'has its name already');
    is($t->post('/exec?server=kept')->status, 409, 'what ran runs on');
};

$t->done;

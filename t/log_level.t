#!/usr/bin/perl

# vibelock_log_level: how loud the lines about locks are.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

my @levels = qw(info notice warn error);

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_owner me;
    vibelock_keep 1;
EOC
$t->server(join "\n",
    'location /default { vibelock exec zone=ops;
                         proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
     location = /lock/default { vibelock_release zone=ops; }',
    map {
        "location /$_ {
             vibelock exec zone=ops;
             vibelock_log_level $_;
             proxy_pass http://127.0.0.1:%%UPSTREAM%%;
         }
         location = /lock/$_ {
             vibelock_release zone=ops;
             vibelock_log_level $_;
         }"
    } @levels);
$t->start;

for my $level ('default', @levels) {
    my $word = $level eq 'default' ? 'warn' : $level;

    is($t->post("/$level/ok?id=$level")->status, 200, "$level: a lock is kept");
    ok($t->log_like(qr/\[$word\] .*vibelock: lock is stuck: vibelock_keep says so, zone "ops", key "$level", operation "exec", owner [0-9a-f]{8}, age \d+ ms/),
       "$level: \"is stuck\" is [$word]");

    is($t->delete("/lock/$level?id=$level")->status, 200, "$level: and broken");
    ok($t->log_like(qr/\[$word\] .*vibelock: lock is broken: by DELETE, zone "ops", key "$level", operation "exec", owner [0-9a-f]{8}, age \d+ ms/),
       "$level: \"is broken\" is [$word]");
}

$t->log_mark;
is($t->delete('/lock/warn?id=none')->status, 200, 'a lock that is not there');
unlike($t->error_log, qr/vibelock:/, 'leaves no line');

$t->done;

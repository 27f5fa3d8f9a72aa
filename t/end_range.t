#!/usr/bin/perl

# A range that cannot be had, or a condition that does not hold: nginx answers
# of its own and reads the upstream's response no further.  That is the client's
# doing, who may not free a lock by a header.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of lock_at gate);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Util qw(limit);

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);
my $ttl = limit(1);

# nginx looks at conditions only where an answer may go into its cache.

$t->set(UPSTREAM => $up->port, TTL => $ttl);
$t->http(gate() . <<'EOC');
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
    proxy_cache_key $arg_id;
    upstream two {
        server 127.0.0.1:%%UPSTREAM%%;
        server 127.0.0.1:%%UPSTREAM%%;
    }
EOC
$t->server(<<'EOC');
    listen 127.0.0.1:%%PORT_1%% sndbuf=4k;
    vibelock exec zone=z;
    proxy_force_ranges on;

    location / {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /cached {
        proxy_cache c;
        proxy_cache_valid 200 1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /never {
        proxy_cache c;
        proxy_no_cache 1;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /passed {
        proxy_cache c;
        proxy_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /page {
        proxy_cache c;
        error_page 412 /412.html;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /empty {
        error_page 416 = @instead;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /own {
        error_page 416 = @off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /renamed {
        error_page 416 = /of/no/server;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /late {
        error_page 416 = @late;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /late/dry {
        vibelock_dry_run on;
        error_page 416 = @dry;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /late/enforced {
        vibelock_dry_run on;
        error_page 416 = @other;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @late {
        auth_request /auth;
        proxy_set_header X-Token "token=$vibelock_token";
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @dry {
        vibelock_dry_run on;
        auth_request /auth;
        proxy_set_header X-Token "token=$vibelock_token";
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @other {
        vibelock other zone=z;
        auth_request /auth;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location = /auth {
        proxy_set_header Range '';
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @off {
        vibelock off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /other {
        proxy_cache c;
        error_page 412 416 = @instead;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /long {
        vibelock_ttl %%TTL%%s;
        vibelock_overrun on;
        proxy_cache c;
        error_page 412 416 = @instead;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /says {
        vibelock_ttl %%TTL%%s;
        vibelock_overrun on;
        vibelock_keep $upstream_http_x_running;
        error_page 416 = @instead;
        proxy_pass http://two;
    }
    location /before/page {
        vibelock off;
        proxy_cache c;
        error_page 412 416 /412.html?id=$arg_id;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /before/large {
        vibelock off;
        proxy_cache c;
        error_page 412 416 /large.html?id=$arg_id;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /before/none {
        vibelock off;
        proxy_cache c;
        error_page 412 416 = /empty.html?id=$arg_id;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /before/other {
        vibelock off;
        proxy_cache c;
        error_page 412 = @instead;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /none {
        proxy_cache c;
        proxy_buffering off;
        error_page 412 416 = @none;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /silent {
        proxy_cache c;
        error_page 412 416 = @silent;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @none   { return 204; }
    location @silent { return 444; }
    location @instead {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ html$ {
        root %%DIR%%;
    }
EOC
$t->write_file('412.html', 'no');
$t->write_file('large.html', 'x' x 4_000_000);
$t->write_file('empty.html', '');
$t->start;

my $n = 0;

sub begin {
    my ($where, $name, $value, %how) = @_;

    my $uri = "$where?id=" . ++$n;
    my $pending = $t->connect(%how);
    $pending->send_request(GET => $uri, headers => { $name => $value,
                                                     Connection => 'close' });
    my $x = $up->accept_request;

    $x->send_head(200, { 'Content-Length' => 1000, ETag => '"a"',
                         'Last-Modified' => 'Thu, 01 Jan 2026 00:00:00 GMT' });
    $x->send('a few bytes');

    return ($uri, $x, $pending);
}

my @cases = (
    ['Range',               'bytes=9999-',                   416],
    ['If-Match',            '"b"',                           412],
    ['If-Unmodified-Since', 'Thu, 01 Jan 2015 00:00:00 GMT', 412],
    ['If-None-Match',       '*',                             304],
    ['If-Modified-Since',   'Thu, 01 Jan 2026 00:00:00 GMT', 304],
);

for my $where (qw(/ /cached /never /passed /page)) {
    for my $case (@cases) {
        my ($name, $value, $status) = @$case;

        next if $where eq '/' && $name ne 'Range';

        # It reads on, for its cache.
        next if $where eq '/cached' && $status == 304;

        my ($uri, $x, $pending) = begin($where, $name, $value);
        is($pending->response->status, $status, "$where: $name");
        ends($t, $uri, 'KEPT', 'the operation may still run');
        $x->close;
    }
}

{
    my ($uri, $x, $pending) = begin('/cached', 'If-None-Match', '*');
    is($pending->response->status, 304, 'nothing new for the client');
    is(lock_of($t, $n), 'running', 'nginx reads on');
    $x->send('x' x 989);
    ends($t, $uri, 'RELEASED', 'all of it is in the cache');
    $x->close;
}

# Nor may that be undone by what another upstream answers.

for my $case (grep { $_->[2] != 304 } @cases) {
    my ($name, $value) = @$case;

    my ($uri, $x, $pending) = begin('/other', $name, $value);
    my $y = $up->accept_request;
    is(lock_of($t, $n), 'running', "$name: another upstream is asked");
    $y->respond(200, {}, 'body of another');
    $pending->response;
    ends($t, $uri, 'KEPT', 'the operation may still run');
    $x->close;
}

# Which runs with the lock for as long as it takes.

for my $case (grep { $_->[2] != 304 } @cases) {
    my ($name, $value) = @$case;

    my ($uri, $x, $pending) = begin('/long', $name, $value);
    my $y = $up->accept_request;

    # Past its TTL a lock that was stuck would be gone.

    my $late = wait_for { (lock_at($t, $n)->{ageMs} // 1e9) > 1000 * $ttl };

    ok($late, "$name: another upstream takes longer than the TTL");
    is(lock_of($t, $n), 'running', 'the lock is there');
    $y->respond(200, {}, 'body of another');
    $pending->response;
    ends($t, $uri, 'KEPT', 'the operation may still run');
    cmp_ok(lock_at($t, $n)->{expiresInMs}, '>', 0, 'for another TTL');
    $x->close;
}

# So does what comes instead of an empty answer that keeps the lock.

for my $case (['it says so', { 'X-Running' => 1 }],
              ['a try before it', {}, sub { $up->accept_request->close }])
{
    my ($name, $headers, $before) = @$case;

    my $uri = '/says?id=' . ++$n;
    my $pending = $t->async(GET => $uri, headers => { Range => 'bytes=1-' });
    $before->() if $before;
    $up->accept_request->respond(200, $headers);
    my $y = $up->accept_request;

    my $late = wait_for { (lock_at($t, $n)->{ageMs} // 1e9) > 1000 * $ttl };

    ok($late, "an empty answer, $name: another takes longer than the TTL");
    is(lock_of($t, $n), 'running', 'the lock is there');
    $y->respond(200, {}, 'body of another');
    $pending->response;
    ends($t, $uri, 'KEPT', 'as it had to be');
}

# What ran before there was a lock has nothing to do with it.

for my $where (qw(/before/page /before/none)) {
    for my $case (grep { $_->[2] != 304 } @cases) {
        my ($name, $value) = @$case;

        my ($uri, $x, $pending) = begin($where, $name, $value);
        $pending->read_rest;
        ends($t, $uri, 'RELEASED', "$where: $name");
        $x->close;
    }
}

for my $case (grep { $_->[2] != 304 } @cases) {
    my ($name, $value) = @$case;

    my ($uri, $x, $pending) = begin('/before/large', $name, $value,
                                    port => $t->port(1), rcvbuf => 4096);
    ok($pending->await(qr/xxx/), "$name: a part of a file");
    $pending->close;
    ends($t, $uri, 'RELEASED', 'a client that does not read all of it');
    $x->close;
}

for my $case (grep { $_->[2] == 412 } @cases) {
    my ($name, $value) = @$case;

    for my $how (['RELEASED', sub { shift->respond(200, {}, 'of another') }],
                 ['RELEASED', sub { shift->respond(204) }],
                 ['KEPT', sub { shift->close }],
                 ['KEPT', sub { my $y = shift;
                                $y->send_head(200, { 'Content-Length' => 9 });
                                $y->send('a few'); $y->close }])
    {
        my ($result, $end) = @$how;
        my ($uri, $x, $pending) = begin('/before/other', $name, $value);
        my $y = $up->accept_request;
        is(lock_of($t, $n), 'running', "$name: a lock for another upstream");
        $end->($y);
        $pending->read_rest;
        ends($t, $uri, $result, 'as that one ends');
        $x->close;
    }
}

# Nor by an answer without a body, or by none.

for my $where (qw(/none /silent)) {
    for my $case (grep { $_->[2] != 304 } @cases) {
        my ($name, $value) = @$case;

        my ($uri, $x, $pending) = begin($where, $name, $value);
        $pending->read_rest;
        ends($t, $uri, 'KEPT', "$where: $name");
        $x->close;
    }
}

# The whole of an empty answer is there with its header, which frees the lock.
# What is asked for in its stead needs it again, also where nothing guards, or
# the key is another: there the lock would be held still.

for my $where (qw(/empty /own /renamed)) {
    my $uri = "$where?id=" . ++$n;
    my $pending = $t->async(GET => $uri, headers => { Range => 'bytes=1-' });
    my $x = $up->accept_request;
    $x->respond(200);

    $x = $up->accept_request;
    is(lock_of($t, $n), 'running', 'another upstream has a lock');
    $x->respond(200, {}, 'body');
    is($pending->response->body, 'ody', 'and answers');
    ends($t, $uri, 'RELEASED', 'and gives it back');
}

# It is not for who had lost it before.

{
    my $uri = '/empty?id=' . ++$n;
    my $pending = $t->async(GET => $uri, headers => { Range => 'bytes=1-' });
    my $x = $up->accept_request;
    ok(lock_at($t, $n, 'DELETE')->{released}, 'broken');
    $x->respond(200);

    $x = $up->accept_request;
    is(lock_of($t, $n), 'free', 'another upstream has none');
    $x->respond(200, {}, 'body');
    is($pending->response->body, 'ody', 'and answers');
    ends($t, $uri, 'LOST', 'nor does it give one back');
}

# After a dry run it needs that of where it comes to, if that is none.

{
    my $uri = '/late/enforced?id=' . ++$n;
    my $pending = $t->async(GET => $uri, headers => { Range => 'bytes=1-' });
    $up->accept_request->respond(200) for 1 .. 2;
    my $x = $up->accept_request;
    is(lock_at($t, $n)->{operation}, 'other', 'a lock of its own');
    $x->respond(200, {}, 'body');
    is($pending->response->body, 'ody', 'and answers');
    ends($t, $uri, 'RELEASED', 'and gives it back');
}

# On the way there another request may take it.  What it had before is not what
# it has then, nor in a dry run, which goes on, unless it comes to where that is
# off.

for my $case (['/late', 409, 'BUSY'], ['/late/dry', 206, 'BUSY_DRY_RUN'],
              ['/late/enforced', 409, 'BUSY'])
{
    my ($where, $status, $result) = @$case;
    my $uri = "$where?id=" . ++$n;
    my $pending = $t->async(GET => $uri, headers => { Range => 'bytes=1-' });
    $up->accept_request->respond(200, {
        'Content-Type' => 'text/plain; charset=koi8-r',
    });

    my $x = $up->accept_request;
    is($x->uri, '/auth', 'asked on the way');
    my $other = $t->async(GET => "/?id=$n");
    my $y = $up->accept_request;
    is(lock_of($t, $n), 'running', 'another has the lock');
    $x->respond(200);

    if ($result eq 'BUSY_DRY_RUN') {
        $x = $up->accept_request;
        is($x->header('X-Token'), 'token=', 'no token of another lock');
        $x->respond(200, {}, 'body');
    }

    my $r = $pending->response;
    is($r->status, $status, "$where: answered");
    is($r->header('Content-Type'), 'application/json', 'as ever')
        if $status == 409;
    my $line = $t->logged($uri);
    is($line->{result}, $result, $result);
    is($line->{token}, '-', 'a token is of a lock that it has');
    is(lock_of($t, $n), 'running', "the other's runs on");
    $y->respond(200);
    $other->response;
    ends($t, "/?id=$n", 'RELEASED', "the other's end");
}

like($t->error_log, qr/is stuck: nginx answered with $_ of its own/,
     'the log says why')
    for 'an error', 'a 304';

unlike($t->error_log,
       qr/is stuck: (?!nginx answered|the upstream closed|vibelock_keep says)/,
       'and nothing else');

$t->done;

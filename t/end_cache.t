#!/usr/bin/perl

# Answers that nginx has, or makes, itself: from its cache, while it fills it,
# slice by slice, or while it stores a file.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::FastCGI;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $fastcgi = Vibelock::FastCGI->new;
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port, FASTCGI => $fastcgi->port);
$t->http(gate() . <<'EOC');
    upstream again {
        server 127.0.0.1:%%UPSTREAM%% max_fails=0;
        server 127.0.0.1:%%UPSTREAM%% max_fails=0;
    }
    map $upstream_status $running {
        ~503    1;
        default "";
    }
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
    fastcgi_cache_path %%DIR%%/fastcgi keys_zone=f:1m;
    proxy_http_version 1.1;
    proxy_cache_key $arg_page;
    proxy_cache_valid 200 206 1h;
EOC
$t->server(<<'EOC');
    vibelock exec zone=z;

    location /cached {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_cache c;
        proxy_cache_use_stale error timeout http_500;
        proxy_cache_revalidate on;
    }
    location /instead {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_cache c;
        proxy_cache_revalidate on;
        proxy_force_ranges on;
        error_page 416 = @instead;
    }
    location @instead {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_cache c;
        proxy_cache_bypass 1;
        proxy_no_cache 1;
    }
    location /passed {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_cache c;
        proxy_cache_methods GET HEAD;
        proxy_buffering off;
    }
    location /never {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_cache c;
        proxy_no_cache 1;
    }
    location /intercepted {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_cache c;
        proxy_intercept_errors on;
        error_page 503 = @after;
    }
    location /behind {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_cache c;
        proxy_cache_use_stale updating;
        proxy_cache_background_update on;
    }
    location /fastcgi {
        fastcgi_pass 127.0.0.1:%%FASTCGI%%;
        fastcgi_cache f;
        fastcgi_cache_key fastcgi$arg_page;
        fastcgi_cache_use_stale http_500;
        fastcgi_param REQUEST_METHOD $request_method;
        fastcgi_param REQUEST_URI $request_uri;
    }
    location /stored {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_store %%DIR%%/stored;
    }
    location /sliced {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
    }
    location /sliced/cached {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
        proxy_cache c;
        proxy_cache_key $arg_page$slice_range;
    }
    location /sliced/cached/gone {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
        proxy_cache c;
        proxy_cache_key $arg_page$slice_range;
        error_page 416 = @gone;
    }
    location /sliced/again {
        slice 1k;
        proxy_pass http://again;
        proxy_set_header Range $slice_range;
        proxy_next_upstream error http_503;
    }
    location /sliced/other {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
        sub_filter_types *;
        sub_filter y z;
    }
    location /sliced/keep {
        slice 1k;
        proxy_pass http://again;
        proxy_set_header Range $slice_range;
        proxy_next_upstream http_503;
        vibelock_keep $running $upstream_http_x_running;
    }
    location /sliced/behind {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
        proxy_cache c;
        proxy_cache_key $arg_page$slice_range;
        proxy_cache_use_stale updating;
        proxy_cache_background_update on;
        vibelock_keep $upstream_http_x_running;
    }
    location /sliced/beside {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
        addition_types *;
        add_after_body /behind/it;
        vibelock_keep $upstream_http_x_running;
    }
    location /behind/it { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /instead/sliced {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_intercept_errors on;
        error_page 503 = @sliced;
    }
    location /instead/none {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_intercept_errors on;
        error_page 503 = @none;
    }
    location @sliced {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
    }
    location @none { try_files /none =444; }
    location /sliced/after {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
        post_action @after;
    }
    location /sliced/elsewhere {
        slice 1k;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        proxy_set_header Range $slice_range;
        post_action @elsewhere;
    }
    location @after { empty_gif; }
    location @gone { return 444; }
    location @elsewhere { return 204; }
EOC
$t->start;

my $n = 0;

sub begin {
    my ($where, $page, %how) = @_;

    my $id = ++$n;
    my $uri = "$where?id=$id&page=$page";
    my $pending = $t->async($how{method} // 'GET', $uri,
                            headers => $how{headers} // {});

    return ($uri, undef, $pending, $id) if $how{hit};

    my $x = $up->accept_request;
    is(lock_of($t, $id), 'running', "$uri runs");

    return ($uri, $x, $pending, $id);
}

# A page that is in the cache, for an hour or for no time at all.

sub fill {
    my ($page, $how) = @_;

    my ($uri, $x, $pending) = begin('/cached', $page);
    $x->respond(200, $how, 'old');
    is($pending->response->body, 'old', "$page is in the cache");
    ends($t, $uri, 'RELEASED', 'a miss, answered in full');

    return;
}

fill('fresh', {});

{
    my ($uri, undef, $pending) = begin('/cached', 'fresh', hit => 1);
    is($pending->response->body, 'old', 'from the cache');
    ends($t, $uri, 'RELEASED', 'a hit');
    ok(!$up->pending, 'the upstream was not asked');
}

# The cache has no such range, and an upstream is asked in its stead.

for my $result (qw(RELEASED KEPT)) {
    my ($uri, $x, $pending) = begin('/instead', 'fresh',
                                    headers => { Range => 'bytes=99-' });
    $x->send_head(200, { 'Content-Length' => 100 });
    $x->send('x' x ($result eq 'KEPT' ? 99 : 100));
    $x->close;
    $pending->read_rest;
    ends($t, $uri, $result, "a hit that another's answer is given for");
}

{
    my ($uri, $x, $pending) = begin('/cached', 'cut');
    $x->send_head(200, { 'Content-Length' => 100 });
    $x->send('part');
    $x->close;
    $pending->response;
    ends($t, $uri, 'KEPT', 'a miss, cut short');

    ($uri, $x, $pending) = begin('/cached', 'gone');
    $x->close;
    is($pending->response->status, 502, 'answered 502');
    ends($t, $uri, 'KEPT', 'a miss, not answered');
}

# nginx reads on to fill its cache, for nobody.

for my $where (qw(/cached /stored)) {
    my ($uri, $x, $pending, $id) = begin($where, "left$where");
    $pending->abort;
    $x->send_head(200, { 'Content-Length' => 3000 });
    $x->send('x' x 2000);
    is(lock_of($t, $id), 'running', 'its client left');
    $x->send('x' x 1000);
    ends($t, $uri, 'RELEASED', "$where: read in full all the same");
    $x->close;

    ($uri, $x, $pending, $id) = begin($where, "left too$where" =~ s/ //r);
    $pending->abort;
    $x->send_head(200, { 'Content-Length' => 3000 });
    $x->send('x' x 2000);
    $x->close;
    ends($t, $uri, 'KEPT', "$where: cut short after its client left");
}

# It waited, and the answer is not for the cache: what it reads without writing
# may be all of it.

for my $case (['all at once', 'RELEASED'], ['cut short', 'KEPT']) {
    my ($how, $result) = @$case;
    my ($uri, $x, $pending) = begin('/cached', "private $how" =~ s/ //gr);
    $t->log_mark;
    $pending->abort;
    ok($t->log_like(qr/client prematurely closed/), 'nginx knows');
    $x->send("HTTP/1.1 200 X\r\nCache-Control: no-store\r\n"
             . "Content-Length: 4\r\n\r\n"
             . ($result eq 'KEPT' ? 'do' : 'done'));
    $x->close;
    ends($t, $uri, $result, "an answer that is not for the cache: $how");
}

{
    my ($uri, $x, $pending) = begin('/intercepted', 'none');
    $t->log_mark;
    $pending->abort;
    ok($t->log_like(qr/client prematurely closed/), 'nginx knows');
    $x->respond(503, {}, 'not now');
    ends($t, $uri, 'RELEASED', 'intercepted for a client that left');
}

{
    my ($uri, $x, $pending, $id) = begin('/cached', 'head', method => 'HEAD');
    is($x->method, 'GET', 'nginx makes a GET of it');
    $x->send_head(200, { 'Content-Length' => 3000 });
    is($pending->read_response(method => 'HEAD')->status, 200, 'answered');
    is(lock_of($t, $id), 'running', 'nginx reads on');
    $x->send('x' x 3000);
    ends($t, $uri, 'RELEASED', 'HEAD that fills the cache');
    $x->close;
}

for my $where (qw(/passed /never)) {
    my ($uri, $x, $pending, $id) = begin($where, "head$where",
                                         method => 'HEAD');
    $x->send_head(200, { 'Content-Length' => 3000 });
    is($pending->read_response(method => 'HEAD')->status, 200, 'answered');
    ends($t, $uri, 'RELEASED', "$where: HEAD that does not");
    $x->close;
}

for my $result (qw(RELEASED KEPT)) {
    my $uri = '/fastcgi?id=' . ++$n . "&page=head$result";
    my $pending = $t->async(HEAD => $uri);
    my $x = $fastcgi->accept_request;
    $x->stdout("Status: 200\r\nCache-Control: max-age=60\r\n\r\npart");
    is($pending->read_response(method => 'HEAD')->status, 200, 'answered');
    is(lock_of($t, $n), 'running', 'nginx reads on');
    $x->end_request if $result eq 'RELEASED';
    $x->close;
    ends($t, $uri, $result, "FastCGI, HEAD that fills the cache: $result");
}

# What is in the cache is too old.

my %stale = ('Cache-Control' => 'max-age=1',
             'Last-Modified' => 'Thu, 01 Jan 2026 00:00:00 GMT');

my @cases = (
    ['confirmed',   'RELEASED', sub { $_[0]->respond(304) }],
    ['an error',    'RELEASED', sub { $_[0]->respond(500, {}, 'no') }],
    ['no answer',   'KEPT',     sub { $_[0]->close }],
);

sub fastcgi {
    my ($status) = @_;

    my $uri = '/fastcgi?id=' . ++$n . '&page=one';
    my $pending = $t->async(GET => $uri);
    $fastcgi->accept_request->respond($status, \%stale, 'old');
    is($pending->response->body, 'old', 'answered');
    ends($t, $uri, 'RELEASED', "FastCGI, $status");

    return;
}

fastcgi(200);
fill("stale$_", \%stale) for 0 .. $#cases;
fill($_, \%stale) for qw(confirmed behind);

{
    my ($uri, $x, $pending) = begin('/sliced/behind', 'slices');
    slice($x, 0, 2000, 'Cache-Control' => 'max-age=1');
    slice($up->accept_request, 1024, 2000, 'Cache-Control' => 'no-store');
    is(length $pending->response->body, 2000, 'one of two slices is kept');
    ends($t, $uri, 'RELEASED', 'a miss of slices');
}

my $aged = time + 2;
wait_for { time > $aged };

for my $i (0 .. $#cases) {
    my ($name, $result, $play) = @{ $cases[$i] };
    my ($uri, $x, $pending) = begin('/cached', "stale$i");
    $play->($x);
    is($pending->response->body, 'old', 'from the cache');
    ends($t, $uri, $result, "stale: $name");
}

{
    my ($uri, $x, $pending) = begin('/instead', 'confirmed',
                                    headers => { Range => 'bytes=99-' });
    $x->respond(304);
    $up->accept_request->respond(200, {}, 'x' x 100);
    is(length $pending->response->body, 1, 'of another');
    ends($t, $uri, 'RELEASED', 'confirmed, and has no such range');
}

# A FastCGI answer has its end, the cache's has none of that kind.

fastcgi(500);

{
    my ($uri, $x, $pending, $id) = begin('/behind', 'behind', hit => 1);
    is($pending->read_response->body, 'old', 'from the cache');
    $x = $up->accept_request;
    is(lock_of($t, $id), 'free', 'the update behind it holds nothing');

    my ($meanwhile, undef, $other) = begin('/behind', 'behind', hit => 1);
    is($other->response->body, 'old', 'from the cache, during the update');
    ends($t, $meanwhile, 'RELEASED', 'an answer that is being updated');
    ok(!$up->pending, 'the upstream was not asked again');

    $x->close;
    ends($t, $uri, 'RELEASED', 'an answer that is updated afterwards');
}

{
    my ($uri, undef, $pending, $id) = begin('/sliced/behind', 'slices',
                                            hit => 1);
    my ($update, $x) = sort { length($a->header('Range') // '')
                              <=> length($b->header('Range') // '') }
                       map { $up->accept_request } 1, 2;
    is($update->header('Range'), undef, 'the cache asks for an update');
    is(lock_of($t, $id), 'running', 'the other slice is to come');
    $update->respond(200, { 'X-Running' => 1 }, 'x' x 2000);
    ok($update->wait_closed, 'it is there');
    slice($x, 1024, 2000);
    is(length $pending->response->body, 2000, 'all of it');
    ends($t, $uri, 'RELEASED', 'a slice that is updated meanwhile');
}

# Slice by slice: only the last one is the end.

sub slice {
    my ($x, $from, $size, %head) = @_;

    is($x->header('Range'), "bytes=$from-" . ($from + 1023), 'a slice');
    my $to = $from + 1023 < $size ? $from + 1023 : $size - 1;
    $x->respond(206, { 'Content-Range' => "bytes $from-$to/$size", %head },
                'x' x ($to - $from + 1));

    return;
}

for my $where (qw(/sliced /sliced/cached)) {
    my ($uri, $x, $pending, $id) = begin($where, 'whole');
    slice($x, 0, 2500);
    $x = $up->accept_request;
    is(lock_of($t, $id), 'running', 'after the first slice');
    slice($x, 1024, 2500);
    $x = $up->accept_request;
    is(lock_of($t, $id), 'running', 'after the second');
    slice($x, 2048, 2500);
    is(length $pending->response->body, 2500, 'all of it');
    ends($t, $uri, 'RELEASED', "$where: the last slice");

    ($uri, $x, $pending, $id) = begin($where, 'cut');
    slice($x, 0, 2500);
    $x = $up->accept_request;
    $x->close;
    $pending->read_rest;
    ends($t, $uri, 'KEPT', "$where: a slice is missing");

    next if $where !~ /cached/;

    ($uri, $x, $pending, $id) = begin($where, 'cut');
    is($x->header('Range'), 'bytes=1024-2047', 'the first is in the cache');
    is(lock_of($t, $id), 'running', 'the second is asked for');
    $x->close;
    $pending->read_rest;
    ends($t, $uri, 'KEPT', 'a slice is missing after one from the cache');

    ($uri, undef, $pending) = begin($where, 'whole', hit => 1);
    is(length $pending->response->body, 2500, 'all of it');
    ends($t, $uri, 'RELEASED', 'all slices are in the cache');

    # Its header promised more than the slice has, and went to nobody.

    ($uri, undef, $pending) = begin('/sliced/cached/gone', 'whole', hit => 1,
                                    headers => { Range => 'bytes=3000-' });
    is($pending->read_rest, '', 'closed without an answer');
    ends($t, $uri, 'RELEASED', 'a slice from the cache, behind the end');
}

# nginx goes on from one that was cut short, or stops there with a clean end.

for my $where (qw(/sliced /sliced/cached)) {
    for my $case (['middle', 2500], ['last', 1500]) {
        my ($name, $size) = @$case;
        my ($uri, $x, $pending, $id) = begin($where, "short$name");
        slice($x, 0, $size);
        $x = $up->accept_request;
        my $to = $size > 2047 ? 2047 : $size - 1;
        $x->send_head(206, { 'Content-Range'  => "bytes 1024-$to/$size",
                             'Content-Length' => $to - 1023 });
        $x->send('x' x 100);
        is(lock_of($t, $id), 'running', 'a part of it is there');
        $x->close;
        slice($up->accept_request, 2048, $size) if $name eq 'middle';
        $pending->read_rest;
        ends($t, $uri, 'KEPT', "$where: the $name slice is cut short");
    }

    my ($uri, $x, $pending, $id) = begin($where, 'shortrange',
        headers => { Range => 'bytes=1000-1100' });
    slice($x, 0, 2500);
    $x = $up->accept_request;
    $x->send_head(206, { 'Content-Range'  => 'bytes 1024-2047/2500',
                         'Content-Length' => 1024 });
    $x->send('x' x 100);
    is(lock_of($t, $id), 'running', 'the client has its range');
    $x->close;
    $pending->read_rest;
    ends($t, $uri, 'KEPT', "$where: the last slice of a range is cut short");
}

# A slice, or the whole, whose length is not known.

for my $where (qw(/sliced /sliced/other)) {
    my ($uri, $x, $pending, $id) = begin($where, 'chunked');

    for my $from (0, 1024, 2048) {
        $x = $up->accept_request if $from;
        is(lock_of($t, $id), 'running', "slice $from is to come");

        my $to = $from == 2048 ? 2499 : $from + 1023;
        my $body = 'x' x ($to - $from + 1);
        my %head = ('Content-Range' => "bytes $from-$to/2500");

        if ($where eq '/sliced') {
            $x->send_head(206, { %head, 'Transfer-Encoding' => 'chunked' });
            $x->send(sprintf("%x\r\n%s\r\n0\r\n\r\n", length $body, $body));
        } else {
            $x->respond(206, \%head, $body);
        }
    }

    is(length $pending->response->body, 2500, 'all of it');
    ends($t, $uri, 'RELEASED', "$where: slices without a length");
}

# Each of their tries counts.

for my $case (['close', 'KEPT'], ['respond', 'RELEASED']) {
    my ($how, $result) = @$case;
    my ($uri, $x, $pending) = begin('/sliced/again', 'again');
    slice($x, 0, 2500);
    $x = $up->accept_request;
    $x->$how($how eq 'respond' ? 503 : ());
    slice($up->accept_request, 1024, 2500);
    slice($up->accept_request, 2048, 2500);
    is(length $pending->response->body, 2500, 'all of it');
    ends($t, $uri, $result, "a slice that was tried again after $how");
}

# And each may say that the operation still runs.

for my $case ([], ['X-Running' => 0], ['X-Running' => 1], [503]) {
    my $what = "@$case" || 'nothing';
    my ($uri, $x, $pending) = begin('/sliced/keep', 'keep');
    slice($x, 0, 2500);
    $x = $up->accept_request;

    if ($what eq '503') {
        $x->respond(503);
        $x = $up->accept_request;
    }

    slice($x, 1024, 2500, @$case == 2 ? @$case : ());
    slice($up->accept_request, 2048, 2500);
    is(length $pending->response->body, 2500, 'all of it');
    ends($t, $uri, $what =~ /[13]$/ ? 'KEPT' : 'RELEASED',
         "a slice that says $what");
}

# What else is asked for meanwhile says nothing of them: what is added to the
# answer, or the cache's own update.

{
    my ($uri, $x, $pending) = begin('/sliced/beside', 'beside');
    slice($x, 0, 2000);
    slice($up->accept_request, 1024, 2000);
    $x = $up->accept_request;
    like($x->uri, qr{^/behind/it}, 'what comes behind the answer');
    $x->respond(200, { 'X-Running' => 1 }, 'it');
    is(length $pending->response->body, 2002, 'all of it');
    ends($t, $uri, 'RELEASED', 'an operation that is another one');
}

# A range needs some of them alone.

for my $where (qw(/sliced /sliced/cached)) {
    for my $case ([0, 3, 0], [100, 1023, 0], [1500, 1600, 1024],
                  [1000, 1100, 0, 1024], [2000, '', 1024, 2048])
    {
        my ($from, $to, @slices) = @$case;
        my ($uri, $x, $pending, $id) = begin($where, "range$from",
            headers => { Range => "bytes=$from-$to" });

        for my $slice (@slices) {
            $x = $up->accept_request if $slice != $slices[0];
            is(lock_of($t, $id), 'running', "slice $slice is to come");
            slice($x, $slice, 2500);
        }

        is(length $pending->response->body, ($to || 2499) - $from + 1,
           'the range');
        ends($t, $uri, 'RELEASED', "$where: bytes=$from-$to");
    }

    my ($uri, $x, $pending, $id) = begin($where, 'rangecut',
                                         headers => { Range => 'bytes=0-3' });
    $x->send_head(206, { 'Content-Range'  => 'bytes 0-1023/2500',
                         'Content-Length' => 1024 });
    $x->send('x' x 500);
    is(lock_of($t, $id), 'running', 'the slice is not there in full');
    $x->close;
    ends($t, $uri, 'KEPT', "$where: cut short behind the range");
}

# nginx may have gone on from an answer before.

for my $case (['/instead/sliced', 'KEPT'], ['/instead/none', 'RELEASED']) {
    my ($where, $result) = @$case;
    my ($uri, $x, $pending) = begin($where, 'gone');
    $x->respond(503);

    if ($result eq 'KEPT') {
        $x = $up->accept_request;
        $x->send_head(206, { 'Content-Range'  => 'bytes 0-1023/*',
                             'Content-Length' => 1024 });
    }

    is($pending->read_rest, '', 'the client gets nothing');
    ends($t, $uri, $result, "$where: after an answer that was not passed on");
    $x->close;
}

# post_action leads to where the guard comes by, or to where it does not.

for my $where (qw(/sliced/after /sliced/elsewhere)) {
    my ($uri, $x, $pending) = begin($where, 'bad');
    $x->send_head(206, { 'Content-Range'  => 'bytes 0-1023/*',
                         'Content-Length' => 1024 });
    $pending->read_rest;
    ends($t, $uri, 'KEPT', "$where: nginx refuses the slice");
    $x->close;
}

for my $where (qw(/sliced /sliced/cached)) {
    my ($uri, $x, $pending, $id) = begin($where, 'left');
    slice($x, 0, 2500);
    $x = $up->accept_request;
    $pending->abort;
    $x->respond(200) if $where =~ /cached/;
    ends($t, $uri, 'KEPT', "$where: the client leaves within a slice");

    ($uri, $x, $pending) = begin($where, 'bad');
    $x->send_head(206, { 'Content-Range'  => 'bytes 0-1023/*',
                         'Content-Length' => 1024 });
    $pending->read_rest;
    ends($t, $uri, 'KEPT', "$where: nginx refuses the slice");
    $x->close;

    if ($where =~ /cached/) {
        ($uri, $x, $pending) = begin($where, 'waited');
        $t->log_mark;
        $pending->abort;
        ok($t->log_like(qr/client prematurely closed/), 'nginx knows');
        $x->send_head(206, { 'Content-Range'  => 'bytes 0-1023/*',
                             'Content-Length' => 1024 });
        ends($t, $uri, 'KEPT', 'it waits for a client that left, and refuses');
        $x->close;
    }

    ($uri, $x, $pending, $id) = begin($where, 'one');
    slice($x, 0, 500);
    is(length $pending->response->body, 500, 'all of it');
    ends($t, $uri, 'RELEASED', "$where: the only slice");
}

$t->done;

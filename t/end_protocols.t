#!/usr/bin/perl

# Upstreams that do not speak HTTP: FastCGI, uwsgi and gRPC each have an end of
# a response of their own.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends lock_of gate);
use Vibelock::FastCGI;
use Vibelock::Grpc;
use Vibelock::Process qw(run);
use Vibelock::Test qw(wait_for free_port);
use Vibelock::Uwsgi;

my $fastcgi = Vibelock::FastCGI->new;
my $uwsgi = Vibelock::Uwsgi->new;
my $grpc = Vibelock::Grpc->new;
my $t = Vibelock::Test->new(workers => 2);

$t->set(FASTCGI => $fastcgi->port, UWSGI => $uwsgi->port,
        GRPC => $grpc->port, NOWHERE => free_port());
$t->http(gate() . <<'EOC');
    upstream fastcgi_kept { server 127.0.0.1:%%FASTCGI%%; keepalive 4; }
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param REQUEST_URI $request_uri;
    fastcgi_param CONTENT_LENGTH $content_length;
    uwsgi_param REQUEST_METHOD $request_method;
    uwsgi_param REQUEST_URI $request_uri;
    uwsgi_param CONTENT_LENGTH $content_length;
    lingering_close off;
EOC
$t->server(<<'EOC');
    vibelock exec zone=z;

    location /fastcgi         { fastcgi_pass 127.0.0.1:%%FASTCGI%%; }
    location /fastcgi/passed  { fastcgi_pass 127.0.0.1:%%FASTCGI%%;
                                fastcgi_buffering off; }
    location /fastcgi/kept    { fastcgi_pass fastcgi_kept;
                                fastcgi_keep_conn on; }
    location /fastcgi/slow    { fastcgi_pass 127.0.0.1:%%FASTCGI%%;
                                fastcgi_read_timeout 1s; }
    location /fastcgi/nowhere { fastcgi_pass 127.0.0.1:%%NOWHERE%%; }
    location /uwsgi           { uwsgi_pass 127.0.0.1:%%UWSGI%%; }
    location /uwsgi/passed    { uwsgi_pass 127.0.0.1:%%UWSGI%%;
                                uwsgi_buffering off; }
    location /uwsgi/nowhere   { uwsgi_pass 127.0.0.1:%%NOWHERE%%; }
    location /grpc            { grpc_pass grpc://127.0.0.1:%%GRPC%%; }
    location /grpc/slow       { grpc_pass grpc://127.0.0.1:%%GRPC%%;
                                grpc_read_timeout 1s; }
    location /grpc/nowhere    { grpc_pass grpc://127.0.0.1:%%NOWHERE%%; }
    %%HTTP2%%
EOC

# nginx asks upstreams by HTTP/2 from 1.29.4 on.

my ($minor, $patch) =
    (run([$t->nginx, '-v']))[1] =~ m{nginx/1\.(\d+)\.(\d+)};
my $has_http2 = $minor > 29 || ($minor == 29 && $patch > 3);
my $port = $grpc->port;

$t->set(HTTP2 => $has_http2 ? <<"EOC" : '');
    location /http2        { proxy_pass http://127.0.0.1:$port;
                             proxy_http_version 2; }
    location /http2/passed { proxy_pass http://127.0.0.1:$port;
                             proxy_http_version 2; proxy_buffering off; }
EOC
$t->start;

my $n = 0;

# Case by case: where, what the upstream does, how that ends.

sub try_end {
    my ($up, $where, $name, $result, $play, %how) = @_;

    my $id = ++$n;
    my $uri = "$where?id=$id";
    my ($x, $pending) = begins($t, $up, $uri, body => 'b', %how);

    $play->($x, $id, $pending);
    ends($t, $uri, $result, "$where: $name");
    $x->close;
    $pending->close;

    return;
}

my $head = "Status: 200\r\nContent-Type: text/plain\r\n";

for my $where (qw(/fastcgi /fastcgi/passed /fastcgi/kept)) {
    my @case = ($fastcgi, $where);

    for my $status (200, 404, 500, 502, 504) {
        try_end(@case, "answered $status", 'RELEASED',
                sub { $_[0]->respond($status, {}, 'body') });
    }

    try_end(@case, 'END_REQUEST in a step of its own', 'RELEASED', sub {
        my ($x, $id) = @_;
        $x->stdout("$head\r\npart");
        is(lock_of($t, $id), 'running', 'not at its end');
        $x->stdout('');
        $x->end_request;
        $x->close if $where eq '/fastcgi';
    });

    try_end(@case, 'a close without END_REQUEST', 'KEPT', sub {
        my ($x) = @_;
        $x->stdout("$head\r\npart");
        $x->close;
    });

    try_end(@case, 'a close within Content-Length', 'KEPT', sub {
        my ($x) = @_;
        $x->stdout("${head}Content-Length: 100\r\n\r\npart");
        $x->close;
    });

    try_end(@case, 'END_REQUEST within Content-Length', 'KEPT', sub {
        my ($x) = @_;
        $x->stdout("${head}Content-Length: 100\r\n\r\npart");
        $x->stdout('');
        $x->end_request;
        $x->close if $where eq '/fastcgi';
    });

    try_end(@case, 'all of Content-Length', 'RELEASED', sub {
        my ($x, $id, $pending) = @_;
        $x->stdout("${head}Content-Length: 2000\r\n\r\n" . 'x' x 1000);
        is(lock_of($t, $id), 'running', 'not all of it');
        $x->stdout('x' x 1000);

        if ($where ne '/fastcgi') {
            is(length $pending->response->body, 2000, 'the client has it');
            is(lock_of($t, $id), 'free', 'END_REQUEST is not waited for');
        }

        $x->end_request;
        $x->close;
    });

    try_end(@case, 'HEAD', 'RELEASED', sub {
        $_[0]->stdout("$head\r\n");
        $_[0]->end_request;
    }, method => 'HEAD');

    try_end(@case, 'a reset', 'KEPT', sub {
        my ($x, $id, $pending) = @_;
        $x->reset;
        is($pending->response->status, 502, 'answered 502');
    });
}

try_end($fastcgi, '/fastcgi/slow', 'silence', 'KEPT', sub {
    is($_[2]->response->status, 504, 'answered 504');
});

for my $where (qw(/uwsgi /uwsgi/passed)) {
    my @case = ($uwsgi, $where);
    my $start = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";

    for my $status (200, 404, 500, 502, 504) {
        try_end(@case, "answered $status", 'RELEASED',
                sub { $_[0]->respond($status, {}, 'body') });
    }

    try_end(@case, 'in two steps', 'RELEASED', sub {
        my ($x, $id) = @_;
        $x->send($start);
        is(lock_of($t, $id), 'running', 'not at its end');
        $x->send('123456789');
    });

    try_end(@case, 'fewer bytes than Content-Length', 'KEPT', sub {
        my ($x) = @_;
        $x->send($start . 'part');
        $x->close;
    });

    try_end(@case, 'no answer', 'KEPT', sub { $_[0]->close });
}

for my $where ('/grpc', $has_http2 ? ('/http2', '/http2/passed') : ()) {
    my @case = ($grpc, $where);

    try_end(@case, 'trailers', 'RELEASED',
            sub { $_[0]->respond(200, {}, 'body') });

    try_end(@case, 'trailers in a step of their own', 'RELEASED', sub {
        my ($x, $id) = @_;
        $x->send_head(200, { 'content-type' => 'application/grpc' });
        is(lock_of($t, $id), 'running', 'the head');
        $x->send_data('part');
        is(lock_of($t, $id), 'running', 'a part');
        $x->send_trailers({ 'grpc-status' => 0 });
    });

    try_end(@case, 'an end without trailers', 'RELEASED', sub {
        my ($x) = @_;
        $x->send_head(500, {});
        $x->end;
    });

    try_end(@case, 'RST_STREAM instead of an answer', 'KEPT', sub {
        my ($x, $id, $pending) = @_;
        $x->reset_stream(8);
        is($pending->response->status, 502, 'answered 502');
    });

    try_end(@case, 'RST_STREAM within the answer', 'KEPT', sub {
        my ($x, $id) = @_;
        $x->send_head(200, { 'content-type' => 'application/grpc' });
        $x->send_data('part');
        $x->reset_stream(8);
        ok($t->log_like(qr/is stuck: the upstream closed early.*key "$id"/),
           'the log says who it was');
    });

    try_end(@case, 'GOAWAY and a close', 'KEPT', sub {
        my ($x) = @_;
        $x->send_head(200, { 'content-type' => 'application/grpc' });
        $x->h2->goaway;
        $x->close;
    });

    try_end(@case, 'fewer bytes than Content-Length', 'KEPT', sub {
        my ($x) = @_;
        $x->send_head(200, { 'content-length' => 100 });
        $x->send_data('part');
        $x->end;
    });

    try_end(@case, 'all of Content-Length', 'RELEASED', sub {
        my ($x, $id) = @_;
        $x->send_head(200, { 'content-length' => 4 });
        is(lock_of($t, $id), 'running', 'the head');
        $x->send_data('body');
        ok(wait_for { lock_of($t, $id) eq 'free' }, 'the end is not waited for');
        $x->reset_stream(8);
    });

    try_end(@case, 'the client leaves', 'KEPT', sub {
        my ($x, $id, $pending) = @_;
        $pending->abort;
        ok($t->log_like(qr/is stuck: the client left.*key "$id"/),
           'the log says who it was');
    });
}

try_end($grpc, '/grpc/slow', 'silence', 'KEPT', sub {
    is($_[2]->response->status, 504, 'answered 504');
});

for my $where (qw(/fastcgi/nowhere /uwsgi/nowhere /grpc/nowhere)) {
    my $uri = "$where?id=" . ++$n;
    is($t->post($uri, body => 'b')->status, 502, 'answered 502');
    ends($t, $uri, 'RELEASED', "$where: nobody had a byte of it");
}

$t->done;

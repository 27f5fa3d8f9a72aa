#!/usr/bin/perl

# Content that nginx has itself, and requests beside the main one: those take
# no lock, and end none.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $side = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port, SIDE => $side->port);
$t->http(gate() . <<'EOC');
    proxy_http_version 1.1;
    lingering_close always;
    lingering_time 60s;
    lingering_timeout 60s;
EOC
$t->server(<<'EOC');
    listen 127.0.0.1:%%PORT_1%% sndbuf=4k;
    vibelock exec zone=z;

    location /file/        { alias %%DIR%%/; }
    location /pixel        { empty_gif; }
    location /missing      { alias %%DIR%%/nothing; error_page 404 /file/page; }
    location /deleted      { alias %%DIR%%/nothing; error_page 404 =204 @none; }
    location @none         { return 204; }
    location /try          { root %%DIR%%; try_files /nothing /page =404; }
    location /try/none     { root %%DIR%%; try_files /nothing =404; }
    location /try/named    { root %%DIR%%; try_files /nothing @named; }
    location @named        { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /index/       { alias %%DIR%%/index/; }
    location /part         { proxy_pass http://127.0.0.1:%%SIDE%%; }
    location /ssi/         { alias %%DIR%%/; ssi on; ssi_types *; }
    location /ssi/proxied  { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                             ssi on; ssi_types *; }
    location /added        { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                             add_before_body /part?$args;
                             addition_types *; }
    location /appended     { alias %%DIR%%/page;
                             add_after_body /part?$args;
                             addition_types *; }
    location /mirrored     { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                             mirror /part; }
    location /asked        { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                             auth_request /part; }
EOC
$t->write_file(page => "a page\n");
$t->write_file(include => 'before '
    . '<!--#include virtual="/part?id=$arg_id" --> after');
$t->write_file(twice => '<!--#include virtual="/part?id=$arg_id" -->'
    . '<!--#include virtual="/file/page?id=$arg_id" -->');
$t->write_file(large => 'x' x 4_000_000);
mkdir $t->path('index');
$t->write_file('index/index.html' => "an index\n");
$t->start;

my $n = 0;

# What the client has in full is free, though its connection lingers on: that
# is before the request is.

sub answered {
    my ($c, $uri, $id, $body, $name) = @_;

    is($c->read_response->body, $body, "$name: the answer");
    is(lock_of($t, $id), 'free', "$name: free with the last byte");
    unlike($t->access_log, qr/\Q$uri\E /, "$name: its request is not over");
    $c->close;
    ends($t, $uri, 'RELEASED', $name);

    return;
}

sub ask {
    my ($where, %how) = @_;

    my $id = ++$n;
    my $uri = "$where?id=$id";
    my $c = $t->connect(%how);
    $c->send_request($how{method} // 'GET', $uri);

    return ($c, $uri, $id);
}

for my $case (['/file/page', "a page\n"], ['/missing', "a page\n"],
              ['/try', "a page\n"], ['/index/', "an index\n"])
{
    my ($where, $body) = @$case;
    my ($c, $uri, $id) = ask($where);
    answered($c, $uri, $id, $body, $where);
}

for my $case (['/pixel', 200], ['/file/none', 404], ['/try/none', 404],
              ['/deleted', 204])
{
    my ($where, $status) = @$case;
    my ($c, $uri, $id) = ask($where);
    is($c->read_response->status, $status, "$where: $status");
    is(lock_of($t, $id), 'free', "$where: free");
    $c->close;
    ends($t, $uri, 'RELEASED', $where);
}

{
    my ($c, $uri, $id) = ask('/file/page', method => 'HEAD');
    is($c->read_response(method => 'HEAD')->status, 200, 'HEAD');
    is(lock_of($t, $id), 'free', 'free with the header');
    $c->close;
    ends($t, $uri, 'RELEASED', 'HEAD of a file');

    ($c, $uri, $id) = ask('/file/large', port => $t->port(1), rcvbuf => 4096);
    ok($c->await(qr/xxx/), 'a part of a file');
    is(lock_of($t, $id), 'running', 'not its last buffer');
    $c->reset;
    ends($t, $uri, 'RELEASED', 'its client leaves, and nobody else had it');
}

for my $case (['respond', 'RELEASED'], ['close', 'KEPT']) {
    my ($how, $result) = @$case;
    my ($c, $uri, $id) = ask('/try/named');
    my $x = $up->accept_request;
    is(lock_of($t, $id), 'running', 'in a named location');
    $x->$how($how eq 'respond' ? 200 : ());
    $c->read_response;
    $c->close;
    ends($t, $uri, $result, "try_files and a named location: $how");
}

# Parts of a page, from locations that are guarded themselves.

{
    my ($c, $uri, $id) = ask('/ssi/include');
    my $part = $side->accept_request;
    is(lock_of($t, $id), 'running', 'a subrequest meets no lock');
    $part->respond(200, {}, 'part');
    answered($c, $uri, $id, 'before part after', 'SSI');

    ($c, $uri, $id) = ask('/ssi/twice');
    $side->accept_request->respond(200, {}, 'part ');
    answered($c, $uri, $id, "part a page\n", 'SSI, two parts');

    ($c, $uri, $id) = ask('/ssi/proxied');
    my $x = $up->accept_request;
    is(lock_of($t, $id), 'running', 'the page');
    $x->send_head(200, { 'Transfer-Encoding' => 'chunked' });
    $x->send_chunk('<!--#include virtual="/part?id=' . $id . '" --> and ');
    $part = $side->accept_request;
    is(lock_of($t, $id), 'running', 'the part');
    $part->respond(200, {}, 'a part that is longer than the page ' x 100);
    ok($c->await(qr/longer/), 'it has passed');
    is(lock_of($t, $id), 'running', 'and it does not end the page');
    $x->send_chunk('on');
    $x->send_chunk('');
    answered($c, $uri, $id, 'a part that is longer than the page ' x 100
             . ' and on', 'SSI in a page from an upstream');

    ($c, $uri, $id) = ask('/ssi/proxied');
    $x = $up->accept_request;
    $x->send_head(200, { 'Transfer-Encoding' => 'chunked' });
    $x->send_chunk('<!--#include virtual="/part?id=' . $id . '" --> and ');
    $side->accept_request->respond(200, {}, 'part');
    $x->close;
    ok(wait_for { lock_of($t, $id) eq 'stuck' }, 'stuck');
    $c->close;
    ends($t, $uri, 'KEPT', 'SSI in a page that is cut short');
}

{
    my ($c, $uri, $id) = ask('/added');
    my $x = $up->accept_request;
    $x->send_head(200, { 'Content-Type' => 'text/plain',
                         'Transfer-Encoding' => 'chunked' });
    $x->send_chunk('i');
    $side->accept_request->respond(200, {}, 'before ' x 1000);
    ok($c->await(qr/(?:before ){100}/), 'it has passed');
    is(lock_of($t, $id), 'running', 'what is added ends nothing');
    $x->send_chunk('t');
    $x->send_chunk('');
    answered($c, $uri, $id, 'before ' x 1000 . 'it', 'add_before_body');

    ($c, $uri, $id) = ask('/appended');
    my $part = $side->accept_request;
    is(lock_of($t, $id), 'running', 'the last buffer comes after what is added');
    $part->respond(200, {}, 'after');
    answered($c, $uri, $id, "a page\nafter", 'add_after_body');
}

{
    my ($c, $uri, $id) = ask('/mirrored');
    my $mirror = $side->accept_request;
    my $x = $up->accept_request;
    is(lock_of($t, $id), 'running', 'both have it');
    $x->respond(200, {}, 'it');
    is($c->read_response->body, 'it', 'answered');
    is(lock_of($t, $id), 'free', 'a mirror is not waited for');
    $mirror->close;
    $c->close;
    ends($t, $uri, 'RELEASED', 'a mirror that dies');

    ($c, $uri, $id) = ask('/asked');
    my $asked = $side->accept_request;
    is(lock_of($t, $id), 'free', 'who is asked first takes no lock');
    $asked->respond(204);
    $x = $up->accept_request;
    is(lock_of($t, $id), 'running', 'the request itself does');
    $x->respond(200, {}, 'it');
    answered($c, $uri, $id, 'it', 'auth_request');

    ($c, $uri, $id) = ask('/asked');
    $side->accept_request->respond(403);
    is($c->read_response->status, 403, 'refused');
    $c->close;
    is($t->logged($uri)->{result}, '-', 'and nothing was locked');
}

$t->done;

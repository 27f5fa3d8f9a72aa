#!/usr/bin/perl

# Scripts.  As a filter one may give the client another answer than the
# upstream's, and say how long it is before it has read what it got.  What one
# asks for itself ends with its answer, unless it says that it has not.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends lock_of gate);
use Vibelock::Test;
use Vibelock::Upstream;

my @modules = map { "/usr/lib/nginx/modules/$_.so" }
              qw(ndk_http_module ngx_http_lua_module);

plan(skip_all => 'libnginx-mod-http-lua is not installed')
    if grep { !-e } @modules;
plan(skip_all => 'it is for the nginx of the system')
    if $ENV{VIBELOCK_NGINX};

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port);
$t->main(join "\n", map { "load_module $_;" } @modules);
$t->http(gate() . <<'EOC');
    vibelock exec zone=z;
    proxy_http_version 1.1;
    proxy_ignore_client_abort on;
EOC
$t->server(<<'EOC');
    location /accepted {
        proxy_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        header_filter_by_lua_block { ngx.header.content_length = 8 }
        body_filter_by_lua_block {
            ngx.arg[1] = ngx.ctx.told and '' or 'accepted'
            ngx.ctx.told = true
        }
    }
    location /nothing {
        proxy_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        header_filter_by_lua_block { ngx.header.content_length = 0 }
        body_filter_by_lua_block { ngx.arg[1] = '' }
    }
    location /longer {
        proxy_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        header_filter_by_lua_block { ngx.header.content_length = 8 }
        body_filter_by_lua_block {
            if ngx.arg[2] then ngx.arg[1] = ngx.arg[1] .. 'more' end
        }
    }
    location /refused {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        header_filter_by_lua_block { ngx.exit(503) }
    }
    location /asks {
        set $asks '';
        vibelock_keep $asks;
        lua_check_client_abort on;
        content_by_lua_block {
            ngx.var.asks = 'yes'
            local answer = ngx.location.capture('/asked')
            ngx.var.asks = answer.status < 500 and '' or 'yes'
            ngx.status = answer.status
            ngx.print(answer.body)
        }
    }
    location /eof {
        content_by_lua_block {
            ngx.print('told')
            ngx.eof()
            ngx.location.capture('/asked')
        }
    }
    location /asked {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /exec {
        content_by_lua_block { ngx.exec('@proxy') }
    }
    location /nowhere {
        lingering_close always;
        content_by_lua_block { ngx.exec('@nowhere') }
    }
    location @proxy {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
EOC
$t->start;

my $n = 0;

# What the client has in full is not what the upstream says.

for my $where ('/accepted', '/nothing') {
    for my $case (['', 'RELEASED'], [undef, 'KEPT']) {
        my ($last, $result) = @$case;

        my $uri = "$where?id=" . ++$n;
        my ($x, $pending) = begins($t, $up, $uri);
        $x->send_head(200, { 'Transfer-Encoding' => 'chunked' });
        $x->send_chunk('it has begun');
        ok($pending->await(qr/\r\n\r\n/), "$where: an answer");
        is($pending->read_response->body,
           $where eq '/accepted' ? 'accepted' : '', "$where: in full");
        is(lock_of($t, $n), 'running', "$where: and the upstream runs on");
        defined $last ? $x->send_chunk($last) : $x->close;
        ends($t, $uri, $result, "$where: as the upstream ends");
        $pending->close;
    }
}

# What a filter adds is not a slice that is missing.

{
    my $uri = '/longer?id=' . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->respond(200, {}, 'once');
    is($pending->response->body, 'oncemore', 'a filter adds to it');
    ends($t, $uri, 'RELEASED', 'a longer answer');

    $uri = '/longer?id=' . ++$n;
    ($x, $pending) = begins($t, $up, $uri);
    $pending->reset;
    $x->respond(200, {}, 'once');
    ends($t, $uri, 'RELEASED', 'a longer answer, and nobody to have it');
}

{
    my $uri = '/refused?id=' . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->send_head(200, { 'Transfer-Encoding' => 'chunked' });
    is($pending->response->status, 503, 'a filter exits');
    ends($t, $uri, 'KEPT', 'an error that a filter made');
}

for my $case (['respond', 'RELEASED'], ['close', 'KEPT'], ['leave', 'KEPT']) {
    my ($how, $result) = @$case;

    my $uri = '/asks?id=' . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $how eq 'leave' ? $pending->close
                    : $x->$how($how eq 'respond' ? 200 : ());
    $pending->read_rest if $how ne 'leave';
    ends($t, $uri, $result, "what a script asks for, and says so: $how");
    $x->close;
}

{
    my $uri = '/eof?id=' . ++$n;
    my $pending = $t->async(POST => $uri);
    my $x = $up->accept_request;
    is(lock_of($t, $n), 'free', 'what it asks for behind its answer');
    $x->respond(200);
    is($pending->response->body, 'told', 'which was there before');
    ends($t, $uri, 'RELEASED', 'what it asks for behind its answer');
}

for my $case (['respond', 'RELEASED'], ['close', 'KEPT']) {
    my ($how, $result) = @$case;

    my $uri = '/exec?id=' . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->$how($how eq 'respond' ? 200 : ());
    $pending->read_rest;
    ends($t, $uri, $result, "ngx.exec and a named location: $how");
}

# The module's context is gone then, and there was no redirect.

{
    my $uri = '/nowhere?id=' . ++$n;
    my $c = $t->connect;
    $c->send_request(POST => $uri);
    is($c->read_response->status, 500, 'a named location that is not there');
    is(lock_of($t, $n), 'free', 'free, though the request is not over');
    $c->close;
    ends($t, $uri, 'RELEASED', 'a named location that is not there');
}

$t->done;

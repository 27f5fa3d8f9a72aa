#!/usr/bin/perl

# A filter that keeps the header until it sees what the body is, and makes an
# answer of its own where nothing more comes.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends gate);
use Vibelock::Test;
use Vibelock::Upstream;
use Vibelock::Util qw(limit);

my $module = '/usr/lib/nginx/modules/ngx_http_image_filter_module.so';

plan(skip_all => 'libnginx-mod-http-image-filter is not installed')
    unless -e $module;
plan(skip_all => 'it is for the nginx of the system')
    if $ENV{VIBELOCK_NGINX};

my $up = Vibelock::Upstream->new;
my $other = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);
my $short = limit(1);

$t->set(UPSTREAM => $up->port, OTHER => $other->port, SHORT => "${short}s");
$t->main("load_module $module;");
$t->http(gate() . <<'EOC');
    vibelock exec zone=z;
    proxy_http_version 1.1;
    image_filter_buffer 1k;
EOC
$t->server(<<'EOC');
    location /test {
        image_filter test;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /size {
        image_filter size;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /silent {
        image_filter test;
        proxy_read_timeout %%SHORT%%;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /other {
        image_filter test;
        error_page 415 = @other;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @other {
        proxy_pass http://127.0.0.1:%%OTHER%%;
    }
EOC
$t->start;

my $n = 0;
my $gif = pack 'H*', '47494638396101000100800000000000ffffff21f90401000000002c'
                   . '000000000100010000020144003b';

for my $case (['/test', 415], ['/size', 200], ['/silent', 415]) {
    my ($where, $status) = @$case;

    my $uri = "$where?id=" . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->send_head(200, { 'Content-Type'   => 'image/gif',
                         'Content-Length' => length $gif });
    $x->close if $where ne '/silent';
    is($pending->response->status, $status, "$where: an answer of its own");
    ends($t, $uri, 'KEPT', "$where: a header, and no body");
    $x->close;
}

# nginx goes on to another upstream, and drops that too.

{
    my $uri = '/other?id=' . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->send_head(200, { 'Content-Type'   => 'image/gif',
                         'Content-Length' => length $gif });
    $x->close;
    $pending->read_rest;
    ends($t, $uri, 'KEPT', 'another upstream, after a header and no body');
}

for my $where ('/test', '/size') {
    my $uri = "$where?id=" . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->respond(200, { 'Content-Type' => 'image/gif' }, $gif);
    is($pending->response->status, 200, "$where: an image");
    ends($t, $uri, 'RELEASED', "$where: an image");

    $uri = "$where?id=" . ++$n;
    ($x, $pending) = begins($t, $up, $uri);
    $x->respond(200, { 'Content-Type' => 'image/gif' }, '');
    $pending->read_rest;
    ends($t, $uri, 'RELEASED', "$where: nothing, in full");
}

$t->done;

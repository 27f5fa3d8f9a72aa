#!/usr/bin/perl

# A filter that keeps the header until it has all of the body: to nginx the
# answer is on its way, to the client nothing is.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(begins ends gate);
use Vibelock::Test;
use Vibelock::Upstream;

my $xslt = '/usr/lib/nginx/modules/ngx_http_xslt_filter_module.so';

plan(skip_all => 'libnginx-mod-http-xslt-filter is not installed')
    unless -e $xslt;
plan(skip_all => 'it is for the nginx of the system')
    if $ENV{VIBELOCK_NGINX};

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1);

$t->set(UPSTREAM => $up->port);
$t->main("load_module $xslt;");
$t->http(gate());
$t->server(<<'EOC');
    location / {
        vibelock exec zone=z;
        proxy_http_version 1.1;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        xslt_stylesheet %%DIR%%/sheet.xsl;
    }
    location /instead {
        vibelock exec zone=z;
        proxy_http_version 1.1;
        proxy_buffering off;
        error_page 500 /sheet.xsl;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        xslt_stylesheet %%DIR%%/sheet.xsl;
    }
    location = /sheet.xsl {
        root %%DIR%%;
    }
EOC
$t->write_file('sheet.xsl', <<'EOC');
<xsl:stylesheet version="1.0"
                xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><b/></xsl:template>
</xsl:stylesheet>
EOC
$t->start;

my $n = 0;

for my $status (200, 503) {
    my $uri = '/?id=' . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->send_head($status, { 'Content-Type'   => 'text/xml',
                             'Content-Length' => 4 });
    $x->send('<a/>');
    like($pending->response->body, qr{<b/>}, "$status: made something else");
    ends($t, $uri, 'RELEASED', "$status, in full");

    # What is read has to be with nginx before the client leaves.

    $uri = '/?id=' . ++$n;
    ($x, $pending) = begins($t, $up, $uri);
    $x->send_head($status, { 'Content-Type'   => 'text/xml',
                             'Content-Length' => 100 });
    $x->send('<a>');
    select undef, undef, undef, 0.2;
    $pending->abort;
    ends($t, $uri, 'KEPT', "$status: the client leaves within the body");
    $x->close;
}

# What the filter cannot read may be all there, and what has its place may not.

for my $case (['RELEASED', '<a', 2], ['KEPT', '<a></b>', 100]) {
    my ($result, $xml, $length) = @$case;

    my $uri = '/instead?id=' . ++$n;
    my ($x, $pending) = begins($t, $up, $uri);
    $x->send_head(200, { 'Content-Type'   => 'text/xml',
                         'Content-Length' => $length });
    $x->send($xml);
    $pending->read_rest;
    ends($t, $uri, $result, "a file instead of an answer: $result");
    $x->close;
}

$t->done;

#!/usr/bin/perl

# An upstream behind TLS, where nginx takes a connection that was reset for one
# that was closed.

use strict;
use warnings;

use File::Temp qw(tempdir);
use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::Process qw(run);
use Vibelock::Proxy;
use Vibelock::Test;
use Vibelock::Upstream;

plan skip_all => 'no openssl' unless grep { -x "$_/openssl" }
                                     split /:/, $ENV{PATH};

my $dir = tempdir(CLEANUP => 1);

my ($code, $said) = run([qw(openssl req -x509 -newkey rsa:2048 -nodes -days 2),
                         '-subj', '/CN=upstream', '-keyout', "$dir/tls.key",
                         '-out', "$dir/tls.pem"]);

$code == 0 or BAIL_OUT("openssl: $said");

# The second server is what has the certificate; the proxy is the network.

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new;
my $network = Vibelock::Proxy->start(to => $t->port(1));

$t->set(UPSTREAM => $up->port, NETWORK => $network->port, TLS => $dir);
$t->http(gate() . <<'EOC');
    postpone_output 0;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $http_connection;
    server {
        listen 127.0.0.1:%%PORT_1%% ssl;
        access_log off;
        ssl_certificate %%TLS%%/tls.pem;
        ssl_certificate_key %%TLS%%/tls.key;
        proxy_http_version 1.1;
        proxy_buffering off;
        location / { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    }
EOC
$t->server(<<'EOC');
    vibelock exec zone=z;

    location /buffered { proxy_pass https://127.0.0.1:%%NETWORK%%;
                         proxy_http_version 1.0; }
    location /passed   { proxy_pass https://127.0.0.1:%%NETWORK%%;
                         proxy_http_version 1.0; proxy_buffering off; }
    location /socket   { proxy_pass https://127.0.0.1:%%NETWORK%%;
                         proxy_http_version 1.1; }
EOC
$t->start;

my $n = 0;

# A client that has the beginning of an answer, which its connection ends.

sub begun {
    my ($where, $head, $status) = @_;

    my $id = ++$n;
    my $uri = "$where?id=$id";
    my $c = $t->connect;

    $c->send_raw("GET $uri HTTP/1.1\r\nHost: x\r\n$head\r\n");

    my $x = $up->accept_request;

    $x->send("HTTP/1.1 $status\r\n$head\r\nfirst");
    like($c->read_until("\r\n\r\n"), qr/^HTTP\S+ \Q$status\E/, 'it has begun');
    is(lock_of($t, $id), 'running', 'locked');

    return ($uri, $x, $c);
}

my %head = ('/socket' => "Connection: Upgrade\r\nUpgrade: websocket\r\n");
my %status = ('/socket' => '101 Switching Protocols');

for my $where (qw(/buffered /passed /socket)) {
    for my $case (
        ['the upstream closes',            'RELEASED', sub { $_[0]->close }],
        ['the network closes, unsaid',     'RELEASED', sub { $network->drop }],
        ['the connection is reset',        'KEPT',     sub { $network->reset }],
    ) {
        my ($name, $result, $play) = @$case;
        my ($uri, $x, $c) = begun($where, $head{$where} // '',
                                  $status{$where} // '200 OK');
        $play->($x);
        ends($t, $uri, $result, "$where: $name");
        $x->close;
        $c->close;
    }
}

is(() = $t->error_log =~ /is stuck: the upstream closed early/g, 3,
   'the log says why');

$network->stop;
$t->done;

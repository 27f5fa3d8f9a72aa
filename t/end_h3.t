#!/usr/bin/perl

# HTTP/3: a client that closes its connection ends its requests there and then,
# whatever proxy_ignore_client_abort says, and so does one that waits in silence.

use strict;
use warnings;

use Test::More;

use Vibelock::Ends qw(ends lock_of gate);
use Vibelock::Process qw(spawn run end_group wait_exit);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my ($client) = grep { -x } map { "$_/gtlsclient" } split /:/, $ENV{PATH};

plan(skip_all => 'ngtcp2-client is not installed') unless $client;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new(workers => 1, shutdown_timeout => '1s');

plan(skip_all => 'this nginx has no HTTP/3')
    if (run([$t->nginx, '-V']))[1] !~ /--with-http_v3_module/;

my ($code, $output) = run(
    [qw(openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost),
     '-keyout', $t->path('key.pem'), '-out', $t->path('cert.pem')]);

BAIL_OUT("openssl: $output") if $code;

$t->set(UPSTREAM => $up->port);
$t->write_file(body => 'b');
$t->http(gate() . <<'EOC');
    proxy_http_version 1.1;
    ssl_certificate %%DIR%%/cert.pem;
    ssl_certificate_key %%DIR%%/key.pem;

    server {
        listen 127.0.0.1:%%PORT_2%% quic;
        keepalive_timeout 1s;
        vibelock exec zone=z;
        location / { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                     proxy_ignore_client_abort on; }
    }
EOC
$t->server(<<'EOC');
    listen 127.0.0.1:%%PORT_1%% quic;
    vibelock exec zone=z;
    location /      { proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /stays { proxy_pass http://127.0.0.1:%%UPSTREAM%%;
                      proxy_ignore_client_abort on; }
EOC
$t->start;

my $n = 0;

sub begin {
    my ($where, $port) = @_;

    my $uri = "$where?id=" . ++$n;
    my $pid = spawn([$client, qw(--exit-on-all-streams-close -q -m POST -d),
                     $t->path('body'), '127.0.0.1', $t->port($port // 1),
                     "https://localhost$uri"],
                    stdout => $t->path('client'), stderr => $t->path('client'));
    my $x = $up->accept_request;

    is(lock_of($t, $n), 'running', "$uri runs");

    return ($uri, $x, $pid);
}

for my $where (qw(/ /stays)) {
    my ($uri, $x, $pid) = begin($where);
    $x->respond(200, {}, ['all', 'of it']);
    ends($t, $uri, 'RELEASED', "$where: answered in full");
    ok(defined wait_exit($pid, 10), 'and the client has it');

    ($uri, $x, $pid) = begin($where);
    $x->close;
    ends($t, $uri, 'KEPT', "$where: no answer");
    end_group($pid);

    ($uri, $x, $pid) = begin($where);
    kill 'INT', $pid;
    ends($t, $uri, 'KEPT', "$where: the client closes its connection");
    ok($t->log_like(qr/is stuck: the client left, zone "z", key "$n"/),
       'the log says so');
    $x->close;
}

{
    my ($uri, $x, $pid) = begin('/', 2);
    ends($t, $uri, 'KEPT', 'nothing moves for keepalive_timeout');
    $x->close;
    end_group($pid);
}

{
    my ($uri, $x, $pid) = begin('/stays');
    $t->reload;
    ends($t, $uri, 'KEPT', 'the worker is shut down');
    ok($t->log_like(qr/is stuck: its worker was shut down, zone "z", key "$n"/),
       'the log says so');
    $x->close;
    end_group($pid);
}

$t->done;

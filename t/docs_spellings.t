#!/usr/bin/perl

# The example configurations: however a guarded address is written, it does not
# reach the platform without its guard; and other addresses do.

use strict;
use warnings;

use Test::More;

use Vibelock::Docs qw(blocks);
use Vibelock::Test;
use Vibelock::Upstream::Auto;
use Vibelock::Util qw(read_file);

my $servers = '/v1/infra/servers';
my $mine = "$servers/da76a437-284c-47fa-8462-e72f896487e2";
my %key = ('X-Api-Key' => 'example-personal-key');

# Of exec; the other operations are put in its place.

my @other = (
    "$mine/exec/", "$mine/EXEC", "$mine/Exec", "$mine/exec;x", "$mine/exec;/x",
    "$mine/exec%2F", "$mine/exec%3Fx", "$mine/exec%20", "$mine/%20exec",
    "$mine/exec.json", "$mine/exec.html", "$mine/exec%5C", "$mine%5Cexec",
    "$mine%2Fx/exec", "$mine/x/exec", "$mine/x%0A/exec", "$mine%0A/x/exec/",
    "$mine;x/y/exec", "$mine/%65xec/", "$mine/%65%78%65%63;x",
    "$mine/exec%C2%A0", "/V1/infra/servers/web-1/exec",
    "/v1;x/infra/servers/web-1/exec",
    "/v1/infra/servers;x/web-1/exec", "/x/..%2Fv1/infra//servers/web-1/exec/",
    "$mine/exec/x/..", "$mine/exec/./", "$mine/exec//", "$mine/exec/x",
);

# What is the same address for nginx: the guard's.

my @guarded = (
    "$mine/exec", "/$mine/exec", "$mine//exec", "$mine/./exec",
    "$mine/x/../exec", "$mine/%65xec", "$mine%2Fexec", "$mine/exec?x=/y",
    "$mine/exec#x", "$mine/exec/x/../../exec", "$mine/exec/%2e%2e/exec",
);

my @free = (
    '/', '/v1/billing/lock', $servers, "$servers/", $mine, "$mine/files",
    "$mine/executions", "$mine/lock-history", "$mine/deployments?of=exec",
    "$mine/files?path=/exec", "$mine/files/a%20b", "$mine/unstick2",
    "$servers/block-1/files", "$servers?q=/lock", '/v1/infra/exec',
);

for my $file (qw(vibelock.conf nginx.conf)) {
    my $up = Vibelock::Upstream::Auto->start;
    my $t = Vibelock::Test->new;
    my $text = read_file("docs/examples/$file");

    $text =~ s/\@LISTEN\@/127.0.0.1:8080/g;
    $text =~ s/\@UPSTREAM\@/127.0.0.1:9000/g;

    Vibelock::Docs::apply($t, { level => $text =~ /^http/m ? 'file' : 'http',
                                text => $text }, 9000 => $up->port);
    $t->write_file('registry.json', read_file('docs/examples/registry.json'));
    $t->start;

    my $held = $t->async(POST => "$mine/deploy", body => '{}',
                         headers => { %key, 'X-Upstream' => 'park/held' });
    $up->wait_requests(1);

    for my $operation (qw(exec deploy lock unstick)) {
        for my $uri (map { s/exec/$operation/gr =~ s/EXEC/\U$operation/r
                                =~ s/Exec/\u$operation/r } @other) {
            for my $headers ({%key}, {}) {
                my $response = $t->post($uri, headers => $headers,
                                        body => '{}');
                my $name = "$file: $uri" . (%$headers ? ', with a key' : '');

                is($response->status, 404, "$name: 404")
                    or diag $response->body;
                is($response->header('Content-Type'), 'application/json',
                   "$name: JSON");
                is($response->header('Cache-Control'), 'no-store',
                   "$name: not for a cache");
                is(eval { $response->json->{error}{code} }, 'NOT_FOUND',
                   "$name: as any refusal");
            }
        }
    }

    for my $uri (@guarded) {
        is($t->post($uri, headers => {%key}, body => '{}')->status, 409,
           "$file: $uri is guarded");
        is($t->post($uri, body => '{}')->status, 401,
           "$file: $uri wants a key");
    }

    is(scalar(() = $up->requests), 1, "$file: the platform had none of these");

    for my $uri (@free) {
        is($t->get($uri, headers => { 'X-Upstream' => 'ok' })->status, 200,
           "$file: $uri passes");
    }

    is_deeply([map { $_->{uri} } ($up->requests)[1 .. @free]], \@free,
              "$file: to the platform, as they are");

    # What was judged is what the platform gets.
    $t->get("$mine/%65xec/%2e%2e/x/%2e%2e/y%2Fz",
            headers => { 'X-Upstream' => 'ok' });
    is(($up->requests)[-1]{uri}, "$mine/y/z", "$file: no dots reach it");

    $up->release('held');
    is($held->response->status, 200, "$file: and the lock was held meanwhile");

    for my $uri ("$servers/theirs/exec/../..", "$servers/theirs%2Fexec%2F../..",
                 "$servers/theirs/exec;/../..", "$servers/theirs/exec%3F/../..")
    {
        my $whole = $uri . ($mine =~ s/^\Q$servers//r) . '/exec?a=%20b';

        is($t->post($whole, headers => { %key, 'X-Upstream' => 'ok' },
                    body => '{}')->status, 200, "$file: $whole");
        is(($up->requests)[-1]{uri}, "$mine/exec?a=%20b",
           "$file: the platform gets whose server it is");
    }

    $t->finish;
}

# A guard that sends the platform what was judged.

{
    my $up = Vibelock::Upstream::Auto->start;
    my $t = Vibelock::Test->new;
    my ($block) = blocks('SECURITY.md', lang => 'nginx');

    Vibelock::Docs::apply($t, $block, 9000 => $up->port);
    $t->start;

    for my $uri ('/servers/theirs/exec/../../mine/exec?a=%2Fb',
                 '/servers/theirs/exec/..%2F%2e./mine//%65xec?a=%2Fb',
                 '/servers/mine/exec?a=%2Fb')
    {
        is($t->post("/v1/infra$uri", headers => { 'X-Upstream' => 'ok' })
               ->status, 200, $uri);
        is(($up->requests)[-1]{uri}, '/v1/infra/servers/mine/exec?a=%2Fb',
           'the platform gets what was judged');
        is($t->logged("/v1/infra$uri")->{result}, 'RELEASED',
           'behind a guard');
    }

    $t->finish;
}

Vibelock::Test->done;

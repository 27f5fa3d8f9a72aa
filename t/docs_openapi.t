#!/usr/bin/perl

# docs/openapi.yaml: valid, and true of what the gateway really answers.

use strict;
use warnings;

use Cwd ();
use Test::More;

use Vibelock::Docs ();
use Vibelock::Node qw(have_node);
use Vibelock::OpenApi;
use Vibelock::Process qw(run);
use Vibelock::Test;
use Vibelock::Upstream::Auto;
use Vibelock::Util qw(read_file);

my $file = 'docs/openapi.yaml';

SKIP: {
    my $tools = Cwd::abs_path('build/npm') // '';

    skip 'the linter is not installed: no npm', 1
        unless have_node() && -d "$tools/node_modules";

    my ($code, $output) = run(['node', 't/npm/lint.mjs', $file],
                              env => { NODE_TOOLS => $tools });
    is($output, '', 'the linter finds nothing');
}

# What the module adds to an answer, and what the document has to tell of it.

my $api = Vibelock::OpenApi->read($file,
    headers => [qw(Allow Cache-Control Retry-After WWW-Authenticate)]);
my $up = Vibelock::Upstream::Auto->start;
my $servers = '/v1/infra/servers';
my $mine = "$servers/da76a437-284c-47fa-8462-e72f896487e2";
my @key = ('X-Api-Key' => 'example-personal-key');
my @app = ('X-Api-Key' => 'example-app-key');

# The example, as it is.

my $t = Vibelock::Test->new;
Vibelock::Docs::apply($t, { level => 'http',
    text => read_file('docs/examples/vibelock.conf') }, 9000 => $up->port);
$t->start;

sub fits {
    my ($method, $uri, $status, $code, %how) = @_;

    my $response = ($how{to} || $t)->request($method => $uri, %how);
    my $headers = join ' ', %{ $how{headers} || {} };
    my $name = "$method $uri " . substr $headers, 0, 60;

    is($response->status, $status, "$name: $status") or diag $response->body;
    is_deeply([$api->faults($method, $uri, $response)], [],
              "$name: as described");
    is($response->json->{error}{code}, $code, "$name: $code") if $code;

    return $response;
}

for my $operation (qw(exec deploy)) {
    my $uri = "$mine/$operation";

    fits(POST => $uri, 200, undef, headers => {@key});
    fits(POST => $uri, 401, 'MISSING_API_KEY');
    fits(POST => $uri, 401, 'INVALID_API_KEY',
         headers => { 'X-Api-Key' => 'no' });
    fits(POST => $uri, 401, 'INVALID_APP_KEY', headers => {@app});
    fits(POST => "$servers/none/$operation", 404, 'NOT_FOUND',
         headers => {@key});
    fits(POST => "$servers/" . 'x' x 256 . "/$operation", 400,
         'VALIDATION_ERROR', headers => {@key});

    # Stuck, and then running.
    $t->post($uri, headers => { @key, 'X-Upstream' => 'close' });
    is(fits(POST => $uri, 409, 'EXEC_BUSY', headers => {@key})
           ->json->{error}{state}, 'stuck', 'stuck');
    is(fits(GET => "$mine/lock", 200, undef, headers => {@key})
           ->json->{data}{operation}, $operation, 'GET');
    ok(fits(DELETE => "$mine/lock", 200, undef, headers => {@key})
           ->json->{data}{released}, 'released');

    my $seen = () = $up->requests;
    my $running = $t->async(POST => $uri,
        headers => { @key, 'X-Upstream' => "park/$operation" });
    $up->wait_requests($seen + 1);
    is(fits(POST => $uri, 409, 'EXEC_BUSY', headers => {@key})
           ->json->{error}{state}, 'running', 'running');
    $up->release($operation);
    is($running->response->status, 200, 'ended');
}

fits(POST => "$mine/exec", 400, 'VALIDATION_ERROR', headers => {@key},
     body => '{"timeout":"60"}');
fits(POST => "$mine/exec", 401, 'TOKEN_EXPIRED', headers => { @app,
     Authorization => 'Bearer example-old-session' });

for my $method (qw(GET HEAD DELETE)) {
    my $code = $method ne 'HEAD';

    fits($method => "$mine/lock", 200, undef, headers => {@key});
    fits($method => "$mine/lock", 401, $code && 'MISSING_API_KEY');
    fits($method => "$servers/none/lock", 404, $code && 'NOT_FOUND',
         headers => {@key});
    fits($method => "$servers/" . 'x' x 256 . '/lock', 400,
         $code && 'VALIDATION_ERROR', headers => {@key});
}

# Of methods that are not described, the answer still is.

my $put = $t->request(PUT => "$mine/lock", headers => {@key});
is($put->status, 405, 'PUT');
is_deeply([$api->faults(DELETE => "$mine/lock", $put)], [], 'as described');

$put = $t->request(PUT => "$mine/unstick", headers => {@key});
is_deeply([$api->faults(POST => "$mine/unstick", $put)], [], 'as described');

fits(POST => "$mine/unstick", 200, undef, headers => {@key});
fits(POST => "$mine/unstick", 401, 'MISSING_API_KEY');
fits(POST => "$servers/none/unstick", 404, 'NOT_FOUND', headers => {@key});
fits(POST => "$servers/" . 'x' x 256 . '/unstick', 400, 'VALIDATION_ERROR',
     headers => {@key});
fits(POST => "$servers/9608eb55-1399-4eb9-ae30-2bb017b82d30/unstick", 409,
     'GALAXY_UNSTICK_UNSUPPORTED',
     headers => { @app, Authorization => 'Bearer example-session' });

# Answers of nginx's own.

my $large = 'x' x (1024 * 1024 + 1);

fits(POST => "$mine/exec", 413, undef, headers => {@key}, body => $large);
fits($_ => "$mine/lock", 413, undef, headers => {@key}, body => $large)
    for qw(GET HEAD DELETE);
fits(POST => "$mine/unstick", 502, undef,
     headers => { @key, 'X-Upstream' => 'close' });
fits(POST => "$mine/deploy", 502, undef,
     headers => { @key, 'X-Upstream' => 'close' });
$t->delete("$mine/lock", headers => {@key});

# And of the platform's.
fits(POST => "$mine/deploy", 202, undef,
     headers => { @key, 'X-Upstream' => 'status/202' });

# A full zone, and the gateway's own unstick.

my $full = Vibelock::Test->new(workers => 1);
$full->set(UPSTREAM => $up->port);
$full->http('vibelock_zone $server_id zone=ops:256k;
             vibelock_owner ann;
             keepalive_requests 10000;');
$full->server(<<'EOC');
    location ~ ^/v1/infra/servers/(?<server_id>[^/]+)/(?:exec|deploy)$ {
        vibelock exec zone=ops;
        vibelock_keep 1;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/v1/infra/servers/(?<server_id>[^/]+)/unstick$ {
        vibelock_server_kind STANDALONE;
        vibelock_unstick zone=ops;
    }
EOC
$full->start;

my $connection = $full->connect;
my ($n, $answer) = (0);

do {
    $answer = $full->post("$servers/n" . $n++ . '/exec',
                          connection => $connection);
} while ($answer->status == 200 && $n < 5000);

fits(POST => "$servers/more/exec", 503, 'LOCK_ZONE_FULL', to => $full);
fits(POST => "$servers/more/deploy", 503, 'LOCK_ZONE_FULL', to => $full);
my $unstuck = fits(POST => "$servers/n1/unstick", 200, undef, to => $full);
ok($unstuck->json->{data}{released}, 'unstick');
is($unstuck->header('Cache-Control'), 'no-store', 'of which no cache knows');

is_deeply([$api->unseen], [], 'each answer of the document was seen');

$t->done;

#!/usr/bin/perl

# What every error looks like, to the letter.

use strict;
use warnings;

use Test::More;

use Vibelock::Registry qw(registry account server);
use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json;
    vibelock_retry_after 2s;

    expires 1h;
    charset utf-8;
EOC
$t->server(<<'EOC');
    error_page 400 401 404 405 409 /page;
    client_max_body_size 0;

    location ~ ^/servers/(?<server_id>[^/]+)/exec$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/servers/(?<server_id>[^/]+)/odd$ {
        vibelock exec zone=ops;
        vibelock_ttl 'json=a "field" %V\\' default=1s max=1500ms;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/servers/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
    location ~ ^/servers/(?<server_id>[^/]+)/unstick$ {
        vibelock_unstick zone=ops;
    }
    location = /asks {
        auth_request /servers/mine/lock;
        error_page 500 /page;
        empty_gif;
    }
    location = /instead {
        error_page 404 =200 /servers/busy/exec;
        return 404;
    }
    location = /page {
        return 200 "a page\n";
    }
EOC
$t->write_file('registry.json', registry(
    keys => [
        account('me', 'my key'),
        account('app', 'app key', type => 'app', sessions => { over => 1 }),
    ],
    servers => [
        (map { server($_, 'me') } qw(mine busy stuck)),
        server('host', 'me', kind => 'GALAXY_HOST'),
    ],
));
$t->start;

my %me = ('X-Api-Key' => 'my key');
my %app = ('X-Api-Key' => 'app key');

sub error_is {
    my ($r, $status, $body, $name, %headers) = @_;

    subtest $name => sub {
        is($r->status, $status, 'status');

        # "#" stands for a number, "?" for the seconds to wait.
        my $pattern = quotemeta $body;
        $pattern =~ s/\\#/\\d+/g;
        $pattern =~ s/\\\?/[12]/g;
        like($r->body, qr/\A$pattern\z/, 'body');

        is($r->header('Content-Type'), 'application/json', 'Content-Type');
        is($r->header('Cache-Control'), 'no-store', 'Cache-Control');
        is($r->header('Content-Length'), length $r->body, 'Content-Length');

        my $error = $r->json->{error};
        is($error->{retryAfter}, $r->header('Retry-After'),
           'retryAfter mirrors Retry-After');

        for my $name ('Allow', 'WWW-Authenticate') {
            is($r->header($name), $headers{$name}, $name);
        }
    };

    return;
}

# A text with its members in this order, and nothing else.

sub text {
    my ($code, $message, $hint, $more) = @_;

    return "{\"success\":false,\"error\":{\"code\":\"$code\","
        . "\"message\":\"$message\""
        . (defined $hint ? ",\"hint\":\"$hint\"" : '')
        . ($more // '') . '}}';
}

my @challenge = ('WWW-Authenticate' => 'Bearer realm="api"');

error_is($t->post('/servers/mine/exec'), 401,
    text('MISSING_API_KEY', 'An API key is required',
         'Send the key as X-Api-Key: <key>, or as Authorization: Bearer'
         . ' <key>'),
    '401 MISSING_API_KEY', @challenge);

is($t->get('/asks')->header('WWW-Authenticate'), $challenge[1],
   'the challenge of a 401 that auth_request passes on');

error_is($t->post('/servers/mine/exec', headers => { 'X-Api-Key' => 'x' }),
    401,
    text('INVALID_API_KEY', 'The API key is not known',
         'Send one valid key: check that it is complete, and that it was not'
         . ' replaced or revoked'),
    '401 INVALID_API_KEY', @challenge);

error_is($t->post('/servers/mine/exec', headers => \%app), 401,
    text('INVALID_APP_KEY',
         'An application key needs a valid session of its user',
         'Send the key as X-Api-Key: <key>, and the session as'
         . ' Authorization: Bearer <session>'),
    '401 INVALID_APP_KEY', @challenge);

error_is($t->post('/servers/mine/exec',
                  headers => { %app, Authorization => 'Bearer over' }), 401,
    text('TOKEN_EXPIRED', 'The session of the user has expired',
         'Let the user log in again, and send the new session as'
         . ' Authorization: Bearer <session>'),
    '401 TOKEN_EXPIRED', @challenge);

error_is($t->post('/servers/none/exec', headers => \%me), 404,
    '{"success":false,"error":{"code":"NOT_FOUND",'
    . '"message":"Server not found"}}',
    '404 NOT_FOUND, not a word more');

error_is($t->post('/servers/' . 'x' x 256 . '/exec', headers => \%me), 400,
    text('VALIDATION_ERROR',
         'The server id must be UTF-8 of at most 255 bytes',
         'Check the server id in the address'),
    '400 for an id');

error_is($t->post('/servers/mine/exec', headers => \%me, body => '[]'), 400,
    text('VALIDATION_ERROR',
         'The request body must be a JSON object without duplicate members',
         'Send one JSON object, or an empty body for the default timeout'),
    '400 for a body that is no object');

my $number = 'Send a JSON number without quotes, or leave the field out for'
             . ' the default timeout';

error_is($t->post('/servers/mine/exec', headers => \%me,
                  json => { timeout => 'x' }), 400,
    text('VALIDATION_ERROR',
         'timeout must be a number of seconds over 0, at most 3600', $number),
    '400 for a timeout');

error_is($t->post('/servers/mine/odd', headers => \%me,
                  json => { 'a "field" %V\\' => 2 }), 400,
    text('VALIDATION_ERROR',
         'a \"field\" %V\\\\ must be a number of seconds over 0, at most'
         . ' 1.500', $number),
    '400 for a field of an odd name');

error_is($t->post('/servers/mine/exec', headers => \%me,
                  body => ' ' x (1024 * 1024 + 1)), 400,
    text('VALIDATION_ERROR',
         'The request body of this operation must not be over 1 MB',
         'Send a shorter body, and large data in another way'),
    '400 for a large body');

error_is($t->post('/servers/mine/lock', headers => \%me), 405,
    text('METHOD_NOT_ALLOWED', 'The method must be DELETE, GET or HEAD',
         'DELETE releases the lock, GET and HEAD tell of it'),
    '405 at the lock', Allow => 'DELETE, GET, HEAD');

error_is($t->get('/servers/mine/unstick', headers => \%me), 405,
    text('METHOD_NOT_ALLOWED', 'The method must be POST',
         'POST resets the exec channel of the server and releases its lock'),
    '405 at unstick', Allow => 'POST');

error_is($t->post('/servers/host/unstick', headers => \%me), 409,
    text('GALAXY_UNSTICK_UNSUPPORTED',
         'Only a server of kind STANDALONE can be unstuck',
         'The exec channel is shared with other servers: repeat the operation'
         . ' at the pace of Retry-After, and ask support if it stays busy',
         ',"retryAfter":?'),
    '409 GALAXY_UNSTICK_UNSUPPORTED');

# Two locks to be busy with.

my $seen = () = $up->requests;
my $running = $t->async(POST => '/servers/busy/exec',
    headers => { %me, 'X-Upstream' => 'park/one' });
my $leaves = $t->async(POST => '/servers/stuck/exec',
    headers => { %me, 'X-Upstream' => 'silent' });
$up->wait_requests($seen + 2);
$leaves->abort;
$t->access_like(qr/KEPT/);

error_is($t->post('/servers/busy/exec', headers => \%me), 409,
    text('EXEC_BUSY', 'Another operation is running on this server',
         'Wait, and repeat the request after retryAfter seconds: the lock is'
         . ' released when the operation ends',
         ',"retryAfter":?,"operation":"exec","state":"running","ageMs":#,'
         . '"expiresInMs":#'),
    '409 EXEC_BUSY, running');

is($t->get('/instead', headers => \%me)->status, 409,
   'whatever error_page would make of the error before');

error_is($t->post('/servers/stuck/exec', headers => \%me), 409,
    text('EXEC_BUSY', 'An operation whose end was not seen holds the lock'
         . ' of this server',
         'Wait, and repeat the request after retryAfter seconds; if nothing'
         . ' runs on the server any more, DELETE .../lock releases the lock',
         ',"retryAfter":?,"operation":"exec","state":"stuck","ageMs":#,'
         . '"expiresInMs":#'),
    '409 EXEC_BUSY, stuck');

subtest 'HEAD of an error' => sub {
    my $r = $t->request(HEAD => '/servers/none/lock', headers => \%me);

    is($r->status, 404, 'status');
    is($r->body, '', 'no body');
    is($r->header('Content-Length'), length text('NOT_FOUND',
       'Server not found'), 'and its length');
};

subtest "nginx's own errors stay nginx's" => sub {
    my $r = $t->get('/servers/%00/exec');
    is($r->body, "a page\n", 'a 400 of its own goes to error_page');

    $up->stop;
    $r = $t->post('/servers/mine/exec', headers => \%me);
    is($r->status, 502, 'a 502 of its own');
    like($r->body, qr/<html>/, 'has its page');
    $up->restart;
};

$t->done;

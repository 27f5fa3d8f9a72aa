#!/usr/bin/perl

# Who may call.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use JSON::PP ();
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
EOC
$t->server(<<'EOC');
    location ~ ^/servers/(?<server_id>[^/]*)/exec$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/servers/(?<server_id>[^/]*)/lock$ {
        vibelock_release zone=ops;
    }
EOC

my $now = time;

$t->write_file('registry.json', registry(
    keys => [
        account('k-me', ['my key', 'my next key']),
        account('k-you', 'your key', sha256 => uc sha256_hex('your key')),
        account('k-app', 'app key', type => 'app', sessions => {
            'session'   => $now + 3600,
            'for ever'  => undef,
            'yesterday' => $now - 1,
        }),
        account('k-any', 'any key', type => 'app'),
        account('k-none', 'none key', type => 'app', sessions => {}),
    ],
    servers => [
        server('mine', 'k-me'),
        server('gone', 'k-me', deleted => JSON::PP::true),
        server('yours', 'k-you'),
        server('shop', 'k-app', kind => 'GALAXY_APP'),
        server('any', 'k-any', kind => 'GALAXY_HOST'),
        server('none', 'k-none', kind => 'GALAXY_HOST'),
    ],
));
$t->start;

# The status and code of both doors, which have to agree.

sub both {
    my ($server, $headers, $expected, $name) = @_;

    for (['POST', 'exec'], ['DELETE', 'lock']) {
        my ($method, $end) = @$_;
        my $r = $t->request($method, "/servers/$server/$end",
                            headers => $headers);
        my $code = $r->body =~ /"code":"(\w+)"/ ? " $1" : '';

        is($r->status . $code, $expected, "$name, $method $end");
    }

    return;
}

my $mine = [['X-Api-Key', 'my key']];

subtest 'no key' => sub {
    my $missing = '401 MISSING_API_KEY';

    both('mine', [], $missing, 'nothing');
    both('mine', [['X-Api-Key', '']], $missing, 'an empty X-Api-Key');
    both('mine', [['Authorization', 'Bearer']], $missing, 'Bearer alone');
    both('mine', [['Authorization', 'Basic bXkga2V5']], $missing,
         'another scheme');
    both('mine', [['Authorization', 'my key']], $missing, 'no scheme');
    both('mine', [['X-Api-Token', 'my key']], $missing, 'another header');
};

subtest 'a key nobody knows' => sub {
    my $invalid = '401 INVALID_API_KEY';

    both('mine', [['X-Api-Key', 'unknown']], $invalid, 'unknown');
    both('mine', [['X-Api-Key', 'My key']], $invalid, 'in another case');
    both('mine', [['X-Api-Key', 'my key2']], $invalid, 'longer');
    both('mine', [['X-Api-Key', 'my ke']], $invalid, 'shorter');
    both('mine', [['X-Api-Key', sha256_hex('my key')]], $invalid,
         'the digest of a key');
    both('mine', [['X-Api-Key', 'k-me']], $invalid, 'the id of a key');
    both('mine', [['X-Api-Key', 'x' x 4000]], $invalid, 'a long one');
    both('mine', [['Authorization', 'Bearer unknown']], $invalid, 'as Bearer');
    both('mine', [['X-Api-Key', 'my key, my key']], $invalid, 'a list');
};

subtest 'X-Api-Key' => sub {
    for my $name ('X-Api-Key', 'x-api-key', 'X-API-KEY', 'x-Api-kEY') {
        both('mine', [[$name, 'my key']], 200, $name);
    }

    both('mine', [['X-Api-Key', 'my next key']], 200,
         'the other digest of a key that is rotated');
    both('yours', [['X-Api-Key', 'your key']], 200,
         'a digest in upper-case hex');
    both('mine', [['X-Api-Key', '  my key  ']], 200, 'in blanks');
    both('mine', [@$mine, ['x-api-key', 'my key']], 200, 'two equal ones');
    both('mine', [@$mine, ['X-Api-Key', '']], 200, 'an empty one beside it');

    both('mine', [@$mine, ['x-api-key', 'your key']], '401 INVALID_API_KEY',
         'two that differ, both known');
    both('yours', [@$mine, ['x-api-key', 'your key']], '401 INVALID_API_KEY',
         'whoever owns the server');
    both('mine', [@$mine, ['X-Api-Key', 'my next key']],
         '401 INVALID_API_KEY', 'two of one account');
    both('mine', [['X-Api-Key', 'a'], ['X-Api-Key', 'b'],
                  ['Authorization', 'Bearer my key']],
         '401 INVALID_API_KEY', 'two that differ, beside a good Bearer');
    both('mine', [@$mine, (map { ["X-Filler-$_", 'x'] } 1 .. 40),
                  ['X-Api-Key', 'other']],
         '401 INVALID_API_KEY', 'two that differ, with forty between them');
};

subtest 'a personal key as Bearer' => sub {
    for my $value ('Bearer my key', 'bearer my key', 'BEARER my key',
                   'Bearer   my key')
    {
        both('mine', [['Authorization', $value]], 200, $value);
    }

    both('mine', [@$mine, ['Authorization', 'Bearer your key']], 200,
         'X-Api-Key wins over a Bearer');
    both('mine', [['X-Api-Key', 'unknown'], ['Authorization', 'Bearer my key']],
         '401 INVALID_API_KEY', 'X-Api-Key wins over a good Bearer');
    both('mine', [['X-Api-Key', ''], ['Authorization', 'Bearer my key']], 200,
         'an empty X-Api-Key is none');
    both('mine', [['Authorization', "Bearer\tmy key"]], '401 MISSING_API_KEY',
         'a tab is no space');
};

subtest 'an application key' => sub {
    my $app = ['X-Api-Key', 'app key'];
    my $bearer = sub { [$app, ['Authorization', "Bearer $_[0]"]] };
    my $invalid = '401 INVALID_APP_KEY';

    both('shop', $bearer->('session'), 200, 'a listed session');
    both('shop', $bearer->('for ever'), 200, 'a session without an end');
    both('shop', $bearer->('yesterday'), '401 TOKEN_EXPIRED',
         'a session that is over');
    both('shop', $bearer->('stranger'), $invalid, 'an unlisted session');
    both('shop', $bearer->('app key'), $invalid, 'the key as its session');
    both('shop', [$app], $invalid, 'no session');
    both('shop', [$app, ['Authorization', 'Basic c2Vzc2lvbg==']], $invalid,
         'a session of another scheme');
    both('shop', [['Authorization', 'Bearer app key']], $invalid,
         'the key as Bearer');

    both('any', [['X-Api-Key', 'any key'], ['Authorization', 'Bearer x']], 200,
         'any session, where none are listed');
    both('any', [['X-Api-Key', 'any key']], $invalid,
         'no session, where none are listed');
    both('none', [['X-Api-Key', 'none key'], ['Authorization', 'Bearer x']],
         $invalid, 'an empty list of sessions');
    both('mine', $bearer->('session'), '404 NOT_FOUND',
         "somebody else's server");
};

subtest 'whose server' => sub {
    my $not_found = '404 NOT_FOUND';

    both('mine', $mine, 200, 'my own');
    both('yours', $mine, $not_found, "somebody else's");
    both('never', $mine, $not_found, 'unknown');
    both('MINE', $mine, $not_found, 'ids match exactly: case');
    both('mine%20', $mine, $not_found, 'ids match exactly: a blank');

    my ($unknown, $theirs) = map {
        my $r = $t->delete("/servers/$_/lock", headers => $mine);
        my $headers = $r->headers;
        delete $headers->{date};
        [$r->status, $headers, $r->body];
    } qw(never yours);
    is_deeply($theirs, $unknown, 'a stranger sees no difference');

    is($t->post('/servers/gone/exec', headers => $mine)->status, 404,
       'nothing runs on a deleted server');
    is($t->delete('/servers/gone/lock', headers => $mine)->status, 200,
       'its owner may release its lock');
    is($t->delete('/servers/gone/lock',
                  headers => { 'X-Api-Key' => 'your key' })->status, 404,
       'nobody else may');
};

# The memory that the workers share with each other, and what is in it.

sub shared_memory {
    no warnings 'portable';      # addresses of 64 bits

    my ($worker) = $t->workers;
    my $memory = '';

    open my $maps, '<', "/proc/$worker/maps" or return '';
    open my $mem, '<:raw', "/proc/$worker/mem" or return '';

    while (my $line = <$maps>) {
        my ($from, $to) = $line =~ /^(\w+)-(\w+) rw-s .*zero/ or next;
        sysseek $mem, hex $from, 0 or next;
        sysread $mem, $memory, hex($to) - hex($from), length $memory;
    }

    return $memory;
}

subtest 'no key shows' => sub {
    $t->post('/servers/mine/exec', headers => $mine);

    my $log = $t->error_log . $t->access_log;
    my $memory = shared_memory();

    for my $secret ('my key', 'my next key', 'your key', 'app key', 'any key',
                    'for ever', 'yesterday')
    {
        is(index($log, $secret), -1, "in no log: $secret");
        is(index($log, sha256_hex($secret)), -1, "nor its digest: $secret");
        is(index($memory, $secret), -1, "not in shared memory: $secret");
    }

    cmp_ok(index($memory, 'exec'), '>=', 0, 'where locks are')
        if length $memory;
};

$t->done;

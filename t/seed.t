#!/usr/bin/perl

# The examples that the platform publishes for its users, as they stand there
# but for the address and the keys: run with curl and with Node's fetch.

use strict;
use warnings;
use utf8;

use Encode qw(encode_utf8 decode_utf8);
use JSON::PP ();
use Test::More;

use Vibelock::Node qw(run_node have_node);
use Vibelock::Process qw(run);
use Vibelock::Registry qw(registry account server);
use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $curl_key = <<'END';
curl -X DELETE -H "X-Api-Key: YOUR_API_KEY" \
  https://vibecode.bitrix24.tech/v1/infra/servers/SERVER_ID/lock
END

my $curl_app = <<'END';
curl -X DELETE -H "X-Api-Key: YOUR_APP_KEY" \
  -H "Authorization: Bearer USER_SESSION_TOKEN" \
  https://vibecode.bitrix24.tech/v1/infra/servers/SERVER_ID/lock
END

my $js_key = <<'END';
const res = await fetch(
  `https://vibecode.bitrix24.tech/v1/infra/servers/${serverId}/lock`,
  {
    method: 'DELETE',
    headers: { 'X-Api-Key': 'YOUR_API_KEY' },
  }
)
const { data } = await res.json()

if (data.released) {
  console.log(`Снят лок ${data.operation}, держался ${data.ageMs}ms, до истечения было ${data.expiresInMs}ms`)
} else {
  // Локального лока не было, но снятие разослано на другие реплики (data.broadcast === true).
  console.log(data.message)
}
END

my $js_app = <<'END';
await fetch(
  `https://vibecode.bitrix24.tech/v1/infra/servers/${serverId}/lock`,
  {
    method: 'DELETE',
    headers: {
      'X-Api-Key': 'YOUR_APP_KEY',
      'Authorization': 'Bearer USER_SESSION_TOKEN',
    },
  }
)
END

# The answers shown there, with their numbers and white space taken out.

my $released = <<'END';
{
  "success": true,
  "data": {
    "released": true,
    "localLock": true,
    "broadcast": true,
    "operation": "deploy",
    "ageMs": 320000,
    "expiresInMs": 580000
  }
}
END

my $absent = <<'END';
{
  "success": true,
  "data": {
    "released": false,
    "localLock": false,
    "broadcast": true,
    "message": "No lock on this replica; a fleet-wide EXEC-lock release was broadcast to peers"
  }
}
END

my $not_found = <<'END';
{
  "success": false,
  "error": {
    "code": "NOT_FOUND",
    "message": "Server not found"
  }
}
END

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

my $mine = 'da76a437-284c-47fa-8462-e72f896487e2';
my $shop = '0c4f9b0e-51de-4d0c-9d5b-0a8f3c1e7b62';
my $none = '11111111-2222-4333-8444-555555555555';

my %words = (
    YOUR_API_KEY       => 'vk-personal-1',
    YOUR_APP_KEY       => 'vk-app-2',
    USER_SESSION_TOKEN => 'session-3',
);

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json;
EOC
$t->server(<<'EOC');
    location ~ ^/v1/infra/servers/(?<server_id>[^/]+)/deploy$ {
        vibelock deploy zone=ops;
        vibelock_keep 1;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/v1/infra/servers/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
EOC
$t->write_file('registry.json', registry(
    keys => [
        account('k1', $words{YOUR_API_KEY}),
        account('k2', $words{YOUR_APP_KEY}, type => 'app',
                sessions => { $words{USER_SESSION_TOKEN} => time + 3600 }),
    ],
    servers => [server($mine, 'k1'),
                server($shop, 'k2', kind => 'GALAXY_APP')],
));
$t->start;

my $base = 'http://127.0.0.1:' . $t->port;

# The text with this machine's address and keys; nothing else is changed.

sub here {
    my ($text, $server) = @_;

    $text =~ s{https://vibecode\.bitrix24\.tech}{$base};
    $text =~ s/\b$_\b/$words{$_}/ for keys %words;
    $text =~ s/SERVER_ID/$server/;

    return $text;
}

sub curl {
    my ($text, $server) = @_;

    # What curl shows of its progress is no part of the answer.
    my ($code, $output) = run(['sh', '-c', here($text, $server)],
                              env => { no_proxy => '127.0.0.1' });

    is($code, 0, 'curl ends well');

    my ($json) = $output =~ /(\{.*\})/s;

    return $json // $output;
}

sub shape {
    my ($json) = @_;

    $json =~ s/("(?:[^"\\]|\\.)*")|\s+/$1 \/\/ ''/ge;
    $json =~ s/":\d+/":N/g;

    return $json;
}

sub take {
    my ($server, %headers) = @_;

    is($t->post("/v1/infra/servers/$server/deploy",
                headers => \%headers)->status, 200, 'a lock is left behind');

    return;
}

my %key = ('X-Api-Key' => $words{YOUR_API_KEY});
my %app = ('X-Api-Key' => $words{YOUR_APP_KEY},
           Authorization => "Bearer $words{USER_SESSION_TOKEN}");

subtest 'curl, a personal key' => sub {
    take($mine, %key);
    is(shape(curl($curl_key, $mine)), shape($released), 'released');
    is(shape(curl($curl_key, $mine)), shape($absent), 'no lock');
    is(shape(curl($curl_key, $none)), shape($not_found), 'no server');
};

subtest 'curl, an application' => sub {
    take($shop, %app);
    is(shape(curl($curl_app, $shop)), shape($released), 'released');
    is(shape(curl($curl_app, $shop)), shape($absent), 'no lock');
    is(shape(curl($curl_app, $mine)), shape($not_found),
       "somebody else's server");
};

sub node {
    my ($text, $server) = @_;

    my ($code, $output) = run_node(
        "const serverId = '$server'\n" . encode_utf8(here($text, $server)));

    is($code, 0, 'the script ends well');

    return decode_utf8($output);
}

subtest 'JavaScript' => sub {
    plan skip_all => 'there is no node' unless have_node();

    take($mine, %key);
    like(node($js_key, $mine),
         qr/^Снят лок deploy, держался \d+ms, до истечения было \d+ms$/,
         'a personal key: released');
    is(node($js_key, $mine), JSON::PP->new->decode($absent)->{data}{message}
       . "\n", 'a personal key: no lock');

    take($shop, %app);
    is(node($js_app, $shop), '', 'an application');
    is($t->get("/v1/infra/servers/$shop/lock", headers => \%app)
       ->json->{data}{locked}, JSON::PP::false, 'released');
};

$t->done;

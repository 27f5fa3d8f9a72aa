#!/usr/bin/perl

# The examples of docs/api.md and docs/api.ru.md: curl and JavaScript are run
# against the example gateway, and what the documents show as answers is what it
# answers. Both documents say the same.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use Vibelock::Docs qw(blocks);
use Vibelock::Node qw(run_node have_node);
use Vibelock::OpenApi;
use Vibelock::Process qw(run);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;
use Vibelock::Util qw(read_file);

my $id = 'da76a437-284c-47fa-8462-e72f896487e2';
my $shop = '9608eb55-1399-4eb9-ae30-2bb017b82d30';
my %key = ('X-Api-Key' => 'example-personal-key');
my %app = ('X-Api-Key' => 'example-app-key',
           'Authorization' => 'Bearer example-session');

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;
Vibelock::Docs::apply($t, { level => 'http',
    text => 'vibelock_retry_after 1s;'
            . read_file('docs/examples/vibelock.conf') }, 9000 => $up->port);
$t->start;

# The same where there is no room for another lock.

my $full = Vibelock::Test->new;
$full->set(UPSTREAM => $up->port);
$full->http('vibelock_zone $server_id zone=ops:32k;
             vibelock_owner ann;
             vibelock_retry_after 1s;');
$full->server(<<'EOC');
    location ~ ^/v1/infra/servers/(?<server_id>[^/]+)/exec$ {
        vibelock exec zone=ops;
        vibelock_keep 1;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/v1/infra/servers/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
EOC
$full->start;

# Runs an example as its reader would, with values of their own, which others may
# replace, at that gateway. Returns the exit code and the output.

sub example {
    my ($block, %other) = @_;

    my $text = $block->{text};
    my $at = delete $other{at} // $t;

    $text =~ s/\Q$_\E/$other{$_}/g for keys %other;

    my $server = $text =~ /YOUR_APP_KEY/ ? $shop : $id;
    my $url = $at->url('');

    $text =~ s{https://gateway\.example\.com}{$url}g;
    $text =~ s/SERVER_ID/$server/g;
    $text =~ s/YOUR_API_KEY/$key{'X-Api-Key'}/g;
    $text =~ s/YOUR_APP_KEY/$app{'X-Api-Key'}/g;
    $text =~ s/USER_SESSION_TOKEN/example-session/g;

    return run_node($text) if $block->{lang} eq 'js';
    return run(['sh', '-c', $text =~ s/\bcurl\b/curl -sS/r]);
}

# A deploy whose upstream dies leaves a stuck lock.

sub stick {
    for my $who ([$id, \%key], [$shop, \%app]) {
        $t->post("/v1/infra/servers/$who->[0]/deploy",
                 headers => { %{ $who->[1] }, 'X-Upstream' => 'close' });
    }
}

# An example that repeats an operation, at a gateway that refuses it with that
# status and code, until $over->().

sub repeats {
    my ($block, $at, $status, $code, $over) = @_;

    my $where = "$block->{file}:$block->{line}: $code";
    my $log = $at == $t ? 'operations.log' : 'access.log';
    my $refused = sub { scalar(() = $at->read_file($log) =~ / $status /g) };

    # No patience, or as much as the example has.
    my ($exit, $output) = example($block, at => $at, ', 1800)' => ', 1)',
                                  q(}' 1800) => q(}' 0));
    is($exit, 0, "$where: gives up") or diag $output;
    like($output, qr/^$status .*$code/, "$where: and says why");

    my $before = $refused->();
    my $pid = fork // die;
    if (!$pid) {
        my ($exit, $output) = example($block, at => $at);
        $at->write_file('out', "$exit $output");
        require POSIX;
        POSIX::_exit(0);
    }

    ok(wait_for { $refused->() > $before }, "$where: refused");
    $over->();
    waitpid $pid, 0;
    like($at->read_file('out'), qr/^0 200 /, "$where: waits, and gets its turn");

    return;
}

sub state_of {
    my ($server, $headers) = @_;

    return $t->get("/v1/infra/servers/$server/lock", headers => $headers)
        ->json->{data}{state} // 'free';
}

for my $file ('docs/api.md', 'docs/api.ru.md') {
    my @examples = grep { $_->{lang} =~ /^(?:sh|js)$/ } blocks($file);

    is(@examples, 9, "$file: examples");

    for my $block (@examples) {
        my $where = "$file:$block->{line}";

        SKIP: {
            skip "$where: no node", 1
                if $block->{lang} eq 'js' && !have_node();

            if ($block->{text} =~ /DELETE/) {
                my @who = $block->{text} =~ /APP_KEY/ ? ($shop, \%app)
                                                      : ($id, \%key);

                stick();
                is(state_of(@who), 'stuck', "$where: a stuck lock");

                my ($code, $output) = example($block);
                is($code, 0, "$where: breaks it") or diag $output;
                like($output, qr/deploy/, "$where: and says whose it was");
                is(state_of(@who), 'free', "$where: it is gone");

                ($code, $output) = example($block);
                is($code, 0, "$where: again");
                like($output, qr/No lock on this replica/, "$where: none");

                if ($block->{lang} eq 'js') {
                    (undef, $output) = example($block,
                        YOUR_API_KEY => 'wrong', YOUR_APP_KEY => 'wrong');
                    like($output, qr/\b401\b.*INVALID_API_KEY/,
                         "$where: a wrong key is told");
                    unlike($output, qr/TypeError/, "$where: and no other fault");
                }

            } elsif ($block->{text} =~ /operate/) {
                my $seen = () = $up->requests;
                my $name = $where =~ s/\W/_/gr;
                my $first = $t->async(POST => "/v1/infra/servers/$id/exec",
                    headers => { %key, 'X-Upstream' => "park/$name" });
                $up->wait_requests($seen + 1);

                repeats($block, $t, 409, 'EXEC_BUSY', sub {
                    $up->release($name);
                    is($first->response->status, 200, "$where: the first ends");
                });

                my $n = 0;
                my $servers = '/v1/infra/servers';

                1 while $full->post("$servers/n" . $n++ . '/exec')->status == 200
                    && $n < 1000;

                repeats($block, $full, 503, 'LOCK_ZONE_FULL', sub {
                    is($full->delete("$servers/n0/lock")->status, 200,
                       "$where: there is room");
                });
                $full->delete("$servers/$_/lock") for $id, map { "n$_" } 0 .. $n;

            } elsif ($block->{text} =~ /unstick/) {
                stick();
                my ($code, $output) = example($block);
                is($code, 0, "$where: unstick") or diag $output;
                is(state_of($id, \%key), 'free', "$where: the lock is gone");

            } elsif ($block->{text} =~ /exec/) {
                my ($code, $output) = example($block);
                is($code, 0, "$where: exec") or diag $output;
                like($output, qr/uptime/, "$where: the platform's answer");

                stick();
                ($code, $output) = example($block);
                like($output, qr/"EXEC_BUSY"/, "$where: busy");
                $t->delete("/v1/infra/servers/$id/lock", headers => \%key);

            } else {
                stick();
                like((example($block))[1], qr/"state":"stuck"/,
                     "$where: stuck");
                $t->delete("/v1/infra/servers/$id/lock", headers => \%key);
                like((example($block))[1], qr/"locked":false/, "$where: free");
            }
        }
    }
}

# What is shown as an answer has a schema, and one that fits.

my $api = Vibelock::OpenApi->read('docs/openapi.yaml');
my @schemas = map { { '$ref' => "#/components/schemas/$_" } }
              qw(Lock Released NotLocked Unstuck Busy Failure);

for my $file ('docs/api.md', 'docs/api.ru.md') {
    for my $block (blocks($file, lang => 'json')) {
        my $value = eval { JSON::PP->new->utf8->decode($block->{text}) };

        ok((grep { !$api->check($_, $value, 'answer') } @schemas),
           "$file:$block->{line}: such an answer there is");
    }
}

# The same in both languages, but for comments and what is printed.

sub bare {
    my ($file) = @_;

    return [map { [$_->{lang}, $_->{text} =~ s{^\s*(?://|#).*\n}{}mgr
                                          =~ s{(?:log\(`|Error\().*}{}gr] }
            blocks($file)];
}

is_deeply(bare('docs/api.ru.md'), bare('docs/api.md'),
          'both documents have the same examples');

my @codes = map { [sort { $a cmp $b } read_file($_) =~ /^\| (\d+ \| `\w+`)/mg] }
            'docs/api.md', 'docs/api.ru.md';
is_deeply($codes[1], $codes[0], 'and the same errors');

# What they say of headers, and of what is too large.

for my $file ('docs/api.md', 'docs/api.ru.md') {
    my ($name, $value) = read_file($file) =~ /`(WWW-Authenticate): ([^`]+)`/;

    is($t->get("/v1/infra/servers/$id/lock")->header($name), $value,
       "$file: the header of a 401");
}

my $large = '{"x":"' . 'x' x (1024 * 1024) . '"}';
my $uri = "/v1/infra/servers/$id/exec";
my $refused = $t->post($uri, headers => \%key, body => $large);

is($refused->status, 413, 'a body over 1 MB');
like($refused->header('Content-Type'), qr{^text/html}, "is nginx's to refuse");

my $raised = Vibelock::Test->new;
Vibelock::Docs::apply($raised, { level => 'http',
    text => 'client_max_body_size 2m;'
            . read_file('docs/examples/vibelock.conf') }, 9000 => $up->port);
$raised->start;
is($raised->post($uri, headers => \%key, body => $large)->status, 400,
   'or 400, where nginx lets it in');
$raised->finish;

# Every code that the module knows.

my %known = map { $_ => 1 }
    read_file('src/ngx_http_vibelock_reply.c') =~ /"([A-Z]+_[A-Z_]+)"/g;
my %told = map { /`(\w+)`/ => 1 } @{ $codes[0] };

is_deeply([sort keys %told], [sort keys %known], 'all that the module has');

$t->done;

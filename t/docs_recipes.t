#!/usr/bin/perl

# What the recipes promise, with their own configurations and real requests.

use strict;
use warnings;

use MIME::Base64 qw(encode_base64);
use Test::More;
use Time::HiRes ();

use Vibelock::Docs qw(blocks);
use Vibelock::Process qw(run);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my %tested;

my $mine = '/v1/infra/servers/da76a437-284c-47fa-8462-e72f896487e2';
my @key = ('X-Api-Key' => 'example-personal-key');

# The n-th configuration of a recipe.

sub configuration {
    my ($heading, $n) = @_;

    $tested{"$heading $n"}++;

    return (blocks('docs/recipes.md', heading => $heading,
                   lang => 'nginx'))[$n];
}

# An nginx with it. edit changes its text first, options are the nginx's.

sub recipe {
    my ($heading, $n, %how) = @_;

    my $block = configuration($heading, $n);
    my $edit = delete $how{edit} // sub { };
    my $t = Vibelock::Test->new(%{ delete $how{options} // {} });

    $edit->() for $block->{text};
    Vibelock::Docs::apply($t, $block, 9000 => $up->port, %how);

    return $t->start;
}

# A script of a recipe, in the test's directory.

sub script {
    my ($t, $heading, $n) = @_;

    my @blocks = blocks('docs/recipes.md', heading => $heading, lang => 'sh');
    my $dir = $t->dir;

    return $blocks[$n]{text} =~ s{/etc/nginx/|/var/log/nginx/}{$dir/}gr;
}

sub login {
    my ($user, $password) = (@_, 'secret');

    return (Authorization => 'Basic ' . encode_base64("$user:$password", ''));
}

sub token {
    return ($up->requests)[-1]{headers}{'x-lock-token'}[0] // '';
}

# Runs one operation, and shows that another is refused meanwhile. Says how many
# were refused in its place.

my $parked = 0;

sub exclusive {
    my ($t, $uri, %how) = @_;

    my $name = 'n' . ++$parked;
    my $busy = $how{busy} // 409;
    my $seen = () = $up->requests;
    my $first = $t->async(POST => $uri, body => $how{body} // '{}',
        headers => { %{ $how{headers} || {} }, 'X-Upstream' => "park/$name" });

    $up->wait_requests($seen + 1);

    my $second = $t->post($uri, body => $how{body} // '{}',
                          headers => { %{ $how{headers} || {} } });
    is($second->status, $busy, "$uri: a second one is answered $busy");

    $up->release($name);
    is($first->response->status, 200, "$uri: the first one runs to its end");
    is($t->post($uri, body => $how{body} // '{}', headers => $how{headers})
           ->status, 200, "$uri: and then there is room for the next");
    like(token(), qr/^\d+$/, "$uri: the upstream gets the token")
        unless $how{no_token};

    return $second;
}

subtest 'Exec, deploy and unstick' => sub {
    my $t = recipe('Exec, deploy and unstick', 0);
    my $busy = exclusive($t, "$mine/exec", headers => {@key});

    is($busy->json->{error}{code}, 'EXEC_BUSY', 'and is told why');
    exclusive($t, "$mine/deploy", headers => {@key});
    is($t->post("$mine/exec", body => '{"timeout":-1}', headers => {@key})
           ->status, 400, 'a wrong timeout');
    is($t->post("$mine/exec")->status, 401, 'no key');

    ok(!$t->delete("$mine/lock", headers => {@key})->json->{data}{released},
       'no lock to break');
    is($t->post("$mine/unstick", headers => {@key})->status, 200, 'unstick');
    $t->finish;
};

subtest 'One at a time: what stays of the first recipe' => sub {
    my ($first, @others) = blocks('docs/recipes.md', lang => 'nginx',
                                  level => 'http');
    my ($zone, $registry, $upstream) = $first->{text}
        =~ /^(vibelock_zone .*\n)(vibelock_registry .*\n)
            \n(upstream\ platform\ \{.*?^\}\n)/msx or die;

    for my $block (@others) {
        my $text = $block->{text};
        my $stays = join '', $text =~ /^vibelock_zone /m ? () : $zone,
            $text =~ /^vibelock_registry /m || $text !~ /zone=ops\b/ ? ()
                : $registry,
            $text !~ m{http://platform\b} || $text =~ /^upstream platform /m ? ()
                : $upstream;

        next if $text !~ /vibelock/;

        my $t = Vibelock::Test->new(workers => 1);
        Vibelock::Docs::apply($t, { %$block, text => "$stays$text" });

        my ($code, $output) = $t->config_test;
        is($code, 0, "line $block->{line}: whole with what stays")
            or diag $output;
        unlike($output, qr/\[warn\]/, 'without a warning');
        $t->finish;
    }

    # Both servers, as the document says.
    my $t = Vibelock::Test->new;
    Vibelock::Docs::apply($t, { %$first, text => $first->{text}
        . (grep { $_->{heading} eq 'Streaming deploys' } @others)[0]{text} });
    like(($t->config_test)[1], qr/\[warn\] conflicting server name/,
         'two servers are one too many');
    $t->finish;
};

subtest 'Addresses without a guard' => sub {
    my $t = recipe('Addresses without a guard', 0);
    my $servers = '/v1/infra/servers';

    exclusive($t, "$servers/web-1/exec", no_token => 1);
    is($t->get("$servers/web-1/$_")->status, 200, "$_ is open")
        for qw(files deployments exec-history);

    for my $other ('web-1/exec/', 'web-1/EXEC', 'web-1/exec;x', 'web-1/exec%2F',
                   'web-1/exec.json', 'web-1/exec%20', 'web-1;x/exec/',
                   'web-1%2Fx/exec', 'web-1;%0a/exec/', 'web-1/Unstick/',
                   'web-1/deploy', 'web-1//exec//')
    {
        is($t->post("$servers/$other")->status, 404, "$other is closed");
    }

    is($t->post("/V1/infra;x/servers/web-1/exec")->status, 404, 'and so on');
    $t->finish;

    # No recipe leaves one open: what leads to an upstream is guarded.
    for my $block (blocks('docs/recipes.md', lang => 'nginx')) {
        next if $block->{heading} =~ /^(?:Addresses without|A balancer that)/;

        while ($block->{text} =~ /^(\ +)location\ ([^\n]*)\ \{\n
                                  (.*?)\n\1\}\n/msgx)
        {
            my ($where, $text) = ($2, $3);
            next unless $text =~ /proxy_pass/;

            like($text, qr/^\s*(?:vibelock|vibelock_unstick|internal)\b/m,
                 "$block->{heading}: $where is guarded");
        }
    }
};

subtest 'Several owners' => sub {
    my $found = configuration('Several owners', 0)->{text};
    my $front = sub { return { 'X-Verified-Account' => $_[0] } };

    for my $told (0, 1) {
        my $t = recipe('JWT', 1, edit => sub {
            s/(vibelock +exec zone=ops;\n)/$1$found/ if $told;
        });

        $t->post("$mine/exec", headers => { %{ $front->('a') },
                                            'X-Upstream' => 'close' });
        my $other = $t->post("$mine/exec", headers => $front->('b'));

        is($other->status, $told ? 409 : 404, 'while it is held');
        is(defined $other->header('Retry-After'), !!$told, 'Retry-After');
        is($t->$_("$mine/lock", headers => $front->('b'))->status, 404,
           "$_ of another") for qw(get delete);
        is($t->delete("$mine/lock", headers => $front->('a'))->status, 200,
           'their own');
        is($t->delete("$mine/lock", headers => $front->('b'))->status, 200,
           'none is held');
        $t->finish;
    }
};

subtest 'Files' => sub {
    plan skip_all => 'not root, or no www-data'
        if $> != 0 || !getgrnam 'www-data';

    my $t = recipe('Exec, deploy and unstick', 0,
        options => { user => 'www-data' },
        edit => sub { s/registry\.json\K;/ check=100ms;/ });

    chmod 0600, $t->path('registry.json');
    ok($t->log_like(qr/open\(\).* failed \(13: Permission denied\)/),
       'what only root can read is told of');
    is($t->post("$mine/exec", headers => {@key})->status, 200,
       'what was read before stays in force');

    my ($code, $output) = run(['sh', '-ec', script($t, 'Files', 0)]);
    is($code, 0, 'chown and chmod') or diag $output;

    # The same again, as the document changes it.
    $t->write_file('editor', qq{#!/bin/sh\nsed -i s/22a051/22a052/ "\$1"\n});
    chmod 0755, $t->path('editor');
    ($code, $output) = run(['sh', '-ec', script($t, 'Rotating keys', 1)],
                           env => { EDITOR => $t->path('editor') });
    is($code, 0, 'a new file') or diag $output;
    ok(wait_for { $t->post("$mine/exec", headers => {@key})->status == 401 },
       'is read');

    my @stat = stat $t->path('registry.json');
    is_deeply([$stat[2] & 07777, @stat[4, 5]],
              [0640, 0, scalar getgrnam 'www-data'], 'owner and mode stayed');
    $t->finish;
};

subtest 'Files of passwords' => sub {
    for my $n (1, 2) {
        my $t = recipe('Logins that nginx checks itself', 0);
        my $script = script($t, 'Files', $n);
        my ($tool) = $script =~ /\b(htpasswd|openssl) /;

        SKIP: {
            skip "no $tool", 2 unless grep { -x "$_/$tool" } split /:/, $ENV{PATH};

            unlink $t->path('users.htpasswd');
            $script =~ s/-apr1/-apr1 another/;
            $script =~ s/htpasswd -c \S+ ci/$& another/;
            $script =~ s/htpasswd -c/htpasswd -bc/;

            my ($code, $output) = run(['sh', '-ec', $script]);
            is($code, 0, $tool) or diag $output;
            chmod 0644, $t->path('users.htpasswd');

            my %status = map { $_ => $t->post('/servers/web-1/deploy',
                headers => { login('ci', $_) })->status } qw(another secret);
            is_deeply(\%status, { another => 200, secret => 401 },
                      'the password is good');
        }

        $t->finish;
    }
};

subtest "The platform's own API says who may" => sub {
    my $accounts = Vibelock::Upstream::Auto->start(handler => sub {
        my ($request) = @_;

        my $key = $request->{headers}{'x-api-key'}[0];
        my $server = $request->{headers}{'x-server-id'}[0] // '';

        return (403, {}, '') if ($key // '') eq 'banned';
        return (200, {}, '') if !defined $key;
        return (200, { 'X-Account' => 'a17', 'X-Server-Found' => '1',
                       'X-Server-Kind' => 'STANDALONE' }, '')
            if $server eq 'web-1';
        return (200, { 'X-Account' => 'a17' }, '');
    });
    my $t = recipe("The platform's own API says who may", 0,
                   9001 => $accounts->port);
    my $servers = '/v1/infra/servers';
    my $known = { 'X-Api-Key' => 'k' };

    exclusive($t, "$servers/web-1/exec", headers => $known);
    is($t->post("$servers/web-2/exec", headers => $known)->status, 404,
       'a server that is not theirs');
    is($t->post("$servers/web-1/exec")->json->{error}{code}, 'MISSING_API_KEY',
       'no account');
    is($t->post("$servers/web-1/exec", headers => { 'X-Api-Key' => 'banned' })
           ->status, 403, 'the API says no by itself');
    is($t->post("$servers/$_/exec", headers => $known)->status, 404,
       "$_ is no id") for 'WEB-1', 'web-1%0aX-Written:%20yes';
    is((grep { exists $_->{headers}{'x-written'} } $accounts->requests), 0,
       'an id writes no headers');

    is($t->get("$servers/web-1/lock", headers => $known)->status, 200, 'lock');
    is($t->post("$servers/web-1/unstick", headers => $known)->status, 200,
       'unstick');

    $accounts->stop;
    $t->expect_log(qr/auth request unexpected status/, 'the API is away');
    is($t->post("$servers/web-1/exec", headers => $known)->status, 500,
       'the API is away');

    $t->finish;
};

subtest 'Logins that nginx checks itself' => sub {
    my $t = recipe('Logins that nginx checks itself', 0);

    exclusive($t, '/servers/web-1/deploy', headers => { login('ci') });
    is($t->post('/servers/db-1/deploy', headers => { login('ci') })->status,
       404, "another's server");
    is($t->post('/servers/db-1/deploy', headers => { login('ops') })->status,
       200, 'their own');
    is($t->delete('/servers/web-1/lock', headers => { login('ci') })->status,
       200, 'lock');
    is($t->post('/servers/web-1/deploy')->status, 401, 'no login');
    is($t->post('/servers/WEB-1/deploy', headers => { login('ci') })->status,
       404, 'another spelling');
    $t->finish;

    $t = recipe('Logins that nginx checks itself', 1);

    my @curl = ('curl', '-sS', '--cacert', $t->path('gateway.crt'),
                '-o', $t->path('out'), '-w', '%{http_code}', '-X', 'POST',
                'https://localhost:' . $t->port . '/servers/web-1/deploy');
    my @certificate = ('--cert', $t->path('client.crt'),
                       '--key', $t->path('client.key'));

    is((run([@curl, @certificate]))[1], 200, 'a client with a certificate');
    is($t->logged('/servers/web-1/deploy')->{result}, 'RELEASED', 'was locked');
    is((run(\@curl))[1], 400, 'one without');
    $t->finish;
};

subtest 'JWT' => sub {
    my $verifier = Vibelock::Upstream::Auto->start(handler => sub {
        my ($request) = @_;

        my ($token) = ($request->{headers}{authorization}[0] // '')
            =~ /^Bearer (\w+)$/ or return (401, {}, '');

        return (202, { 'X-Auth-Request-User' => "user-$token" }, '');
    });
    my $t = recipe('JWT', 0, 4180 => $verifier->port);

    exclusive($t, "$mine/exec", headers => { Authorization => 'Bearer abc' });
    is($t->post("$mine/exec")->status, 401, 'no token');

    $t->post("$mine/exec", headers => { Authorization => 'Bearer abc',
                                        'X-Upstream' => 'close' });
    is($t->post("$mine/exec", headers => { Authorization => 'Bearer xyz' })
           ->status, 404, "another's lock");
    is($t->delete("$mine/lock", headers => { Authorization => 'Bearer abc' })
           ->json->{data}{operation}, 'exec', 'its owner breaks it');
    $t->finish;

    $t = recipe('JWT', 1);
    exclusive($t, "$mine/exec", headers => { 'X-Verified-Account' => 'org 7' });
    is($t->post("$mine/exec")->status, 401, 'no header');
    $t->finish;

    # The same header, from somebody else.
    my ($block) = grep { $_->{text} =~ /^geo/ }
        blocks('docs/recipes.md', heading => 'JWT', lang => 'nginx');
    $block->{text} =~ s{^\s*127\.0\.0\.0/8 .*\n}{}m;
    $t = Vibelock::Test->new;
    Vibelock::Docs::apply($t, $block, 9000 => $up->port);
    $t->start;
    is($t->post("$mine/exec", headers => { 'X-Verified-Account' => 'org 7' })
           ->status, 401, 'a header from anybody counts for nothing');
    $t->finish;
};

subtest 'A handful of keys in a map' => sub {
    my $t = recipe('A handful of keys in a map', 0);
    my $ci = { 'X-Api-Key' => '4f1c0a9d7e55b8236f0e8cb61d2a9473' };

    exclusive($t, '/servers/web-1/deploy', headers => $ci);
    is($t->post('/servers/web-1/deploy', headers => { 'X-Api-Key' => 'no' })
           ->status, 401, 'an unknown key');
    is($t->delete('/servers/web-1/lock', headers => $ci)->status, 200, 'lock');

    my $ops = { 'X-Api-Key' => '9a61e0c4d2f7488bb35c7710fe92ad06' };
    $t->post('/servers/web-1/deploy', headers => { %$ci,
                                                   'X-Upstream' => 'close' });
    ok($t->post('/servers/web-1/deploy', headers => $ops)
           ->header('Retry-After'), 'ops is told to come again');
    is($t->delete('/servers/web-1/lock', headers => $ops)->status, 404,
       'and breaks nothing');
    is($t->delete('/servers/web-1/lock', headers => $ci)->status, 200,
       'ci does');
    $t->finish;
};

subtest 'limit_req beside it' => sub {
    my $t = recipe('limit_req beside it', 0);

    exclusive($t, "$mine/exec", headers => {@key});

    my %status;
    $status{ $t->get("$mine/lock", headers => {@key})->status }++ for 1 .. 30;
    ok($status{200} && $status{429}, 'whoever polls is slowed down');
    is(keys %status, 2, 'and nothing else');
    $t->finish;
};

# A CI tool's job, whose deploy looks at the lock. What became of it is in that
# file of $t's when the process that this returns is over.

sub start_job {
    my ($t, $login, $file, $edit) = @_;

    my $dir = $t->dir;
    my $url = $t->url;
    my $script = script($t, 'A deploy lock in front of any CI tool', 0);

    $script =~ s{http://gateway\.example\.com:8080/}{$url};
    $script =~ s{\./deploy\.sh}{
        mkdir $dir/deploying
        curl -fsS -u "\$CI_LOGIN" "\$lock/lock"
        sleep 0.3
        rmdir $dir/deploying
    };
    $edit->() for $edit ? $script : ();

    my $pid = fork // die;
    return $pid if $pid;

    my ($code, $output) = run(['sh', '-ec', $script], limit => 60,
                              env => { CI_LOGIN => "$login:secret" });
    $t->write_file($file, "$code\n$output");
    require POSIX;
    POSIX::_exit(0);
}

subtest 'A deploy lock in front of any CI tool' => sub {
    my $t = recipe('A deploy lock in front of any CI tool', 0);
    my $at = '/environments/production';
    my $ci = { login('ci') };

    my $taken = $t->post("$at/take", headers => $ci);
    is($taken->status, 200, 'taken');
    like($taken->json->{token}, qr/^\d+$/, 'with a token');
    is($t->post("$at/take", headers => $ci)->status, 409, 'taken already');
    is($t->get("$at/lock", headers => $ci)->json->{data}{state}, 'stuck',
       'there is no request behind it any more');
    is($t->post('/environments/staging/take', headers => $ci)->status, 200,
       'another environment is free');
    is($t->post("$at/take")->status, 401, 'no login');
    is($t->get("$at/take", headers => $ci)->status, 403, 'GET takes nothing');
    ok($t->delete("$at/lock", headers => $ci)->json->{data}{released},
       'given back');
    ok($t->post("$at/take", headers => $ci)->json->{token}
       > $taken->json->{token}, 'taken again, with a larger token');

    # Another team.
    my $ops = { login('ops') };
    my $busy = $t->post("$at/take", headers => $ops);
    is($busy->status, 409, 'another login is told that it is taken');
    like($busy->header('Retry-After'), qr/^\d+$/, 'and when to come again');
    is($t->$_("$at/lock", headers => $ops)->status, 404, "$_ by another login")
        for qw(get delete);
    $t->delete("$at/lock", headers => $ci);
    unlike($t->error_log, qr/\[warn\]/, 'no news');
    $t->finish;

    # The job of each team, three times, all at once.
    $t = recipe('A deploy lock in front of any CI tool', 0,
                edit => sub { s/vibelock_retry_after +\K15s/1s/ });

    my @jobs = map { start_job($t, ('ci', 'ops')[$_ % 2], "job$_") } 0 .. 5;
    waitpid $_, 0 for @jobs;

    like($t->read_file("job$_"), qr/\A0\n.*"locked":true.*"released":true/s,
         "job $_: has its turn, with the lock, and gives it back") for 0 .. 5;
    like($t->access_log, qr{take 409}, 'others waited meanwhile');

    $t->post("$at/take", headers => $ci);
    waitpid start_job($t, 'ops', 'late', sub { s/\+ 3600/- 1/ }), 0;
    is($t->read_file('late'), "1\nno lock: 409\n", 'no longer than an hour');
    $t->finish;

    # Where there is no memory for another lock.
    $t = recipe('A deploy lock in front of any CI tool', 0, edit => sub {
        s/vibelock_retry_after +\K15s/1s/;
        s/zone=deploys:\K1m/32k/;
    });

    my $n = 0;
    1 while $t->post('/environments/e' . $n++ . '/take', headers => $ci)->status
            == 200 && $n < 1000;

    my $refused = sub { scalar(() = $t->access_log =~ / 503 /g) };
    my $before = $refused->();
    my $job = start_job($t, 'ops', 'full');
    ok(wait_for { $refused->() > $before }, 'a job meets a full zone');
    $t->delete('/environments/e0/lock', headers => $ci);
    waitpid $job, 0;
    like($t->read_file('full'), qr/\A0\n/, 'and has its turn later');
    $t->finish;
};

subtest 'A lock for a webhook receiver' => sub {
    my $t = recipe('A lock for a webhook receiver', 0);

    exclusive($t, '/hooks/shop');
    is($t->delete('/hooks/shop/lock')->status, 401, 'no login');

    $t->post('/hooks/shop', headers => { 'X-Upstream' => 'close' });
    is($t->post('/hooks/shop')->status, 409, 'the receiver died: stuck');
    ok($t->delete('/hooks/shop/lock', headers => { login('ops') })
           ->json->{data}{released}, 'broken by a person');
    is($t->post('/hooks/shop')->status, 200, 'free again');
    $t->finish;
};

subtest 'Streaming deploys' => sub {
    my $t = recipe('Streaming deploys', 0);

    exclusive($t, "$mine/deploy");
    my $stream = $t->post("$mine/deploy",
                          headers => { 'X-Upstream' => 'stream/5' });
    is($stream->body, join('', map { "data: $_\n\n" } 1 .. 5), 'events');
    is($t->post("$mine/deploy")->status, 200, 'free after a stream');
    $t->finish;
};

subtest 'Operations that go on after their answer' => sub {
    my $t = recipe('Operations that go on after their answer', 0);

    for my $what ('running', 'status/202') {
        is($t->post("$mine/deploy", headers => { @key, 'X-Upstream' => $what })
               ->status, $what eq 'running' ? 200 : 202, $what);
        like(token(), qr/^\d+$/, 'the upstream has the token');
        is($t->post("$mine/deploy", headers => {@key})->status, 409,
           'the lock stays');
        is($t->delete("$mine/lock", headers => {@key})->json->{data}{operation},
           'deploy', 'until it is broken');
    }

    is($t->post("$mine/deploy", headers => {@key})->status, 200, 'any other');
    is($t->post("$mine/deploy", headers => {@key})->status, 200, 'ends it');
    unlike($t->error_log, qr/\[warn\]/, 'and that is no news');
    $t->finish;
};

subtest 'A balancer that keeps a server on one replica' => sub {
    my @replica = map { my $n = $_; Vibelock::Upstream::Auto->start(
        handler => sub { return (200, { 'X-Replica' => $n }, '') }) } 1, 2;
    my $t = recipe('A balancer that keeps a server on one replica', 0,
                   8081 => $replica[0]->port, 8082 => $replica[1]->port);

    my %by;
    for my $id (1 .. 20) {
        $by{$id}{ $t->post("/v1/infra/servers/s$id/$_")->header('X-Replica') }++
            for qw(exec deploy lock);
    }
    is((grep { keys %$_ > 1 } values %by), 0, 'one server, one replica');
    is(keys %{ { map { %$_ } values %by } }, 2, 'both are used');

    $replica[0]->stop;
    is($t->post("/v1/infra/servers/s$_/exec")->header('X-Replica'), 2,
       'the other takes over') for 1 .. 3;
    $t->finish;
};

subtest 'Two replicas and Redis' => sub {
    my ($acl) = blocks('docs/bus.md', lang => 'text',
                       heading => 'What Redis has to allow');
    my %rules = $acl->{text} =~ /^user (\S+) (.*)$/mg;
    my $default = delete $rules{default};
    my $redis = Vibelock::Redis->start(
        acl => [map { "user $_ $rules{$_}" } keys %rules]);

    # The harness has its own line for it, and stays logged in.
    $redis->cmd('ACL', 'SETUSER', 'default', split / /, $default);
    ok(!eval { $redis->client->cmd('XLEN', 'vibelock:ops:releases'); 1 },
       'nobody comes in without a name');
    like($@, qr/^NOAUTH/, 'and is told why');

    my @replica = map { recipe('Two replicas and Redis', 0,
                               6379 => $redis->port) } 1, 2;

    $replica[0]->post("$mine/exec",
                      headers => { @key, 'X-Upstream' => 'close' });

    # A release leaves alone what is as young as itself.
    Time::HiRes::sleep(0.2);

    my $answer = $replica[1]->delete("$mine/lock", headers => {@key});
    ok(!$answer->json->{data}{released}, 'the one that is asked has none');
    ok(wait_for { !$replica[0]->get("$mine/lock", headers => {@key})
                      ->json->{data}{locked} }, 'the other drops its lock');
    is_deeply($redis->cmd('ACL', 'LOG'), [], 'the rights are enough');
    $_->finish for @replica;
    $redis->stop;
};

subtest 'Rotating keys' => sub {
    my ($block) = blocks('docs/recipes.md', heading => 'Rotating keys',
                         lang => 'json');
    my $t = recipe('Exec, deploy and unstick', 0);
    $t->write_file('registry.json', $block->{text});
    $t->reload;

    $t->post("$mine/exec", headers => { @key, 'X-Upstream' => 'close' });
    my $answer = $t->delete("$mine/lock",
        headers => { 'X-Api-Key' => 'example-rotated-key' });
    is($answer->json->{data}{operation}, 'exec',
       'the new key breaks a lock of the old one');
    $t->finish;
};

subtest 'Dry run first' => sub {
    my $t = recipe('Dry run first', 0);
    my $first = $t->async(POST => "$mine/exec", body => '{}',
                          headers => { 'X-Upstream' => 'park/dry' });

    wait_for { grep { ($_->{headers}{'x-upstream'}[0] // '') eq 'park/dry' }
               $up->requests };
    is($t->post("$mine/exec", body => '{}')->status, 200, 'nobody is refused');
    like(token(), qr/^\d*$/, 'without a lock, without a token');
    $up->release('dry');
    is($first->response->status, 200, 'the first ends');
    is($t->post("$mine/exec", body => '{"timeout":-1}')->status, 200,
       'for no reason');

    my $awk = script($t, 'Dry run first', 0);
    my $counts = '';
    wait_for { $counts = (run(['sh', '-c', $awk]))[1];
               $counts =~ /INVALID/ };
    like($counts, qr/^1 BUSY_DRY_RUN$/m, 'the log says who would have been');
    like($counts, qr/^1 INVALID_DRY_RUN$/m, 'and why');
    like($counts, qr/^1 RELEASED$/m, 'and who would not');
    $t->finish;
};

subtest 'Restart, upgrade, blue and green' => sub {
    my $t = recipe('Restart, upgrade, blue and green', 0);

    my $drained = $t->post("$mine/exec", headers => {@key});
    is($drained->status, 503, 'nothing new');
    is($drained->header('Retry-After'), 30, 'for a while');
    is($t->get("$mine/lock", headers => {@key})->status, 200, 'locks work');
    is($t->get('/locks')->status, 200, 'and are shown');
    $t->finish;
};

# None is left out.

my %n;
for my $block (blocks('docs/recipes.md', lang => 'nginx')) {
    my $name = "$block->{heading} " . $n{ $block->{heading} }++;
    ok($tested{$name}, "$name is tested");
}

done_testing;

#!/usr/bin/perl

# The registry while nginx runs: read again when it changes, kept when it is
# bad.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use JSON::PP ();
use Test::More;
use Time::HiRes ();

use Vibelock::Process qw(run);
use Vibelock::Registry qw(registry account server);
use Vibelock::Socket;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;
use Vibelock::Util qw(read_file);

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json check=50ms;
EOC
$t->server(<<'EOC');
    location ~ ^/(?<server_id>[^/]+)/exec$ {
        vibelock exec zone=ops;
        vibelock_keep $upstream_http_x_operation_running;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/timed$ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
EOC

my $file = $t->path('registry.json');

# One key of one account, and its servers.

sub text {
    my ($key, @servers) = @_;

    return registry(
        keys    => [
            account('me', ref $key ? $key : [$key]),
            account('app', 'app key', type => 'app',
                    sessions => { session => time + 3600 }),
        ],
        servers => [map { server($_, 'me') } @servers],
    );
}

sub status {
    my ($server, $key) = @_;

    return $t->get("/$server/lock", headers => { 'X-Api-Key' => $key })
        ->status;
}

# Changes the file, and waits for each of the two workers to take it up.

sub taken_up {
    my ($change) = @_;

    $t->log_mark;
    ref $change ? $change->() : $t->write_file('registry.json', $change);

    return wait_for {
        (() = $t->error_log =~ /vibelock_registry "\Q$file\E": read /g) == 2;
    };
}

$t->write_file('registry.json', text('first key', 'one'));
$t->start;

is(status('one', 'first key'), 200, 'as it was at the start');
is(status('two', 'first key'), 404, 'a server that is not there yet');

subtest 'a new file, renamed into place' => sub {
    ok(taken_up(text('first key', 'one', 'two')),
       'is taken up by every worker');
    is(status('two', 'first key'), 200, 'a new server is there');
    is(status('one', 'first key'), 200, 'what was there is still there');
};

subtest 'the same file, written over' => sub {
    ok(taken_up(sub {
        open my $fh, '>', $file or die $!;
        print {$fh} text('first key', 'one', 'two', 'three');
        close $fh;
    }), 'is taken up as well');
    is(status('three', 'first key'), 200, 'a new server is there');
};

subtest 'a file of the same size' => sub {
    ok(taken_up(text('first key', 'one', 'two', 'eerht')), 'is taken up');
    is(status('eerht', 'first key'), 200, 'what it has is there');
    is(status('three', 'first key'), 404, 'what it had is gone');
};

subtest 'a link that is turned to another file' => sub {
    $t->write_file('linked.json', text('first key', 'linked'));
    ok(taken_up(sub {
        symlink 'linked.json', "$file.new";
        rename "$file.new", $file;
    }), 'is taken up');
    is(status('linked', 'first key'), 200, 'what it has is there');
    ok(taken_up(text('first key', 'one')), 'and back');
};

subtest 'a key that is rotated' => sub {
    is($t->post('/one/exec', headers => { 'X-Api-Key' => 'first key',
                'X-Upstream' => 'running' })->status, 200, 'a lock is held');

    ok(taken_up(text(['first key', 'next key'], 'one')), 'two keys');
    is(status('one', $_), 200, "$_: good for a while")
        for 'first key', 'next key';

    ok(taken_up(text('next key', 'one')), 'then one');
    is(status('one', 'first key'), 401, 'the old one is good no more');

    my $r = $t->delete('/one/lock', headers => { 'X-Api-Key' => 'next key' });
    is($r->json->{data}{released}, JSON::PP::true,
       'the new one releases what the old one locked');
};

subtest 'a right that ends while the body of its request comes' => sub {
    my $late = sub {
        my ($change) = @_;

        my $s = Vibelock::Socket->connect(port => $t->port);

        $s->write("POST /one/timed HTTP/1.1\r\n"
                . "Host: localhost\r\n"
                . "X-Api-Key: first key\r\n"
                . "Expect: 100-continue\r\n"
                . "Content-Length: 2\r\n\r\n");

        $s->await(qr{^HTTP/1.1 100}) && taken_up($change)
            or return 'not even that far';

        $s->write('{}');
        $s->read_until("\r\n\r\n");

        return $s->read_until("\r\n") =~ m{^HTTP/1.1 (\d+)} && $1;
    };

    ok(taken_up(text('first key', 'one')), 'a key and its server');
    is($late->(text('first key', 'one', 'two')), 200, 'still there');
    is($late->(text('first key')), 404, 'the server is gone');

    ok(taken_up(text('first key', 'one')), 'there again');
    is($late->(text('other key', 'one')), 401, 'the key is gone');
    is(status('one', 'other key'), 200, 'no lock is left');

    ok(taken_up(text('next key', 'one')), 'as it was');
};

subtest 'a bad file' => sub {
    for (['no JSON', 'no JSON', qr/it must be JSON/],
         ['half of it', substr(text('next key', 'one'), 0, 100),
          qr/it must be JSON/],
         ['an unknown member', text('next key', 'one') =~ s/\{/{"x":1,/r,
          qr/has an unknown member "x"/],
         ['a bad server', text('next key', 'one') =~ s/STANDALONE/VM/r,
          qr/servers\[0\]\.kind is "VM"/],
         ['an empty file', '', qr/it must be JSON/])
    {
        my ($name, $text, $why) = @$_;

        $t->log_mark;
        $t->write_file('registry.json', $text);

        my $line = qr/\[error\].*vibelock_registry "\Q$file\E" stays as it was read before: .*$why/;
        ok(wait_for { (() = $t->error_log =~ /$line/g) == 2 },
           "$name: each worker says so");
        is(status('one', 'next key'), 200, "$name: the old one is in force");
    }

    # Some checks later.
    $t->log_mark;
    wait_for { 0 } 0.3;
    unlike($t->error_log, qr/vibelock_registry/, 'each is logged once');

    ok(taken_up(text('next key', 'one', 'good')),
       'a good one is taken up again');
    is(status('good', 'next key'), 200, 'what it has is there');
};

subtest 'a file that is gone' => sub {
    $t->log_mark;
    unlink $file;

    my $said = sub {
        return () = $t->error_log
            =~ /\[error\].*"\Q$file\E" stays .* \(2: No such/g;
    };

    ok(wait_for { $said->() == 2 }, 'each worker says so');
    is(status('good', 'next key'), 200, 'the old one is in force');

    # Some checks later.
    wait_for { 0 } 0.3;
    is($said->(), 2, 'once');

    ok(taken_up(text('next key', 'again')), 'a new one is taken up');
    is(status('again', 'next key'), 200, 'what it has is there');
};

subtest 'no descriptor is left' => sub {
    plan skip_all => 'no prlimit'
        unless grep { -x "$_/prlimit" } split /:/, $ENV{PATH};
    plan skip_all => 'valgrind has a limit of its own'
        if $ENV{VIBELOCK_VALGRIND};

    my $limit = sub {
        for my $worker ($t->workers) {
            my ($code, $output) = run(['prlimit', "--pid=$worker",
                                       "--nofile=$_[0]:"]);
            is($code, 0, "$worker: $_[0]") or diag $output;
        }
    };
    my ($before) = read_file('/proc/' . ($t->workers)[0] . '/limits')
        =~ /^Max open files +(\d+)/m;

    # Who comes now could not be taken.

    my $c = $t->connect;
    my %key = (headers => { 'X-Api-Key' => 'next key' }, connection => $c);

    is($t->get('/again/lock', %key)->status, 200, 'a client is there');
    $limit->(3);
    $t->log_mark;
    $t->write_file('registry.json', text('next key', 'again', 'short'));

    # Some checks later.
    wait_for { 0 } 0.3;
    unlike($t->error_log, qr/vibelock_registry/, 'nothing is said of the file');
    is($t->get('/again/lock', %key)->status, 200, 'the old one is in force');
    is($t->get('/short/lock', %key)->status, 404, 'and the new one is not');

    $limit->($before);
    ok(wait_for {
        (() = $t->error_log =~ /vibelock_registry "\Q$file\E": read /g) == 2;
    }, 'which is taken up when there are some again');
    unlike($t->error_log, qr/\[error\]/, 'without a word of an error');
    is(status('short', 'next key'), 200, 'what it has is there');
    ok(taken_up(text('next key', 'again')), 'and back');
};

subtest 'reload' => sub {
    $t->write_file('registry.json', 'no JSON');
    like($t->reload_fails,
         qr/\[emerg\].*vibelock_registry "\Q$file\E": it must be JSON/,
         'with a bad file is refused');
    is(status('again', 'next key'), 200, 'what ran runs on');

    $t->write_file('registry.json', text('next key', 'new'));
    $t->reload;
    is(status('new', 'next key'), 200, 'with a good one takes it');
    ok(wait_for { !$t->leaving }, 'the old workers leave');
};

subtest 'a session that runs out' => sub {
    my $until = time + 2;
    my $registry = JSON::PP->new->decode(text('next key', 'new'));

    $registry->{keys}[1]{sessions}[0]{expires} = $until;
    $registry->{servers}[0]{key} = 'app';
    $t->write_file('registry.json', JSON::PP->new->encode($registry));
    $t->reload;

    my $answer = sub {
        my $r = $t->get('/new/lock', headers => {
            'X-Api-Key' => 'app key', Authorization => 'Bearer session' });
        return $r->status == 200 ? 200 : $r->json->{error}{code};
    };
    my $before = $answer->();
    ok($before eq '200' || Time::HiRes::time() >= $until, 'is good before its end');
    ok(wait_for { $answer->() eq 'TOKEN_EXPIRED' }, 'and over at its end');
    cmp_ok(Time::HiRes::time(), '>=', $until, 'not sooner');
};

subtest 'no key shows' => sub {
    my $log = $t->{log}->text('error.log') . $t->access_log;

    for my $secret ('first key', 'next key', 'app key', 'session') {
        is(index($log, sha256_hex($secret)), -1, "no digest: $secret");
    }

    is(index($log, $_), -1, "not itself: $_") for 'first key', 'next key';
};

$t->done;

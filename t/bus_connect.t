#!/usr/bin/perl

# vibelock_redis: what it takes, and every way to reach a Redis.

use strict;
use warnings;

use Test::More;

use Vibelock::Dns;
use Vibelock::Fleet qw(stream);
use Vibelock::Port qw(free_port);
use Vibelock::Preload qw(preload);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);

# Two gateways that reach each other.

sub works {
    my ($name, $url, %how) = @_;

    subtest $name => sub {
        my $fleet = Vibelock::Fleet->new(redis => $url, gateways => 2,
            map { $_ => $how{$_} }
            grep { exists $how{$_} } qw(more http nginx));

        $how{each}->($_) for $how{each} ? $fleet->gateways : ();

        $fleet->start;
        ok($fleet->working, 'both work') or diag $fleet->gateway(0)->error_log;

        $fleet->take(0, 'web');
        $fleet->old;
        $fleet->release(1, 'web');
        ok($fleet->freed(0, 'web'), 'a release arrives');

        $how{then}->($fleet) if $how{then};

        $_->finish for $fleet->gateways;
    };
}

# What is away, and why.

sub away {
    my ($name, $url, $state, %how) = @_;

    subtest $name => sub {
        my $fleet = Vibelock::Fleet->new(redis => $url, gateways => 1,
            map { $_ => $how{$_} } grep { exists $how{$_} } qw(more http));

        $how{each}->($_) for $how{each} ? $fleet->gateways : ();

        $fleet->start;
        ok(wait_for { $fleet->bus(0)->{reading} eq $state }, $state)
            or diag explain $fleet->bus(0);
        is($fleet->exec(0, 'web'), 200, 'and it serves');

        $how{then}->($fleet) if $how{then};

        $_->finish for $fleet->gateways;
    };
}

subtest 'what nginx -t says' => sub {
    my $t = Vibelock::Test->new;

    $t->write_file('password', "secret\n");
    $t->write_file('empty', "\n");
    $t->write_file('long', 'x' x 513);
    $t->write_file('lines', "one\ntwo\n");

    for my $case (
        ['redis://127.0.0.1'],
        ['redis://[::1]:6380/3'],
        ['redis://localhost/0'],
        ['unix:/tmp/none.sock'],
        ['unix:/tmp/none.sock:7'],
        ['redis://127.0.0.1 prefix=a: replica=b timeout=1s keepalive=1m'],
        ['redis://bus@127.0.0.1 password_file=%%DIR%%/password'],
        ['127.0.0.1:6379',          qr/no known scheme; it must be "redis:/],
        ['REDIS://u:secret@127.0.0.1',
         qr/with "127\.0\.0\.1" has no known scheme/],
        ['http://127.0.0.1',        qr/has no known scheme/],
        ['redis://',                qr/has no host/],
        ['redis:///run/redis.sock', qr/has no host; it must be .*"unix:</],
        ['redis://127.0.0.1:0',     qr/cannot be read: invalid port;/],
        ['redis://127.0.0.1:65536', qr/cannot be read: invalid port;/],
        ['redis://127.0.0.1:x',     qr/cannot be read: invalid port;/],
        ['redis://127.0.0.1/x',     qr/a database that is no number/],
        ['redis://127.0.0.1/-1',    qr/a database that is no number/],
        ['redis://127.0.0.1/',      qr/a database that is no number/],
        ['redis://@127.0.0.1',      qr/an empty user/],
        ['redis://u:p@127.0.0.1',   qr/takes no password in its url/],
        ['redis://u@127.0.0.1',     qr/names the user "u", and needs the pass/],
        ['redis://nowhere.invalid', qr/host not found in "redis:/],
        ['unix:none.sock',          qr/a path that is not absolute/],
        ['unix:/' . 'x' x 108,      qr/a path too long/],
        ['unix:/tmp/x:y',           qr/a database that is no number/],
        ['redis://127.0.0.1 prefix=',         qr/1 to 128 visible ASCII/],
        ['redis://127.0.0.1 "prefix=a b"',    qr/1 to 128 visible ASCII/],
        ['redis://127.0.0.1 replica=',        qr/1 to 64 visible ASCII/],
        ['redis://127.0.0.1 replica=' . 'x' x 65, qr/1 to 64 visible ASCII/],
        ['redis://127.0.0.1 timeout=0',       qr/must be a time above 0/],
        ['redis://127.0.0.1 timeout=soon',
         qr/must be a time above 0, as in "timeout=250ms"/],
        ['redis://127.0.0.1 keepalive=-1',
         qr/must be a time above 0, as in "keepalive=15s"/],
        ['redis://127.0.0.1 password=odd',    qr/takes no "password=", which/],
        ['redis://127.0.0.1 alone',           qr/it takes "prefix=<text>"/],
        ['redis://127.0.0.1 password_file=',  qr/it takes "prefix=<text>"/],
        ['redis://127.0.0.1 password_file=%%DIR%%/none', qr/No such file/],
        ['redis://127.0.0.1 password_file=%%DIR%%', qr/failed .*Is a direct/],
        ['redis://127.0.0.1 password_file=%%DIR%%/empty', qr/must hold a pass/],
        ['redis://127.0.0.1 password_file=%%DIR%%/long', qr/1 to 512 bytes/],
        ['redis://127.0.0.1 prefix=a: timeout=1s prefix=b:',
         qr/"vibelock_redis" has one parameter twice, .* as "prefix=b:"/],
        ['redis://127.0.0.1; vibelock_redis redis://127.0.0.1',
         qr/is duplicate/],
    ) {
        my ($value, $error) = @$case;

        $t->http("vibelock_zone \$arg_id zone=z:1m;\n"
                 . "vibelock_redis $value;");

        my ($code, $output) = $t->config_test;

        $error ? like($output, $error, $value) : is($code, 0, $value);
        isnt($code, 0, 'refused') if $error;
        unlike($output, qr/=odd/, 'no password shows') if $value =~ /=odd/;
        diag $output if !$error && $code;
    }
};

my $redis = Vibelock::Redis->start;

works('an address', 'redis://127.0.0.1:' . $redis->port);

works('a database', 'redis://127.0.0.1:' . $redis->port . '/5', then => sub {
    my $client = $redis->client(db => 5);
    is($client->cmd('XLEN', stream('ops')), 1, 'it is there');
    is($redis->cmd('XLEN', stream('ops')), 1, 'and not in another');
});

away('a database that is not there',
     'redis://127.0.0.1:' . $redis->port . '/99', 'error', then => sub {
    ok($_[0]->gateway(0)->log_like(
        qr/answered with an error, "redis:\S+99" \(ERR DB index/), 'logged');
});

works('a name', 'redis://localhost:' . $redis->port);

my $six = eval { Vibelock::Redis->start(bind => '::1') };

SKIP: {
    skip 'no IPv6 here', 1 unless $six;

    works('an IPv6 address', 'redis://[::1]:' . $six->port);
}

# A name that has several addresses from the start on, of which one answers: the
# next one is tried when one does not.

{
    my $port = $redis->port;

    works('a name with several addresses', "redis://several.test:$port",
        nginx => { env => {
            ADDRESSES => '127.0.0.7 127.0.0.8 127.0.0.1 127.0.0.2',
            preload('addresses'),
        } }, then => sub {
            my ($fleet) = @_;

            my $other = Vibelock::Redis->start(bind => '127.0.0.2',
                                               port => $port);

            $redis->stop;
            ok($fleet->working, 'works with the one behind it');
            $fleet->take(0, 'moved');
            $fleet->old;
            $fleet->release(1, 'moved');
            ok($fleet->freed(0, 'moved'), 'where a release arrives');

            $redis->start;
            $other->stop;
            ok($fleet->working, 'and, all around, with the one before it');
        });
}

# A name with several addresses, of which one answers; and a new server behind
# the same name.

my $port = $redis->port;
my $dns = Vibelock::Dns->start(
    'redis.test' => ['127.0.0.7', '127.0.0.8', '127.0.0.1', '127.0.0.9']);
my $resolver = 'resolver 127.0.0.1:' . $dns->port . ' valid=1s ipv6=off;';

works('a name that a resolver knows', "redis://redis.test:$port",
    http => $resolver, then => sub {
        my ($fleet) = @_;

        my $other = Vibelock::Redis->start(bind => '127.0.0.2', port => $port);

        $dns->set('redis.test' => ['127.0.0.2']);
        $redis->stop;

        ok($fleet->working, 'works with a new one behind it');
        $fleet->take(0, 'moved');
        $fleet->old;
        $fleet->release(1, 'moved');
        ok($fleet->freed(0, 'moved'), 'where a release arrives');

        # Who is there stays, whatever becomes of the name.

        $dns->set('redis.test' => []);
        $fleet->release(1, 'stays');
        ok(wait_for { $fleet->bus(1)->{published} == 3 }, 'it stays there');

        $other->stop;
        $redis->start;
    });

away('a name that is nobody\'s', "redis://nobody.test:$port", 'unresolved',
    http => $resolver, then => sub {
        my ($fleet) = @_;

        $dns->set('nobody.test' => ['127.0.0.1']);
        ok($fleet->working, 'and works when it is somebody\'s');
        is($fleet->gateway(0)->quit(10), 1, 'and nginx ends');
    });

subtest 'a name server that is silent' => sub {
    my $fleet = Vibelock::Fleet->new(
        redis    => "redis://silent.test:$port",
        gateways => 1,
        http     => "resolver 127.0.0.1:@{[free_port()]}; resolver_timeout 1h;",
    );

    $fleet->start;
    is($fleet->exec(0, 'web'), 200, 'keeps nothing from being served');
    ok($fleet->gateway(0)->quit(10), 'and nginx from ending');
    $fleet->gateway(0)->finish;
};

my $unix = Vibelock::Redis->start(unix => 1);

works('a Unix socket', 'unix:' . $unix->path);
works('a Unix socket and a database', 'unix:' . $unix->path . ':2');

away('a Unix socket that is not there', 'unix:/tmp/vibelock-none.sock',
     'failed');
away('a port that nobody listens on', 'redis://127.0.0.1:' . free_port(),
     'failed');

# Logging in.

my $odd = q{p@ss:w/rd "#'\\ %41 $x;{}} . "\xc3\xa4";
my $locked = Vibelock::Redis->start;

$locked->cmd('CONFIG', 'SET', 'requirepass', $odd);

works('a password with odd characters',
    'redis://127.0.0.1:' . $locked->port,
    more => 'password_file=%%DIR%%/password',
    each => sub {
        $_[0]->write_file('password', "$odd\n");
        chmod 0600, $_[0]->path('password');
    },
    then => sub {
        unlike($_[0]->gateway(0)->error_log, qr/w\/rd/, 'is in no log');
    });

away('no password', 'redis://127.0.0.1:' . $locked->port, 'noauth');

away('a wrong password', 'redis://127.0.0.1:' . $locked->port, 'noauth',
    more => 'password_file=%%DIR%%/password',
    each => sub { $_[0]->write_file('password', "wrong\r\n") },
    then => sub {
        ok($_[0]->gateway(0)->log_like(qr/Redis refused the login/), 'logged');
    });

# A Redis that does not know a command repeats what it was sent.

my $strange = Vibelock::Redis->start(config => ['rename-command AUTH ""']);

away('a Redis that knows no AUTH', 'redis://127.0.0.1:' . $strange->port,
    'noauth', more => 'password_file=%%DIR%%/password',
    each => sub { $_[0]->write_file('password', "of-the-bus\n") },
    then => sub {
        ok($_[0]->gateway(0)->log_like(qr/Redis refused the login/), 'logged');
        unlike($_[0]->gateway(0)->error_log, qr/of-the-bus/,
               'the password is in no log');
    });

# What is said before Redis looks at the login.

my $crowded = Vibelock::Redis->start(requirepass => 'of-the-bus',
                                     config => ['maxclients 1']);
my $guest = $crowded->client;

away('a Redis with no room for another client',
    'redis://127.0.0.1:' . $crowded->port,
    'error', more => 'password_file=%%DIR%%/password',
    each => sub { $_[0]->write_file('password', "of-the-bus\n") },
    then => sub {
        ok($_[0]->gateway(0)->log_like(qr/\(ERR max number of clients /),
           'says so');
    });

undef $guest;

# A user who may do what the bus does, and nothing else: as the docs list it.

my @rights = qw(resetchannels -@all ~vibelock:*:releases
                +time +xadd +xread +xrevrange);

my $acl = Vibelock::Redis->start(acl => [
    "user bus on >of-the-bus @rights",
    "user half on >of-the-bus @{[ grep { $_ ne '+xadd' } @rights ]}",
    "user none on >of-the-bus @{[ grep { $_ !~ /xrev/ } @rights ]}",
    "user looks on >of-the-bus @{[ grep { $_ ne '+xread' } @rights ]}",
    "user other on >of-the-bus @{[ map { s/vibelock/other/r } @rights ]}",
]);

my $password = sub { $_[0]->write_file('password', 'of-the-bus') };

# How often a user was denied something.

sub denied {
    my ($redis, $user) = @_;

    my $n = 0;

    for my $entry (map { +{ @$_ } } @{ $redis->cmd('ACL', 'LOG') }) {
        $n += $entry->{count} if $entry->{username} eq $user;
    }

    return $n;
}

works('a user with the rights of the docs',
    'redis://bus@127.0.0.1:' . $acl->port,
    more => 'password_file=%%DIR%%/password', each => $password);

$acl->cmd('ACL', 'SETUSER', 'bus', '+select');

works('and one more for a database',
    'redis://bus@127.0.0.1:' . $acl->port . '/1',
    more => 'password_file=%%DIR%%/password', each => $password);

away('a user who may not read', 'redis://none@127.0.0.1:' . $acl->port,
    'noperm', more => 'password_file=%%DIR%%/password', each => $password);

away('a user who may look and not read',
    'redis://looks@127.0.0.1:' . $acl->port, 'noperm',
    more => 'password_file=%%DIR%%/password', each => $password,
    then => sub {
        my ($fleet) = @_;

        my $denied = sub { denied($acl, 'looks') };
        my $before = $denied->();
        my %seen;

        wait_for {
            $seen{ $fleet->bus(0)->{reading} }++;
            $denied->() >= $before + 5;
        };

        is(join(' ', sort keys %seen), 'noperm', 'as often as it is tried');
        unlike($fleet->gateway(0)->error_log, qr/works again/,
               'nothing else is logged');

        $acl->cmd('ACL', 'SETUSER', 'looks', '+xread');
        ok($fleet->working, 'and works when allowed');
        ok($fleet->gateway(0)->log_like(qr/works again/), 'which is logged');
    });

away('a user for other streams', 'redis://other@127.0.0.1:' . $acl->port,
    'noperm', more => 'password_file=%%DIR%%/password', each => $password);

away('a user who may not write', 'redis://half@127.0.0.1:' . $acl->port,
    'works', more => 'password_file=%%DIR%%/password', each => $password,
    then => sub {
        my ($fleet) = @_;

        $fleet->release(0, 'web');
        ok(wait_for { $fleet->bus(0)->{publishing} eq 'noperm' }, 'is seen');
        ok($fleet->gateway(0)->log_like(
            qr/cannot publish: Redis does not permit .*\(NOPERM/), 'logged');

        $acl->cmd('ACL', 'SETUSER', 'half', '+xadd');
        ok($fleet->working, 'and works when allowed');
        ok(wait_for { $fleet->bus(0)->{published} == 1 }, 'what waited went');
    });

Vibelock::Test->done;

#!/usr/bin/perl

# rediss://, where the hiredis at hand has TLS: to the server that the URL
# names, and to no other.

use strict;
use warnings;

use File::Temp ();
use IO::Select;
use IO::Socket::IP;
use Socket qw(IPPROTO_TCP SOL_SOCKET SO_RCVBUF TCP_MAXSEG);
use Test::More;

use Vibelock::Fleet;
use Vibelock::Port qw(free_port);
use Vibelock::Process qw(end_group fork_child run);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(write_file);

my $probe = Vibelock::Test->new;

$probe->http('vibelock_redis rediss://127.0.0.1;');

my ($code, $output) = $probe->config_test;

if ($code) {
    like($output, qr/hiredis that this module was built with has no TLS/,
         'nginx -t says that there is no TLS');
    Vibelock::Test->done;
    exit;
}

plan skip_all => 'no openssl' unless grep { -x "$_/openssl" }
                                     split /:/, $ENV{PATH};

my $dir = File::Temp::tempdir(CLEANUP => 1);

sub openssl {
    my ($code, $output) = run(['openssl', @_]);

    $code == 0 or BAIL_OUT("openssl @_: $output");

    return;
}

# An authority, and certificates by it and by itself.

openssl(qw(req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority),
        '-keyout', "$dir/ca.key", '-out', "$dir/ca.pem");

sub certificate {
    my ($name, $for) = @_;

    openssl(qw(req -newkey rsa:2048 -nodes -subj), "/CN=$name",
            '-addext', "subjectAltName=$for",
            '-keyout', "$dir/$name.key", '-out', "$dir/$name.csr");
    openssl(qw(x509 -req -days 2 -copy_extensions copy -CAcreateserial),
            '-in', "$dir/$name.csr", '-CA', "$dir/ca.pem",
            '-CAkey', "$dir/ca.key", '-out', "$dir/$name.pem");

    return;
}

certificate(good => 'IP:127.0.0.1,DNS:localhost');
certificate(other => 'DNS:elsewhere.example');

sub server {
    my ($name) = @_;

    my $port = free_port();
    my $redis = Vibelock::Redis->start(config => [
        "tls-port $port",
        "tls-cert-file $dir/$name.pem",
        "tls-key-file $dir/$name.key",
        'tls-auth-clients no',
    ]);

    return ($redis, $port);
}

sub fleet {
    my ($url, $authorities, %how) = @_;

    my $fleet = Vibelock::Fleet->new(redis => $url, gateways => 2, %how,
        nginx => { env => { SSL_CERT_FILE => $authorities,
                            SSL_CERT_DIR => "$dir/none" },
                   workers => $how{workers} // 2 });
    $fleet->start;

    return $fleet;
}

my ($good, $good_port) = server('good');
my ($other, $other_port) = server('other');

for my $host ('127.0.0.1', 'localhost') {
    subtest "to $host" => sub {
        my $fleet = fleet("rediss://$host:$good_port", "$dir/ca.pem");

        ok($fleet->working, 'works') or diag $fleet->gateway(0)->error_log;
        $fleet->take(0, 'web');
        $fleet->old;
        $fleet->release(1, 'web');
        ok($fleet->freed(0, 'web'), 'a release arrives');

        # An answer that takes many records.
        my $pipe = $good->client;
        $pipe->send('XADD', 'vibelock:ops:releases', '*', 'release',
                    '[' x 50_000) for 1 .. 40;
        $pipe->read_reply for 1 .. 40;
        ok(wait_for { $fleet->bus(0)->{skipped}{tooLarge} == 40 },
           'long answers are read');

        $good->cmd('CLIENT', 'KILL', 'TYPE', 'normal');
        $fleet->take(0, 'again');
        $fleet->old;
        $fleet->release(1, 'again');
        ok($fleet->freed(0, 'again'), 'and after a new connection');
        $good->cmd('DEL', 'vibelock:ops:releases');

        $_->finish for $fleet->gateways;
    };
}

# More than a socket takes at once. No answer is let through before all of it
# went out, so that only the socket itself can say when it takes more.

use constant { LOGIN => 8192, ALL => 128 * 1500 };

sub narrow {
    my ($listen, $port, $open) = @_;

    my $select = IO::Select->new($listen);
    my (%peers, %sent, %held);

    while (my @ready = $select->can_read) {
        for my $handle (@ready) {
            if ($handle == $listen) {
                my $client = $listen->accept or next;

                -s $open or next;

                my $server = IO::Socket::IP->new(PeerHost => '127.0.0.1',
                                                 PeerPort => $port) or die $!;

                @peers{$client, $server} = ($server, $client);
                @sent{$client, $server} = (0, undef);
                $held{$client} = '';
                $select->add($client, $server);
                next;
            }

            my $peer = $peers{$handle} or next;

            my $data;

            unless (sysread $handle, $data, 4096) {
                $select->remove($handle, $peer);
                delete @peers{$handle, $peer};
                close $_ for $handle, $peer;
                next;
            }

            # Only clients are counted.
            if (!defined $sent{$handle}
                && $sent{$peer} > LOGIN && $sent{$peer} < ALL)
            {
                $held{$peer} .= $data;
                next;
            }

            syswrite $peer, $data;
            next unless defined $sent{$handle};

            $sent{$handle} += length $data;
            syswrite $handle, delete $held{$handle}
                if $sent{$handle} >= ALL && defined $held{$handle};
        }
    }

    return;
}

subtest 'more than the socket takes' => sub {
    my $open = File::Temp->new;
    my $listen = IO::Socket::IP->new(LocalHost => '127.0.0.1', Listen => 50)
        or die $!;

    # Those who connect have small buffers then.
    setsockopt $listen, IPPROTO_TCP, TCP_MAXSEG, 1000 or die $!;
    setsockopt $listen, SOL_SOCKET, SO_RCVBUF, 4096 or die $!;

    my $pid = fork_child(sub { narrow($listen, $good_port, "$open") },
                         $listen);
    my $fleet = fleet('rediss://127.0.0.1:' . $listen->sockport,
                      "$dir/ca.pem", gateways => 1, more => 'timeout=3s',
                      workers => 1);

    $fleet->release(0, sprintf '%03d%s', $_, '%01' x 250) for 1 .. 128;
    is($fleet->bus(0)->{queued}, 128, 'many wait');

    write_file("$open", 'is open');
    ok(wait_for { $fleet->bus(0)->{published} == 128 }, 'and go out');
    is($fleet->bus(0)->{reconnects}, 0, 'through one connection');

    $fleet->gateway(0)->finish;
    end_group($pid);
    $good->cmd('DEL', 'vibelock:ops:releases');
};

for my $case (
    ['whose certificate is for another host',
     "rediss://127.0.0.1:$other_port", "$dir/ca.pem",
     qr/ TLS failed, .* \(IP address mismatch\)$/m],
    ['whose authority is not known', "rediss://127.0.0.1:$good_port",
     "$dir/other.pem",
     qr/ TLS failed, .* \(unable to get local issuer certificate\)$/m],
    ['that has no TLS', 'rediss://127.0.0.1:' . $good->port, "$dir/ca.pem"],
) {
    my ($name, $url, $authorities, $why) = @$case;

    subtest "not to a server $name" => sub {
        my $port = free_port();
        my $fleet = fleet($url, $authorities, gateways => 1, http => <<"CONF");
            server {
                listen 127.0.0.1:$port ssl;
                ssl_certificate $dir/good.pem;
                ssl_certificate_key $dir/good.key;
                return 200;
            }
CONF

        ok(wait_for { $fleet->bus(0)->{reading} =~ /tls|timeout|closed/ },
           'is away');

        # Clients with TLS have nothing to do with it: no alerts of theirs.
        is((run(['curl', '-sSk', "https://127.0.0.1:$port/"]))[0], 0, 'HTTPS')
            for 1 .. 5;

        ok($fleet->gateway(0)->log_like($why // qr/the bus of zone "ops" is/),
           'logged');
        is($fleet->exec(0, 'web'), 200, 'and serves');
        is($fleet->bus(0)->{published}, 0, 'nothing was published');
        $_->finish for $fleet->gateways;
    };
}

Vibelock::Test->done;

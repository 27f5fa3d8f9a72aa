#!/usr/bin/perl

# No memory for a command: in the middle of logging in, the connection is given
# up when its time is over; later, at once. It is made again, and the log says
# why.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet;
use Vibelock::Preload qw(preload);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);

my $redis = Vibelock::Redis->start(requirepass => 'secret');

sub without {
    my ($what, %how) = @_;

    my $fleet = Vibelock::Fleet->new(
        redis    => 'redis://127.0.0.1:' . $redis->port,
        gateways => 1,
        more     => 'password_file=%%DIR%%/password ' . ($how{more} // ''),
        nginx    => {
            workers => 1,
            env     => {
                %{ $how{env} || {} },
                preload($what),
            },
        },
    );

    $fleet->gateway(0)->write_file('password', 'secret');

    return $fleet->start;
}

subtest 'to log in' => sub {
    my $fleet = without('time');

    ok($fleet->working, 'it works in the end');
    ok($fleet->gateway(0)->log_like(qr/is away, it cannot \w+: no reply came/),
       'after it did not');
    $fleet->gateway(0)->finish;
};

# Who publishes and who reads asks once, and then the one who publishes does.

subtest 'to try the connection' => sub {
    my $fleet = without('time', more => 'keepalive=200ms',
                        env => { NOTIME => 3 });

    ok($fleet->gateway(0)->log_like(
           qr/is away, it cannot publish: the connection failed, .* \(12: /),
       'it is given up');
    ok($fleet->working, 'and works in the end');
    $fleet->gateway(0)->finish;
};

subtest 'to publish' => sub {
    my $fleet = without('append');

    ok($fleet->working, 'it works');
    $fleet->release(0, 'web');
    ok(wait_for { $fleet->bus(0)->{published} == 1 }, 'it is sent in the end');
    ok($fleet->gateway(0)->log_like(
           qr/is away, it cannot publish: the connection failed, .* \(12: /),
       'after it could not be');
    $fleet->gateway(0)->finish;
};

done_testing();

package Bench::Bus;

# How long a release takes to another replica: from the answer to a DELETE on
# one gateway to the lock's absence on another, beside what Redis alone takes
# from an XADD to the XREAD that waits for it.
#
#   my $bus = Bench::Bus->new(dir => $directory, module => '/path/of.so');
#
#   $bus->measure(20);       a round of so many releases
#   my $row = $bus->row;     of all rounds until now

use strict;
use warnings;

use Carp qw(croak);
use Time::HiRes qw(sleep);

use Bench::Machine qw(both_cpus client_cpu pin worker_cpu);
use Bench::Nginx;
use Bench::Row qw(median);
use Vibelock::Http qw(http_connect http_request);
use Vibelock::Redis;
use Vibelock::Util qw(now wait_for);

# A lock younger than 50 ms is taken for somebody's next, and what a gateway
# knows of the clock of Redis may be wrong by as much.
use constant OLD => 0.11;

sub new {
    my ($class, %how) = @_;

    return bless { %how, pairs => [] }, $class;
}

sub row {
    my ($self) = @_;

    return Bench::Row->new(
        what        => "DELETE's answer on one gateway to the lock's absence"
                       . ' on another',
        alternative => 'XADD to XREAD in the same Redis',
        unit        => 'us',
        bar         => 3,
        pairs       => $self->{pairs},
    );
}

# In each round, a new Redis and new gateways: what differs from one start to
# the next is then in the spread of a run, not between two runs.
#
# The client has a processor alone, and does not sleep while it waits: to wake
# up takes as long as what is measured.  All others share the other one, which
# has slept and is awake, by a few questions to a gateway, when either begins.

sub measure {
    my ($self, $releases) = @_;

    my $round = @{ $self->{pairs} };
    my $redis = Vibelock::Redis->start;
    pin($redis->pid, worker_cpu());
    my %replica = map { $_ => $self->replica($redis, "$_$round") } qw(a b);
    my %wire = (add => $redis->client, read => $redis->client);

    my %connection = map {
        $_ => http_connect(port => $replica{$_}->port('lock'))
    } qw(a b);

    wait_for { releases(\%replica, \%connection, 'start', 0.5) }
        or croak 'a release on one gateway does not come to the other';

    pin($$, client_cpu());

    my (@through, @raw);

    for my $n (1 .. $releases) {
        push @through, releases(\%replica, \%connection, $n, 5)
            // croak 'a lock was not there, or its release took more than'
                     . ' 5 seconds';
        push @raw, raw(\%wire, $connection{a});
    }

    pin($$, both_cpus());
    $_->stop for values %replica;
    $redis->stop;

    push @{ $self->{pairs} }, [median(@through) * 1e6, median(@raw) * 1e6];

    return;
}

sub replica {
    my ($self, $redis, $name) = @_;

    return Bench::Nginx->new(
        dir     => "$self->{dir}/bus_$name",
        modules => [$self->{module}],
        http    => join("\n",
            'vibelock_zone $arg_id zone=ops:1m;',
            'vibelock_redis redis://127.0.0.1:' . $redis->port
            . " replica=$name;",
            'vibelock_owner bench;'),
        servers => {
            lock => 'location / { vibelock_release zone=ops; }',
            exec => 'location / { vibelock exec zone=ops; vibelock_keep 1;'
                    . ' empty_gif; }',
        },
    )->start;
}

# Seconds, or undef when it takes longer than the limit or there was no lock.

sub releases {
    my ($replica, $connection, $id, $limit) = @_;

    my $taken = http_request(port => $replica->{b}->port('exec'),
                             uri => "/?id=$id");

    croak 'a lock was not taken' unless $taken->status =~ /^(200|409)$/;

    # What was not there goes at once. At the start, a release of an earlier try
    # may have come for it.

    return undef if is_free($connection->{b}, $id);

    awake_after_sleep($connection->{a});

    ask($connection->{a}, 'DELETE', $id)->status == 200
        or croak 'DELETE failed';

    my $start = now();

    while (now() < $start + $limit) {
        return now() - $start if is_free($connection->{b}, $id);
    }

    return undef;
}

sub is_free {
    my ($connection, $id) = @_;

    return ask($connection, 'GET', $id)->body =~ /"locked":false/;
}

sub raw {
    my ($wire, $gateway) = @_;

    $wire->{read}->send('XREAD', 'BLOCK', 5000, 'STREAMS', 'raw', '$');

    awake_after_sleep($gateway);

    my $start = now();

    $wire->{add}->send('XADD', 'raw', 'MAXLEN', '~', 10000, '*',
                       'release', 'x' x 200);
    look($wire->{read})->read_reply;

    my $seconds = now() - $start;

    $wire->{add}->read_reply;

    return $seconds;
}

sub awake_after_sleep {
    my ($gateway) = @_;

    sleep OLD;
    ask($gateway, 'GET', 'awake') for 1 .. 3;

    return;
}

sub ask {
    my ($connection, $method, $id) = @_;

    $connection->send_request($method, "/?id=$id", keepalive => 1);

    return look($connection)->read_response;
}

# Until something has come, or the connection has ended.

sub look {
    my ($connection) = @_;

    1 until length $connection->available || !$connection->is_open;

    return $connection;
}

1;

package Bench::Million;

# Many locks at once: the memory they take, what they do to others, and how
# they go.
#
#   my $options = { dir => $directory, module => '/path/of.so' };
#
#   my @rows = Bench::Million::held($options, $load,
#       locks => 1000000, rounds => 33, requests => 10000);
#   my @rows = Bench::Million::swept($options, $load,
#       locks => 1000000, rounds => 5, sweep => 100, rate => 1000);
#
# sweep is in ms, and rate in requests for each second.
#
# Locks are held by requests that ended while vibelock_keep told to keep them.

use strict;
use warnings;

use Carp qw(croak);
use List::Util qw(max min);
use Time::HiRes qw(sleep);

use Bench::Machine qw(redis_server);
use Bench::Nginx;
use Bench::Row;
use Bench::Setup;
use Vibelock::Http qw(http_request);
use Vibelock::Redis;
use Vibelock::Util qw(now);

# Keys of the requests that are measured are none of those that are held.
use constant OTHERS => 1 << 40;
use constant FEW    => 1000;

# Of the time in which locks expire.
use constant SLICE  => 50;    # ms

sub held {
    my ($options, $load, %how) = @_;

    my $locks = $how{locks};

    # 133 bytes for each, and some room: what is left over is filled too.
    my $size = $locks * 133 + 1024 * 1024;

    my %zones = (many => $locks, few => FEW);

    my $nginx = Bench::Nginx->new(
        dir     => "$options->{dir}/held",
        modules => [$options->{module}],
        http    => join("\n", map {
            "vibelock_zone \$server_id zone=$_:$size sweep=1h;" } keys %zones),
        servers => {
            status => 'location / { vibelock_status json; }',
            map {
                $_        => guarded($_),
                "fill_$_" => guarded($_, 'vibelock_keep 1; vibelock_ttl 1d;'),
            } keys %zones,
        },
    )->start;

    for my $zone (keys %zones) {
        $load->run(filling($nginx, "fill_$zone", requests => $zones{$zone}));
    }

    my $samples = acquiring($nginx, $load, [keys %zones], %how);

    # Until there is no room.

    $load->run(filling($nginx, 'fill_many', requests => 2 * $locks,
                       base => $locks, stop => 1, others => 1));

    my %held = held_in($nginx);

    $nginx->stop;

    croak "of $locks locks only $held{many} are held"
        if $held{many} < $locks;
    croak 'of ' . FEW . " locks only $held{few} are held"
        if $held{few} != FEW;

    my $held = $held{many};
    my $redis = redis_bytes($locks);

    return (
        Bench::Row->new(
            what        => 'zone bytes per lock, all counted, '
                           . 'keys of 36 bytes',
            alternative => 'the same key and content in Redis',
            unit        => 'bytes',
            limit       => 144,
            pairs       => [[$size / $held, $redis]],
        ),
        Bench::Row->new(
            what        => 'guarded request with ' . words($locks)
                           . ' locks held',
            alternative => 'with ' . words(FEW) . ' held',
            unit        => 'ns',
            bar         => 1.3,
            pairs       => [map {
                [$samples->{many}[$_], $samples->{few}[$_]]
            } 0 .. $how{rounds} - 1],
        ),
    );
}

# What the status counts, by zone: an answer does not say that a lock was kept.

sub held_in {
    my ($nginx) = @_;

    my $status = http_request(port => $nginx->port('status'))->body;

    return $status =~ /"name":"(\w+)","locks":\{"held":(\d+)/g;
}

sub words { return Bench::Row::thousands($_[0]) }

sub guarded {
    my ($zone, $more) = @_;

    return Bench::Setup::location({ path => 'exec', conf => join "\n",
        "vibelock exec zone=$zone;", $more // '', 'empty_gif;' });
}

sub filling {
    my ($nginx, $server, %how) = @_;

    return (
        port        => $nginx->port($server),
        request     => Bench::Setup::request({
            method => 'GET', path => 'exec', body => delete $how{body} }),
        connections => 8,
        span        => $how{requests},
        %how,
    );
}

sub acquiring {
    my ($nginx, $load, $zones, %how) = @_;

    my %samples;
    my @zones = @$zones;

    for my $round (0 .. $how{rounds}) {

        # Other keys each time: those of the last round are in the processor's
        # caches, with what is on the way to them.

        my %others = (requests => $how{requests},
                      base => OTHERS + $round * $how{requests});

        for my $zone (@zones = reverse @zones) {
            my $before = $nginx->cpu_ns;

            $load->run(filling($nginx, $zone, %others));

            push @{ $samples{$zone} },
                ($nginx->cpu_ns - $before) / $how{requests};
        }
    }

    # The first round is to get warm.

    shift @$_ for values %samples;

    return \%samples;
}

# What a record has: the owner's hash, the operation, the token, the times.

sub redis_bytes {
    my ($locks) = @_;

    return undef unless redis_server();

    my $redis = Vibelock::Redis->start;
    my $memory = sub {
        return $redis->cmd('INFO', 'memory') =~ /^used_memory:(\d+)/m ? $1 : 0;
    };

    my $before = $memory->();
    my $step = 10000;

    for (my $from = 0; $from < $locks; $from += $step) {
        my $to = $from + $step > $locks ? $locks : $from + $step;

        $redis->cmd('EVAL', <<'END', 0, Bench::Setup::SERVER, $from, $to - 1);
            for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do
                redis.call('SET', ARGV[1] .. string.format('%012x', i),
                           string.rep('o', 32) .. 'exec' .. '1790000000000000'
                           .. '1790000000000',
                           'NX', 'PX', 86400000)
            end
END
    }

    my $bytes = ($memory->() - $before) / $locks;

    $redis->stop;

    return $bytes;
}

# A worker that sweeps answers others in between.  They are sent at their time,
# and the longest that one waited is what counts: for what the worker did in its
# processor time, since a machine that others use stands still for longer than
# any sweep. The same by the clock is told beside it.

sub swept {
    my ($options, $load, %how) = @_;

    my $locks = $how{locks};
    my $size = $locks * 133 + 1024 * 1024;

    my $nginx = Bench::Nginx->new(
        dir     => "$options->{dir}/swept",
        modules => [$options->{module}],
        http    => "vibelock_zone \$server_id zone=many:$size"
                   . " sweep=$how{sweep}ms;",
        servers => {
            many => guarded('many'),
            fill => guarded('many',
                            'vibelock_keep 1; vibelock_ttl json=timeout;'),
            status => 'location / { vibelock_status json; }',
        },
    )->start;

    my @rounds = map { expiring($nginx, $load, %how) } 1 .. $how{rounds};

    $nginx->stop;

    my @row = (
        alternative => 'without',
        unit        => 'us',
        difference  => 1,
    );

    return (
        Bench::Row->new(@row,
            what  => words($locks) . ' locks expire: longest wait of another'
                     . ' request for the worker',
            limit => 1000,
            pairs => [both(\@rounds, 'busy', %how)],
        ),
        Bench::Row->new(@row,
            what  => 'the same by the clock',
            pairs => [both(\@rounds, 'longest', %how)],
        ),
    );
}

sub both {
    my ($rounds, $name, %how) = @_;

    return [map {
        my $side = $_;
        lasting($how{sweep}, map { $_->[$side]{$name} } @$rounds);
    } 0, 1];
}

# What the machine does comes at another time in each round. So, of the longest
# waits in the slices of each round: the most, over all times of the window, of
# the least that a round had at that time. The sweep does begin at another time
# in each, by up to its interval, so a time is longer than that.

sub lasting {
    my ($interval, @rounds) = @_;

    my $span = ($interval + 250) / SLICE;
    my $last = min(map { scalar @$_ } @rounds) - $span;

    croak 'the slices are too few' if $last < 0;

    return max(map {
        my @at = $_ .. $_ + $span - 1;
        min(map { max(@$_[@at]) } @rounds)
    } 0 .. $last);
}

sub expiring {
    my ($nginx, $load, %how) = @_;

    my $window = $how{sweep} / 1000 + 6;
    my $end;

    # How long it takes to take them all is a guess, on a machine that has
    # other work too.

    for my $margin (1.4, 2.5, 5) {
        $end = take_all($nginx, $load, $window, $margin, %how) and last;
    }

    croak 'it took too long to take the locks' unless $end;

    my $without = waiting($nginx, $load, $window, %how);

    my %held = held_in($nginx);

    croak "only $held{many} locks are held"
        if $held{many} < 0.99 * $how{locks};

    sleep_until($end - 0.2);

    my $with = waiting($nginx, $load, $window, %how);

    # The time was long enough for all of it.

    my $status = http_request(port => $nginx->port('status'))->body;
    my ($used) = $status =~ /"cellsUsed":(\d+)/
        or croak "the status has no cellsUsed: $status";

    croak "$used locks are not swept in $window s: there is too much other"
        . ' work here' if $used > $how{locks} / 100 + 10;

    return [$with, $without];
}

# Takes locks that all expire at once, when all are there and have been for
# longer than the window; returns when that is, or undef if it took longer than
# the first part of them had told.

sub take_all {
    my ($nginx, $load, $window, $margin, %how) = @_;

    my $parts = 20;
    my $part = int($how{locks} / $parts) || 1;

    my $take = sub {
        my ($base, $ttl) = @_;

        $load->run(filling($nginx, 'fill', requests => $part, base => $base,
                           body => sprintf '{"timeout":%.3f}', $ttl));
    };

    my $start = now();
    $take->(2 * OTHERS, 1);
    my $end = now() + $margin * $parts * (now() - $start) + $window + 2;

    for my $i (0 .. $parts - 1) {
        my $ttl = $end - now();

        if ($ttl < $window + 1) {

            # They are in the way until then.
            sleep_until($end + 1);

            return undef;
        }

        $take->($i * $part, $ttl);
    }

    return $end;
}

sub sleep_until {
    my ($time) = @_;

    my $rest = $time - now();

    sleep $rest if $rest > 0;

    return;
}

sub waiting {
    my ($nginx, $load, $seconds, %how) = @_;

    return $load->run(filling($nginx, 'many',
        base        => OTHERS,
        rate        => $how{rate},
        connections => 1,
        requests    => int($seconds * $how{rate}),
        slice       => SLICE,
        pid         => $nginx->pids,
    ));
}

1;

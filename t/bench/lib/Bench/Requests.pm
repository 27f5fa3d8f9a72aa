package Bench::Requests;

# What a request costs, by processor time or by instructions: every subject of
# a setup once in each round, those that are compared one behind the other, so
# that what changes on the machine meanwhile changes all of them. Instructions
# do not depend on that, but on where memory lies, which is decided at nginx's
# start: for each of their rounds, the caller starts a setup anew.
#
#   my $samples = Bench::Requests::by_time($setup, $load,
#                                          rounds => 9, seconds => 0.1);
#   my ($sample, $added) = Bench::Requests::by_count($setup, $load,
#                                          round => 1, first => 300,
#                                          requests => 300);
#   $samples->{delete}      [ns of processor time of one request, by round]
#   $sample->{delete}       instructions of one request
#   $added->{delete}        { part => instructions more than the alternative }
#   my @rows = Bench::Requests::rows($samples, 'ns' | 'instructions');
#   Bench::Requests::send_to($load, $setup->subject('delete'),
#                            requests => 10000);

use strict;
use warnings;

use Bench::Profile;
use Bench::Row;

# Against what a bar is measured.  "over" are two subjects; "added" are two
# pairs of them, and what counts is the difference in each.  A row that is
# "timed" is by time alone: what is published takes more instructions or less by
# how many answers and entries come in one turn of the event loop.

my @rows = (
    {
        what        => 'DELETE …/lock, no lock, key in the registry',
        alternative => '`return 200` of the same bytes',
        over        => [qw(delete return200)],
        bar         => 1.15,
        by          => 'instructions',
    },
    {
        what        => 'the same, published on the bus',
        alternative => '`return 200` of the same bytes',
        over        => [qw(published return200)],
        bar         => 1.4,
        timed       => 1,
    },
    {
        what        => 'guard around local content, added',
        alternative => 'a lock in `ngx.shared.DICT` from Lua, added',
        added       => [qw(guarded local lua local)],
        bar         => 1 / 3,
        by          => 'ns',
    },
    {
        what        => 'the same',
        alternative => '`SET NX` in Redis from Lua, added',
        added       => [qw(guarded local lua_redis local)],
    },
    {
        what        => 'the same',
        alternative => '`limit_conn 1`, added',
        added       => [qw(guarded local limited local)],
        bar         => 4,
        by          => 'instructions',
    },
    {
        what        => 'the same with the key in the registry, added',
        alternative => '`limit_conn 1`, added',
        added       => [qw(checked local limited local)],
    },
    {
        what        => 'guarded proxied request, no body',
        alternative => 'the same unguarded',
        over        => [qw(proxied_guarded proxied)],
        bar         => 1.05,
        by          => 'instructions',
    },
    {
        what        => 'the same',
        alternative => 'the same in `limit_conn 1`',
        over        => [qw(proxied_guarded proxied_limited)],
    },
    {
        what        => 'guarded exec, TTL from a JSON body of 300 bytes',
        alternative => 'the same POST unguarded',
        over        => [qw(exec post)],
        bar         => 1.10,
        by          => 'instructions',
    },
    {
        what        => 'the same with objects, lists and escapes in the body',
        alternative => 'a POST as long, unguarded',
        over        => [qw(exec_rich post)],
    },
    {
        what        => '409 on a hot key, two workers',
        alternative => '`return 409` of the same bytes',
        over        => [qw(busy return409)],
        bar         => 1.15,
        by          => 'instructions',
    },
    {
        what        => 'the same',
        alternative => '`limit_conn 1`, and `error_page` of the same bytes',
        over        => [qw(busy limited409)],
    },
    {
        what        => 'a request without a guard, in an nginx with the module',
        alternative => 'in an nginx without it',
        over        => [qw(unguarded local)],
    },
);

# What is compared.

my @groups = (
    [qw(delete return200 published)],
    [qw(busy return409 limited409)],
    [qw(local guarded checked unguarded limited lua lua_redis)],
    [qw(proxied proxied_guarded proxied_limited)],
    [qw(post exec exec_rich)],
);

# Connections at once, before requests are counted.

my @heaps = map { 4 * $_ } 1 .. 8;

sub by_time {
    my ($setup, $load, %how) = @_;

    my (%samples, %requests);

    for my $name ($setup->subjects) {
        my $s = $setup->subject($name);
        my $first = $how{first} // 1000;

        send_to($load, $s, requests => $first);
        my $ns = time_of($load, $s, $first);

        $requests{$name} = int($how{seconds} * 1e9 / $ns) || 1;
    }

    for my $round (1 .. $how{rounds}) {
        for my $name (turned($round, $setup)) {
            push @{ $samples{$name} },
                time_of($load, $setup->subject($name), $requests{$name});
        }
    }

    return \%samples;
}

sub time_of {
    my ($load, $s, $requests) = @_;

    my $before = $s->{nginx}->cpu_ns;

    send_to($load, $s, requests => $requests);

    return ($s->{nginx}->cpu_ns - $before) / $requests;
}

# Loads of two lengths: what a connection costs is in both, the shorter ones
# have as many. Before them come so many requests that Lua's compiler has done
# its work; and as Lua collects its garbage only once in some hundred requests,
# it gets more of them.

sub by_count {
    my ($setup, $load, %how) = @_;

    my (%sample, %counts);
    my $few = 40;

    send_to($load, $setup->subject($_), requests => $how{first})
        for $setup->subjects;

    for my $name (turned($how{round}, $setup)) {
        my $s = $setup->subject($name);

        $s->{nginx}->counts;

        my $requests = int($how{requests} / @heaps)
                       * ($s->{collects} ? 5 : 1);

        my ($short, $long) = map {
            send_from_heaps($load, $s, $_);
            $s->{nginx}->counts;
        } $few, $few + $requests;

        my %one = map {
            $_ => ($long->{$_} - ($short->{$_} // 0)) / $requests / @heaps
        } keys %$long;

        $sample{$name} = Bench::Profile::sum(values %one);
        $counts{$name} = \%one;
    }

    return (\%sample, added(\%counts));
}

# An allocation takes up to 600 instructions more or less, for as long as a
# worker's free memory lies as the connections before it have left it. So each
# load comes behind some others.

sub send_from_heaps {
    my ($load, $s, $requests) = @_;

    for my $connections (@heaps) {
        send_to($load, $s, requests => 2 * $connections,
                connections => $connections);
        send_to($load, $s, requests => $requests,
                connections => connections($s));
    }

    return;
}

# One, so that each turn of the event loop is one request's, or some for each of
# several workers. What is published goes out as in the rounds by time: with
# what others publish in the same turn.

sub connections {
    my ($s) = @_;

    return $s->{published} ? 32 : $s->{nginx}{workers} > 1 ? 8 : 1;
}

# For each subject that is measured over another.

sub added {
    my ($counts) = @_;

    my %added;

    for my $row (grep { $_->{over} } @rows) {
        my ($name, $other) = map { $counts->{$_} } @{ $row->{over} };

        next unless $name && $other;

        $added{ $row->{over}[0] } //= {
            map { $_ => ($name->{$_} // 0) - ($other->{$_} // 0) }
            keys %$name, keys %$other
        };
    }

    return \%added;
}

# Another order in each round: whoever comes after the heaviest is not always
# the same, nor whoever is first of two. Every other round goes backwards; only
# after both ways is there another beginning, or two would never change places.

sub turned {
    my ($round, $setup) = @_;

    my $turn = int($round / 2);
    my @names = map { around($turn, grep { $setup->subject($_) } @$_) }
                around($turn, @groups);

    return $round % 2 ? @names : reverse @names;
}

sub around {
    my ($n, @list) = @_;

    push @list, splice @list, 0, $n % @list;

    return @list;
}

sub send_to {
    my ($load, $s, %how) = @_;

    # Servers in turn: where repeats would be merged, on from the last load.

    my $base = $s->{next} // 0;

    $base = 0 if $base + $how{requests} > $s->{span};

    $s->{next} = $base + $how{requests} if $s->{published};
    $s->{sent} += $how{requests};

    # So many connections that the worker always has something to do.

    my $result = $load->run(
        connections => 32,
        %how,
        port    => $s->{port},
        request => $s->{request},
        status  => $s->{status},
        span    => $s->{span},
        base    => $base,
    );

    # Entries come back for a while when the last request is answered: to read
    # them is a part of what they cost.

    $s->{nginx}->settle if $s->{published};

    return $result;
}

sub rows {
    my ($samples, $unit) = @_;

    return map { row($samples, $unit, $_) }
           grep { $unit eq 'ns' || !$_->{timed} } @rows;
}

sub row {
    my ($samples, $unit, $row) = @_;

    my @names = @{ $row->{over} || $row->{added} };
    my ($missing) = grep { !$samples->{$_} } @names;

    my %row = (
        what        => $row->{what},
        alternative => $row->{alternative},
        unit        => $unit,
        bar         => $row->{bar},
        decided     => !$row->{by} || $row->{by} eq $unit,
        by          => $row->{by},
    );

    if ($missing) {
        return Bench::Row->new(%row,
            missing => $missing eq 'lua'       ? 'no Lua module'
                     : $missing eq 'lua_redis' ? 'no Lua module, or no Redis'
                     : 'no Redis');
    }

    my @pairs = map {
        my $round = $_;
        my @values = map { $samples->{$_}[$round] } @names;

        @values == 2 ? [@values]
                     : [$values[0] - $values[1], $values[2] - $values[3]];
    } 0 .. $#{ $samples->{ $names[0] } };

    return Bench::Row->new(%row,
        pairs     => \@pairs,
        near_zero => $row->{added} && $unit eq 'ns',
    );
}

1;

package Bench::Profile;

# Where instructions go: a file of callgrind's, by parts of the whole.
#
#   my $counts = Bench::Profile::read_counts($file);    { part => instructions }
#   my $median = Bench::Profile::medians({ busy => $counts, … }, …);
#   print Bench::Profile::table($median, [busy => '409'], …);
#
# A count is of a function itself, without those that it calls. A function's
# name tells its part; those of nginx that are called by nothing outside have
# no name in its program.

use strict;
use warnings;

use Bench::Row qw(median);
use Vibelock::Util qw(read_file);

my @parts = (
    'who calls, and whose the server is' =>
        qr/vibelock_(caller|digest|registry|lookup|hash_wide)/,
    "the server's id: its hashes"        => qr/vibelock_hash/,
    'the TTL in the body'                => qr/vibelock_(ttl|scan|plain)/,
    'the table of locks'                 =>
        qr/vibelock_(table|cells|wheel|mutex|zone_count)|ngx_shmtx/,
    'the answer'                         => qr/vibelock_(reply|refuse)/,
    'the bus'                            =>
        qr/vibelock_(bus|redis|queue|entry|clock)/,
    'the guard, and how it ends'         => qr/vibelock/,
    'memory'                             =>
        qr/^ngx_p(ca|na|a)lloc|_pool$|malloc|memalign|free|unlink_chunk/,
    'being a process with threads'       => qr/asynccancel/,
    'the rest of nginx and of libc'      => qr//,
);

my @names = @parts[grep { $_ % 2 == 0 } 0 .. $#parts];

sub read_counts {
    my ($file) = @_;

    my (%name, %counts, $part, $called);

    for (split /\n/, read_file($file)) {

        # A name is told once, and is its number from then on.

        if (/^c?fn=\((\d+)\)(?: (.+))?/) {
            $name{$1} = part_of($2) if defined $2;
            $part = $name{$1} unless /^c/;

        } elsif (/^calls=/) {
            $called = 1;

        } elsif (/^[-+*\d]\S* (\d+)/) {

            # Behind a call stands what all of it took, which is not our own.

            $counts{$part} += $1 unless $called;
            $called = 0;
        }
    }

    return \%counts;
}

sub part_of {
    my ($function) = @_;

    for (my $i = 0; $i < @parts; $i += 2) {
        return $parts[$i] if $function =~ $parts[$i + 1];
    }
}

# Of several rounds.

sub medians {
    my (@rounds) = @_;

    my %medians;

    for my $name (keys %{ $rounds[0] }) {
        for my $part (@names) {
            $medians{$name}{$part}
                = median(map { $_->{$name}{$part} // 0 } @rounds);
        }
    }

    return \%medians;
}

# One column for each pair of a key of %$added and a heading.

sub table {
    my ($added, @columns) = @_;

    @columns = grep { $added->{ $_->[0] } } @columns;

    my @lines = (
        ['instructions more than without vibelock', map { $_->[1] } @columns],
        (map {
            my $name = $_;
            [$name, map { rounded($added->{ $_->[0] }{$name}) } @columns]
        } @names),
        ['all', map { rounded(sum(values %{ $added->{ $_->[0] } })) } @columns],
    );

    my @width = map {
        my $i = $_;
        my ($widest) = sort { $b <=> $a } map { length $_->[$i] } @lines;
        $widest;
    } 0 .. @columns;

    splice @lines, 1, 0, [map { '-' x $_ } @width];

    return join '', map {
        my $line = $_;
        '| ' . join(' | ', map { sprintf '%-*s', $width[$_], $line->[$_] }
                           0 .. @columns) . " |\n"
    } @lines;
}

sub sum {
    my $sum = 0;

    $sum += $_ for @_;

    return $sum;
}

sub rounded { return sprintf '%.0f', $_[0] // 0 }

1;

package Bench::Row;

# A row of the report: samples of what is measured and of its alternative, a
# pair for each round, and what they have to be.
#
#   Bench::Row->new(
#       what        => 'DELETE …/lock, no lock',
#       alternative => '`return 200` of the same bytes',
#       unit        => 'us',            see figure()
#       bar         => 1.15,            the most that the ratio may be
#       limit       => 144,             … or that the value itself may be
#       decided     => 0,               the bar is another table's
#       pairs       => [[$ours, $theirs], …],
#       difference  => 1,               ours less theirs counts, and limit is
#                                       that of the difference
#       near_zero   => 1,               theirs may be, see results()
#       missing     => 'why',           there are no pairs
#   );
#   $row->cells     what, alternative, vibelock, ratio, bar, met
#   $row->met       1, 0, or undef where nothing is decided

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT_OK = qw(median figure);

sub new {
    my ($class, %row) = @_;

    return bless { decided => 1, %row }, $class;
}

sub median {
    my @sorted = sort { $a <=> $b } @_;

    return @sorted % 2
        ? $sorted[$#sorted / 2]
        : ($sorted[@sorted / 2] + $sorted[@sorted / 2 - 1]) / 2;
}

# What a round gives: a ratio, or the value alone. A small difference of times
# may be near 0 or below it in a round that was disturbed, and a ratio to that
# says nothing, or that a bar is met: there, it is to the median of all rounds.

sub results {
    my ($self) = @_;

    if ($self->{near_zero}) {
        my $theirs = $self->typical(1);

        return defined $theirs && $theirs > 0
            ? map { $_->[0] / $theirs } @{ $self->{pairs} } : ();
    }

    return map {
        my ($ours, $theirs) = @$_;

        defined $self->{limit} ? $ours : $ours / $theirs;
    } @{ $self->{pairs} || [] };
}

sub result {
    my ($self) = @_;

    return $self->typical(0) - $self->typical(1) if $self->{difference};

    my @results = $self->results;

    return @results ? median(@results) : undef;
}

# What stands for all samples of one side.

sub typical {
    my ($self, $side) = @_;

    my @samples = map { $_->[$side] // () } @{ $self->{pairs} };

    return @samples ? median(@samples) : undef;
}

sub bar { return $_[0]{bar} // $_[0]{limit} }

sub met {
    my ($self) = @_;

    return undef unless defined $self->bar && $self->{decided};

    my $result = $self->result // return undef;

    return $result <= $self->bar ? 1 : 0;
}

sub cells {
    my ($self) = @_;

    my @cells = ($self->{what}, $self->{alternative} // '');

    return (@cells, "not measured: $self->{missing}", '', $self->bar_text, '')
        if $self->{missing};

    my $theirs = $self->typical(1);
    my $met = $self->met;

    $cells[1] .= ': ' . figure($theirs, $self->{unit}) if defined $theirs;

    return (@cells, figure($self->typical(0), $self->{unit}), $self->ratio_text,
            $self->bar_text, !defined $met ? '' : $met ? 'yes' : 'no');
}

sub ratio_text {
    my ($self) = @_;

    return figure($self->result, $self->{unit}) if $self->{difference};
    return '' if defined $self->{limit};

    my @results = $self->results or return '';
    my ($median, $from, $to) =
        map { sprintf abs($_) < 0.1 ? '%.3f' : '%.2f', $_ }
        median(@results), spread(@results);

    return $from eq $to ? $median : "$median ($from to $to)";
}

# Where all but the lowest and the highest tenth are. The least and the most of
# a hundred rounds tell what the machine did in two of them.

sub spread {
    my @sorted = sort { $a <=> $b } @_;
    my $tenth = int(@sorted / 10);

    return @sorted[$tenth, -1 - $tenth];
}

sub bar_text {
    my ($self) = @_;

    return '' unless defined $self->bar;
    return $self->{by} eq 'ns' ? 'by time' : 'by instructions'
        unless $self->{decided};

    return 'at most ' . (defined $self->{limit}
        ? figure($self->{limit}, $self->{unit})
        : sprintf '%.3g', $self->{bar});
}

sub figure {
    my ($value, $unit) = @_;

    return thousands(sprintf '%.0f', $value) . ' instructions'
        if $unit eq 'instructions';
    return sprintf '%.2f µs', $value / 1000 if $unit eq 'ns';
    return sprintf '%.2f ms', $value / 1000 if $unit eq 'us';
    return sprintf '%.1f bytes', $value if $unit eq 'bytes';

    return thousands(sprintf '%.0f', $value) . " $unit";
}

sub thousands {
    my ($text) = @_;

    1 while $text =~ s/^(-?\d+)(\d{3})/$1,$2/;

    return $text;
}

1;

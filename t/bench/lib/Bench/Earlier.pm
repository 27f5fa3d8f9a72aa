package Bench::Earlier;

# A run beside the one whose figures a page has: whether their ratios agree.
#
#   my $earlier = Bench::Earlier->new($page, qw(time count));
#   $earlier->date                 the day the page's figures were taken
#   my ($same, @other) = $earlier->compare(time => $table);
#
# $page and $table are text. Two ratios agree when the median of each lies in
# the spread of the other; a time without a spread is not compared. compare()
# gives how many agree, and a line for each that does not.

use strict;
use warnings;

my $number = qr/-?[\d.,]+/;

sub new {
    my ($class, $page, @tables) = @_;

    my ($date) = $page =~ /^- taken on (\d{4}-\d\d-\d\d)/m;

    return bless {
        date => $date,
        rows => { map {
            my ($text) = $page =~ /<!-- begin $_ -->\n(.*?)<!-- end $_ -->/s;
            $_ => { ratios($text // '') };
        } @tables },
    }, $class;
}

sub date { return $_[0]{date} }

sub compare {
    my ($self, $name, $table) = @_;

    my $before = $self->{rows}{$name};
    my %now = ratios($table);
    my ($same, @other) = (0);

    for my $row (sort grep { $before->{$_} } keys %now) {
        my ($old, $new) = ($before->{$row}, $now{$row});

        if (within($old, $new) && within($new, $old)) {
            $same++;
        } else {
            push @other, "$row: $old->{text} then, $new->{text} now";
        }
    }

    return ($same, @other);
}

sub within {
    my ($one, $other) = @_;

    return $one->{median} >= $other->{from}
        && $one->{median} <= $other->{to};
}

# Of a table's rows, by what they measure beside what.

sub ratios {
    my ($table) = @_;

    my (%ratios, $what);

    for (split /\n/, $table) {
        my @cells = split /\s*\|\s*/;

        next unless @cells > 4 && $cells[4] =~ /^($number)(?:$|.*\()/;

        my ($median, $from, $to) = ($1, $1, $1);

        ($from, $to) = ($1, $2)
            if $cells[4] =~ /\(($number)[^\d]* to ($number)/;

        # "The same" is the same as in the row above it.

        $what = $cells[1] unless $cells[1] =~ /^the same/;

        my $row = join ', ', $what, ($cells[1] eq $what ? () : $cells[1]),
                             'beside ' . $cells[2] =~ s/: .*//r;

        $ratios{$row} = {
            text => $cells[4],
            map { tr/,//dr } median => $median, from => $from, to => $to,
        };
    }

    return %ratios;
}

1;

package Bench::Report;

# Tables of rows: printed, and put into docs/performance.md between markers.
#
#   print Bench::Report::table(@rows);
#   Bench::Report::insert('docs/performance.md', figures => $text);
#
# Markers are lines "<!-- begin NAME -->" and "<!-- end NAME -->"; what stands
# between them is replaced, the rest of the file is left as it is.

use strict;
use warnings;
use utf8;

use Carp qw(croak);
use Encode qw(decode_utf8 encode_utf8);

use Vibelock::Util qw(read_file write_file);

my @head = ('what', 'alternative', 'vibelock', 'ratio (spread)', 'bar', 'met');

sub table {
    my (@rows) = @_;

    my @lines = map { [map { decode_utf8($_) } @$_] }
                \@head, map { [$_->cells] } @rows;
    my @width = map { my $i = $_; widest(map { $_->[$i] } @lines) } 0 .. $#head;

    splice @lines, 1, 0, [map { '-' x $_ } @width];

    return encode_utf8(join '', map {
        my $line = $_;
        '| ' . join(' | ', map { sprintf '%-*s', $width[$_], $line->[$_] }
                           0 .. $#head) . " |\n"
    } @lines);
}

sub widest {
    my ($widest) = sort { $b <=> $a } map { length } @_;

    return $widest;
}

sub insert {
    my ($path, $name, $text) = @_;

    my $page = read_file($path);
    my ($begin, $end) = map { "<!-- $_ $name -->\n" } qw(begin end);

    $page =~ s/(\Q$begin\E).*?(\Q$end\E)/$1$text$2/s
        or croak "$path has no place for $name";

    write_file($path, $page);

    return;
}

1;

#!/usr/bin/perl

# Links from one document to another lead somewhere, and to a heading that is
# there.

use strict;
use warnings;
use utf8;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Test::More;

use Vibelock::Docs qw(documents);
use Vibelock::Util qw(read_file);

my $root = abs_path(dirname(__FILE__) . '/..');

# A document without its examples.

sub prose {
    my ($path) = @_;

    my $text = read_file($path);
    utf8::decode($text);

    return $text =~ s/^\s*```.*?^\s*```$//msgr;
}

# What a page that shows it makes of a heading.

sub anchors {
    my ($path) = @_;

    return map { lc s/`|\*|[^\w\s-]//gr =~ s/\s/-/gr }
           prose($path) =~ /^#+ (.*?)\s*$/mg;
}

for my $file (documents()) {
    my @broken;

    for my $link (prose("$root/$file") =~ /\]\(([^)\s]+)\)/g) {
        next if $link =~ m{^https?://};

        my ($path, $anchor) = split /#/, $link, 2;
        my $target = $path eq '' ? "$root/$file"
                                 : dirname("$root/$file") . "/$path";

        push @broken, $link
            if !-e $target
            || (defined $anchor && !grep { $_ eq $anchor } anchors($target));
    }

    is_deeply(\@broken, [], "$file: links");
}

done_testing;

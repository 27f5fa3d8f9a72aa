package Vibelock::H2::Hpack;

# HPACK (RFC 7541), as much as a test peer needs.
#
#   my $hpack = Vibelock::H2::Hpack->new;         # one for each direction
#   my $block = Vibelock::H2::Hpack::encode([':method', 'GET'], …);
#   my @pairs = $hpack->decode($block);           # [name, value], …
#
# Encoding uses literals without indexing and without Huffman coding; decoding
# takes everything but Huffman codes of bytes outside of ASCII.

use strict;
use warnings;

use Carp qw(croak);

use constant TABLE_SIZE => 4096;

# Appendix A; an entry is "name" or "name value".

my @static = ('',
    ':authority', ':method GET', ':method POST', ':path /',
    ':path /index.html', ':scheme http', ':scheme https', ':status 200',
    ':status 204', ':status 206', ':status 304', ':status 400', ':status 404',
    ':status 500', 'accept-charset', 'accept-encoding gzip, deflate',
    qw(accept-language accept-ranges accept access-control-allow-origin age
       allow authorization cache-control content-disposition content-encoding
       content-language content-length content-location content-range
       content-type cookie date etag expect expires from host if-match
       if-modified-since if-none-match if-range if-unmodified-since
       last-modified link location max-forwards proxy-authenticate
       proxy-authorization range referer refresh retry-after server set-cookie
       strict-transport-security transfer-encoding user-agent vary via
       www-authenticate));

# Appendix B is a canonical code: the symbols by length, in order, tell it.

my @symbols = (
    5  => '012aceiost',
    6  => ' %-./3456789=A_bdfghlmnpru',
    7  => ':BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz',
    8  => '&*,;XZ',
    10 => '!"()?',
    11 => '\'+|',
    12 => '#>',
    13 => "\0\$\@[]~",
    14 => '^}',
    15 => '<`{',
    19 => '\\',
);

my %huffman = huffman_codes(@symbols);

sub huffman_codes {
    my @groups = @_;

    my %codes;
    my $code = 0;
    my $previous = 5;

    while (my ($length, $characters) = splice @groups, 0, 2) {
        $code <<= $length - $previous;
        $previous = $length;

        for my $character (split //, $characters) {
            $codes{ sprintf "%0${length}b", $code++ } = $character;
        }
    }

    return %codes;
}

sub new {
    my ($class) = @_;

    return bless { dynamic => [], size => 0, limit => TABLE_SIZE }, $class;
}

sub encode {
    return join '', map {
        "\0" . string(lc $_->[0]) . string($_->[1])
    } @_;
}

sub string {
    my ($text) = @_;

    return integer(length $text, 7, 0) . $text;
}

sub integer {
    my ($n, $bits, $first) = @_;

    my $max = (1 << $bits) - 1;

    return chr($first | $n) if $n < $max;

    my $bytes = chr($first | $max);

    for ($n -= $max; $n >= 128; $n >>= 7) {
        $bytes .= chr(128 | $n & 127);
    }

    return $bytes . chr $n;
}

sub decode {
    my ($self, $block) = @_;

    my @pairs;

    while (length $block) {
        my $byte = ord $block;

        if ($byte & 0x80) {
            push @pairs, [$self->entry(take_integer(\$block, 7))];

        } elsif ($byte & 0x40) {
            my $pair = $self->take_literal(\$block, 6);
            push @pairs, $pair;
            $self->add($pair);

        } elsif ($byte & 0x20) {
            $self->{limit} = take_integer(\$block, 5);
            $self->evict;

        } else {
            push @pairs, $self->take_literal(\$block, 4);
        }
    }

    return @pairs;
}

sub take_literal {
    my ($self, $block, $bits) = @_;

    my $index = take_integer($block, $bits);
    my ($name) = $index ? $self->entry($index) : take_string($block);

    return [$name, take_string($block)];
}

sub take_integer {
    my ($block, $bits) = @_;

    my $max = (1 << $bits) - 1;
    my $n = ord(substr $$block, 0, 1, '') & $max;

    return $n if $n < $max;

    for (my $shift = 0; length $$block; $shift += 7) {
        my $byte = ord substr $$block, 0, 1, '';
        $n += ($byte & 127) << $shift;
        return $n unless $byte & 128;
    }

    croak 'HPACK: an integer without an end';
}

sub take_string {
    my ($block) = @_;

    my $coded = ord($$block) & 0x80;
    my $bytes = substr $$block, 0, take_integer($block, 7), '';

    return $coded ? huffman($bytes) : $bytes;
}

sub huffman {
    my ($bytes) = @_;

    my $text = '';
    my $code = '';

    for my $bit (split //, unpack 'B*', $bytes) {
        $code .= $bit;

        if (exists $huffman{$code}) {
            $text .= $huffman{$code};
            $code = '';
        }
    }

    croak 'HPACK: not a Huffman code of ASCII' if $code =~ /0/;

    return $text;
}

sub entry {
    my ($self, $index) = @_;

    if ($index < @static) {
        my ($name, $value) = split / /, $static[$index], 2;
        return ($name, $value // '');
    }

    my $pair = $self->{dynamic}[$index - @static]
        or croak "HPACK: no entry $index";

    return @$pair;
}

sub add {
    my ($self, $pair) = @_;

    unshift @{ $self->{dynamic} }, $pair;
    $self->{size} += 32 + length join '', @$pair;

    return $self->evict;
}

sub evict {
    my ($self) = @_;

    while ($self->{size} > $self->{limit}) {
        my $pair = pop @{ $self->{dynamic} };
        $self->{size} -= 32 + length join '', @$pair;
    }

    return;
}

1;

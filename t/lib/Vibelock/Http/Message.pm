package Vibelock::Http::Message;

# What requests and responses have in common on the wire; a base class.
#
#   $m->headers                { lowercase name => [values] }
#   $m->header('Retry-After')  the values, joined with ", "; undef if absent
#   $m->body                   decoded from its transfer coding
#   $m->complete               false where the body came short
#   $m->error                  why: 'closed', 'reset', 'timeout', 'malformed'
#   $m->json                   the body decoded; dies showing it if it is none
#
# For the two sides: parse_head, read_body, header_lines, chunk.

use strict;
use warnings;

use Carp qw(croak);
use JSON::PP ();

sub headers  { $_[0]{headers} }
sub body     { $_[0]{body} }
sub complete { $_[0]{complete} }
sub error    { $_[0]{error} }

sub header {
    my ($self, $name) = @_;

    my $values = $self->{headers}{lc $name} or return undef;

    return join ', ', @$values;
}

sub json {
    my ($self) = @_;

    my $value = eval {
        JSON::PP->new->utf8->allow_nonref->decode($self->{body});
    };

    croak 'not JSON: ' . $self->describe if $@;

    return $value;
}

# The first line and the headers.

sub parse_head {
    my ($head) = @_;

    my ($first, @lines) = split /\r?\n/, $head;
    my %headers;

    for (@lines) {
        my ($name, $value) = /^([^:]+):[ \t]*(.*?)[ \t]*$/ or next;
        push @{ $headers{lc $name} }, $value;
    }

    return ($first // '', \%headers);
}

# Reads a body as its headers say into {body}; until_close: what neither
# length nor chunks bound ends with the connection.

sub read_body {
    my ($self, $socket, $seconds, %how) = @_;

    my $coding = lc($self->header('Transfer-Encoding') // '');
    my ($length) = @{ $self->{headers}{'content-length'} || [] };

    $self->{body} = '';
    $self->{complete} = 0;

    if ($coding eq 'chunked') {
        read_chunks($self, $socket, $seconds);

    } elsif (defined $length) {
        read_length($self, $socket, $length, $seconds);

    } elsif ($how{until_close}) {
        $self->{body} = $socket->read_rest($seconds);
        $self->{complete} = $socket->error eq 'closed';

    } else {
        $self->{complete} = 1;
    }

    $self->{error} ||= $socket->error unless $self->{complete};

    return $self->{complete};
}

sub read_length {
    my ($self, $socket, $length, $seconds) = @_;

    my $body = $socket->read_exactly($length, $seconds);

    if (defined $body) {
        $self->{body} = $body;
        $self->{complete} = 1;
        return;
    }

    $self->{body} = $socket->take;

    return;
}

sub read_chunks {
    my ($self, $socket, $seconds) = @_;

    while (1) {
        my $line = $socket->read_until("\r\n", $seconds) // return;

        if ($line !~ /^([0-9a-f]+)/i) {
            $self->{error} = 'malformed';
            return;
        }

        my $size = hex $1;
        last if $size == 0;

        my $chunk = $socket->read_exactly($size + 2, $seconds);

        if (!defined $chunk) {
            $self->{body} .= substr $socket->take, 0, $size;
            return;
        }

        $self->{body} .= substr $chunk, 0, $size;
    }

    while (1) {
        my $line = $socket->read_until("\r\n", $seconds) // return;
        last if $line eq "\r\n";
    }

    $self->{complete} = 1;

    return;
}

# Headers as { name => value or [values] } or [[name, value], ...] to pairs.

sub pairs {
    my ($headers) = @_;

    return () unless $headers;
    return @$headers if ref $headers eq 'ARRAY';

    return map {
        my $name = $_;
        my $value = $headers->{$name};
        map { [$name, $_] } ref $value ? @$value : $value;
    } sort keys %$headers;
}

sub header_lines {
    return join '', map { "$_->[0]: $_->[1]\r\n" } @_;
}

sub has_header {
    my ($name, @pairs) = @_;

    return scalar grep { lc $_->[0] eq lc $name } @pairs;
}

sub chunk {
    my ($bytes) = @_;

    return sprintf("%x\r\n", length $bytes) . $bytes . "\r\n";
}

1;

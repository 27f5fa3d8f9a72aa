package Vibelock::H2::Connection;

# An HTTP/2 connection, seen from either end: frames, streams, windows.  The
# base of Vibelock::H2 (a client) and of Vibelock::Grpc (a server).
#
#   my $h = Vibelock::H2::Connection->new($socket);
#
#   $h->send_frame($type, $flags, $stream, $payload)
#   $h->send_headers($stream, \@pairs, end => 1)
#   $h->send_data($stream, $bytes, end => 1)     as the peer's windows allow
#   $h->reset_stream($stream, $code)             RST_STREAM, default CANCEL
#   $h->ping                    true once the peer has answered: all that was
#                               sent before has been read
#   $h->goaway($last, $code)
#   $h->pump($condition, $limit)                 reads frames until it is true
#
# A stream, $h->stream($id), is a hash:
#
#   headers  [[name, value], …] or undef    trailers  the same
#   body     what has come                  ended     END_STREAM came
#   reset    the code of a RST_STREAM, or undef

use strict;
use warnings;

use Vibelock::H2::Hpack;
use Vibelock::Util qw(limit now);

use constant {
    DATA => 0, HEADERS => 1, RST_STREAM => 3, SETTINGS => 4, PING => 6,
    GOAWAY => 7, WINDOW_UPDATE => 8, CONTINUATION => 9,

    END_STREAM => 1, ACK => 1, END_HEADERS => 4, PADDED => 8, PRIORITY => 32,

    INITIAL_WINDOW_SIZE => 4,
    LARGEST_WINDOW => 0x7fffffff,
    FRAME => 16384,

    CANCEL => 8,
};

use constant PREFACE => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

sub new {
    my ($class, $socket) = @_;

    return bless {
        socket  => $socket,
        streams => {},
        hpack   => Vibelock::H2::Hpack->new,
        initial => 65535,       # the peer's INITIAL_WINDOW_SIZE
        window  => 65535,       # what we may send on the whole connection
        pongs   => 0,
        goaway  => undef,
    }, $class;
}

sub socket { $_[0]{socket} }

sub stream {
    my ($self, $id) = @_;

    return $self->{streams}{$id} //= {
        id     => $id,
        body   => '',
        ended  => 0,
        window => $self->{initial},
    };
}

# Our SETTINGS, and windows that never close.

sub send_settings {
    my ($self) = @_;

    $self->send_frame(SETTINGS, 0, 0,
                      pack 'nN', INITIAL_WINDOW_SIZE, LARGEST_WINDOW);

    return $self->send_frame(WINDOW_UPDATE, 0, 0,
                             pack 'N', LARGEST_WINDOW - 65535);
}

sub send_frame {
    my ($self, $type, $flags, $stream, $payload) = @_;

    return $self->{socket}->write(
        substr(pack('N', length $payload), 1)
        . pack('CCN', $type, $flags, $stream) . $payload);
}

sub send_headers {
    my ($self, $stream, $pairs, %how) = @_;

    return $self->send_frame(HEADERS,
        END_HEADERS | ($how{end} ? END_STREAM : 0), $stream,
        Vibelock::H2::Hpack::encode(@$pairs));
}

sub send_data {
    my ($self, $id, $bytes, %how) = @_;

    my $stream = $self->stream($id);

    do {
        my $size = length $bytes;
        $size = FRAME if $size > FRAME;

        if ($size) {
            $self->pump(sub {
                defined $stream->{reset}
                || ($self->{window} > 0 && $stream->{window} > 0);
            }) or return 0;

            return 0 if defined $stream->{reset};

            $size = $self->{window} if $size > $self->{window};
            $size = $stream->{window} if $size > $stream->{window};
        }

        my $part = substr $bytes, 0, $size, '';
        my $end = $how{end} && !length $bytes;

        $self->{window} -= $size;
        $stream->{window} -= $size;

        $self->send_frame(DATA, $end ? END_STREAM : 0, $id, $part)
            or return 0;

    } while length $bytes;

    return 1;
}

sub reset_stream {
    my ($self, $id, $code) = @_;

    return $self->send_frame(RST_STREAM, 0, $id, pack 'N', $code // CANCEL);
}

sub ping {
    my ($self, $seconds) = @_;

    my $pongs = $self->{pongs};

    $self->send_frame(PING, 0, 0, 'vibelock');

    return $self->pump(sub { $self->{pongs} > $pongs }, $seconds);
}

sub goaway {
    my ($self, $last, $code) = @_;

    return $self->send_frame(GOAWAY, 0, 0, pack 'NN', $last // 0, $code // 0);
}

# Nothing more will come on the stream.

sub is_over {
    my ($stream) = @_;

    return $stream->{ended} || defined $stream->{reset};
}

sub pump {
    my ($self, $condition, $seconds) = @_;

    my $deadline = now() + limit($seconds);

    while (!$condition->()) {
        $self->read_frame($deadline) or return 0;
    }

    return 1;
}

# Takes one frame in; false at the deadline or at the connection's end.  What
# has not come in full stays in the socket's buffer.

sub read_frame {
    my ($self, $deadline) = @_;

    my $socket = $self->{socket};

    while (1) {
        my $have = length $socket->{in};

        if ($have >= 9) {
            my ($high, $low, $type, $flags, $stream) =
                unpack 'nCCCN', $socket->{in};
            my $length = $high << 8 | $low;

            if ($have >= 9 + $length) {
                my $payload = substr $socket->{in}, 9, $length;
                substr $socket->{in}, 0, 9 + $length, '';
                $self->take($type, $flags, $stream & 0x7fffffff, $payload);
                return 1;
            }
        }

        $socket->fill($deadline) or return 0;
    }
}

sub take {
    my ($self, $type, $flags, $id, $payload) = @_;

    if ($type == DATA) {
        my $stream = $self->stream($id);
        $stream->{body} .= unpadded($flags, $payload);
        $stream->{ended} = 1 if $flags & END_STREAM;

    } elsif ($type == HEADERS) {
        $payload = unpadded($flags, $payload);
        substr $payload, 0, 5, '' if $flags & PRIORITY;
        $self->{block} = $payload;
        $self->{ends} = $flags & END_STREAM;
        $self->take_block($id) if $flags & END_HEADERS;

    } elsif ($type == CONTINUATION) {
        $self->{block} .= $payload;
        $self->take_block($id) if $flags & END_HEADERS;

    } elsif ($type == RST_STREAM) {
        my $stream = $self->stream($id);
        $stream->{reset} = unpack 'N', $payload;

    } elsif ($type == SETTINGS && !($flags & ACK)) {
        $self->take_settings($payload);
        $self->send_frame(SETTINGS, ACK, 0, '');

    } elsif ($type == PING) {
        $flags & ACK ? $self->{pongs}++
                     : $self->send_frame(PING, ACK, 0, $payload);

    } elsif ($type == WINDOW_UPDATE) {
        my $owner = $id ? $self->stream($id) : $self;
        $owner->{window} += unpack 'N', $payload;

    } elsif ($type == GOAWAY) {
        $self->{goaway} = unpack 'x4N', $payload;
    }

    return;
}

sub take_block {
    my ($self, $id) = @_;

    my $stream = $self->stream($id);
    my @pairs = $self->{hpack}->decode(delete $self->{block});

    # Informational responses are passed over.
    if (!$self->{ends} && grep { "@$_" =~ /^:status 1/ } @pairs) {
        return;
    }

    $stream->{ $stream->{headers} ? 'trailers' : 'headers' } = \@pairs;
    $stream->{ended} = 1 if $self->{ends};

    return;
}

sub take_settings {
    my ($self, $payload) = @_;

    my %settings = unpack '(nN)*', $payload;
    my $initial = $settings{ +INITIAL_WINDOW_SIZE } // return;

    $_->{window} += $initial - $self->{initial}
        for values %{ $self->{streams} };
    $self->{initial} = $initial;

    return;
}

sub unpadded {
    my ($flags, $payload) = @_;

    return $payload unless $flags & PADDED;

    my $padding = ord substr $payload, 0, 1, '';

    return substr $payload, 0, length($payload) - $padding;
}

1;

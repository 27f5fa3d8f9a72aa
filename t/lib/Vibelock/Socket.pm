package Vibelock::Socket;

# A connection with a read buffer and limits, for either side of it.
#
#   my $s = Vibelock::Socket->connect(port => 8080);   # host => '127.0.0.1'
#   my $s = Vibelock::Socket->connect(path => '/run/x.sock');
#   my $s = Vibelock::Socket->adopt($accepted_handle);
#
#   $s->write($bytes)            true if all of it was taken; reads what comes
#                                meanwhile, so that two peers never wait for
#                                each other with full buffers
#   $s->write_slowly($bytes)     a byte at a time, each in its own segment
#   $s->read_exactly($n)         undef if the peer ends before, or in time
#   $s->read_until("\r\n\r\n")   up to and with the text, undef as above
#   $s->read_rest                all up to the end of the connection
#   $s->await(qr/data: 3/)       true once the buffer matches; takes nothing
#   $s->available                what is in the buffer by now; takes nothing
#   $s->wait_closed($limit)      'closed' (FIN), 'reset', or '' if still open
#   $s->is_open                  false once the peer has closed
#   $s->error                    why the last read came short:
#                                'closed', 'reset', 'timeout'
#   $s->close                    FIN
#   $s->reset                    RST
#
# rcvbuf => <bytes> asks for a small receive buffer: a client that does not
# read soon makes its peer wait.

use strict;
use warnings;

use Carp qw(croak);
use Errno qw(EAGAIN EINTR);
use IO::Select;
use IO::Socket::IP;
use IO::Socket::UNIX;
use Socket qw(SOL_SOCKET SO_LINGER SO_RCVBUF IPPROTO_TCP TCP_NODELAY);
use Time::HiRes ();

use Vibelock::Util qw(limit now);

sub connect {
    my ($class, %where) = @_;

    my $handle;

    if (defined $where{path}) {
        $handle = IO::Socket::UNIX->new(Peer => $where{path})
            or croak "cannot connect to $where{path}: $!";

    } else {
        my $host = $where{host} // '127.0.0.1';

        $handle = IO::Socket::IP->new(
            PeerHost => $host,
            PeerPort => $where{port} // croak('connect needs a port'),
            Timeout  => limit(),
            $where{rcvbuf}
                ? (Sockopts => [[SOL_SOCKET, SO_RCVBUF, $where{rcvbuf}]])
                : (),
        ) or croak "cannot connect to $host:$where{port}: $@";
    }

    return $class->adopt($handle);
}

sub adopt {
    my ($class, $handle) = @_;

    binmode $handle;
    $handle->blocking(0);
    setsockopt $handle, IPPROTO_TCP, TCP_NODELAY, 1;

    return bless {
        handle => $handle,
        in     => '',
        end    => '',           # 'closed' or 'reset': nothing more to read
        broken => 0,            # nothing more can be written
        error  => '',
    }, $class;
}

sub handle { $_[0]{handle} }
sub error  { $_[0]{error} }

# Reads once.  True if something came; false at the end of the connection or
# at the deadline, told apart by {error}.

sub fill {
    my ($self, $deadline) = @_;

    while (!$self->{end}) {
        my $n = $self->{handle}
            ? sysread($self->{handle}, $self->{in}, 65536, length $self->{in})
            : 0;

        return 1 if $n;

        if (defined $n) {
            $self->{end} = 'closed';

        } elsif ($! == EAGAIN) {
            my $left = $deadline - now();

            if ($left <= 0) {
                $self->{error} = 'timeout';
                return 0;
            }

            IO::Select->new($self->{handle})->can_read($left);

        } elsif ($! != EINTR) {
            $self->{end} = 'reset';
        }
    }

    $self->{error} = $self->{end};

    return 0;
}

sub write {
    my ($self, $bytes) = @_;

    my $offset = 0;
    my $deadline = now() + limit();

    while ($offset < length $bytes) {
        return 0 if $self->{broken} || !$self->{handle};

        my $n = syswrite $self->{handle}, $bytes, 262144, $offset;

        if (defined $n) {
            $offset += $n;
            $deadline = now() + limit();
            next;
        }

        next if $! == EINTR;

        if ($! != EAGAIN) {
            $self->{broken} = 1;
            return 0;
        }

        my $left = $deadline - now();
        if ($left <= 0) {
            $self->{error} = 'timeout';
            return 0;
        }

        my $write = IO::Select->new($self->{handle});
        my $read = $self->{end} ? undef : $write;
        my ($readable) = IO::Select::select($read, $write, undef, $left);

        $self->fill(now()) if $readable && @$readable;
    }

    return 1;
}

sub write_slowly {
    my ($self, $bytes) = @_;

    for my $byte (split //, $bytes) {
        $self->write($byte) or return 0;
        Time::HiRes::sleep(0.0005);
    }

    return 1;
}

sub read_exactly {
    my ($self, $n, $seconds) = @_;

    my $deadline = now() + limit($seconds);

    while (length $self->{in} < $n) {
        $self->fill($deadline) or return undef;
    }

    return substr $self->{in}, 0, $n, '';
}

sub read_until {
    my ($self, $text, $seconds) = @_;

    my $deadline = now() + limit($seconds);
    my $from = 0;

    while (1) {
        my $at = index $self->{in}, $text, $from;

        return substr $self->{in}, 0, $at + length $text, '' if $at >= 0;

        $from = length($self->{in}) - length($text) + 1;
        $from = 0 if $from < 0;
        $self->fill($deadline) or return undef;
    }
}

sub read_rest {
    my ($self, $seconds) = @_;

    my $deadline = now() + limit($seconds);

    1 while $self->fill($deadline);

    return $self->take;
}

sub await {
    my ($self, $pattern, $seconds) = @_;

    my $deadline = now() + limit($seconds);

    while ($self->{in} !~ $pattern) {
        $self->fill($deadline) or return 0;
    }

    return 1;
}

# What is left in the buffer, taken.

sub take {
    my ($self) = @_;

    my $rest = $self->{in};
    $self->{in} = '';

    return $rest;
}

sub available {
    my ($self) = @_;

    1 while $self->fill(now());

    return $self->{in};
}

sub wait_closed {
    my ($self, $seconds) = @_;

    my $deadline = now() + limit($seconds);

    1 while $self->fill($deadline);

    return $self->{end};
}

sub is_open {
    my ($self) = @_;

    $self->available;

    return !$self->{end};
}

# What has come is read before the close: the kernel would answer unread bytes
# with a RST in place of a FIN.

sub close {
    my ($self) = @_;

    $self->{handle} or return;
    $self->available;
    CORE::close(delete $self->{handle});
    $self->{end} ||= 'closed';

    return;
}

sub reset {
    my ($self) = @_;

    $self->{handle} or return;
    setsockopt $self->{handle}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
    CORE::close(delete $self->{handle});
    $self->{end} ||= 'closed';

    return;
}

1;

package Vibelock::Http::Connection;

# A client's connection: requests go out and responses come in when the test
# says so.  A Vibelock::Socket, so also write, await, wait_closed, close,
# reset…
#
#   my $c = Vibelock::Http::Connection->connect(port => $port);
#
#   $c->send_raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n");   # any bytes
#   $c->send_request('POST', '/x', %options);     # as in Vibelock::Http
#   $c->send_request('GET', '/y');                # pipelined
#   my $r = $c->read_response;                    # the first one's
#   my $r = $c->read_response(method => 'HEAD');  # after send_raw
#
#   my $r = $c->read_head;                        # status and headers now,
#   $c->await(qr/data: done/);                    # what has come of the body,
#   $c->read_body($r);                            # all of it
#
#   my $r = $c->response;                         # read_response, once
#   $c->answered                                  # true if anything came yet
#   $c->abort                                     # FIN, unread
#
# A body that does not fit into the socket's buffer is written on by a child
# process where background => 1 is given (http_async does), so that the test
# can go on.

use strict;
use warnings;

use parent qw(-norequire Vibelock::Socket);

use JSON::PP ();

use Vibelock::Http::Message;
use Vibelock::Http::Response;
use Vibelock::Process qw(fork_child end_group);
use Vibelock::Socket;

use constant BACKGROUND_FROM => 65536;

sub send_raw { my $self = shift; return $self->write(@_) }

sub send_request {
    my ($self, $method, $uri, %how) = @_;

    my ($head, $body) = build($method, $uri, %how);

    push @{ $self->{methods} }, $method;

    if ($how{expect}) {
        $self->write($head) or return 0;
        $self->await(qr{^HTTP/1\.. \d{3} .*?\r\n\r\n}s) or return 0;
        return 1 if $self->{in} !~ m{^HTTP/1\.. 100 };
        return $self->write($body);
    }

    if ($how{slowly}) {
        return $self->write_slowly($head . $body);
    }

    if ($how{background} && length $body > BACKGROUND_FROM) {
        $self->{writer} = fork_child(
            sub { $self->write($head . $body) }, $self->handle);
        return 1;
    }

    return $self->write($head . $body);
}

sub build {
    my ($method, $uri, %how) = @_;

    my @headers = Vibelock::Http::Message::pairs($how{headers});
    my $body = $how{body};

    if (exists $how{json}) {
        $body = JSON::PP->new->utf8->canonical->encode($how{json});
        unshift @headers, ['Content-Type', 'application/json']
            unless Vibelock::Http::Message::has_header('Content-Type',
                                                       @headers);
    }

    my $has = sub { Vibelock::Http::Message::has_header($_[0], @headers) };

    unshift @headers, ['Host', 'localhost'] unless $has->('Host');
    push @headers, ['Connection', 'close']
        unless $how{keepalive} || $has->('Connection');
    push @headers, ['Expect', '100-continue'] if $how{expect};

    if ($how{chunks}) {
        push @headers, ['Transfer-Encoding', 'chunked'];
        $body = join '', map { Vibelock::Http::Message::chunk($_) }
                         @{ $how{chunks} }, '';

    } elsif (defined $body && !$has->('Content-Length')) {
        push @headers, ['Content-Length', length $body];
    }

    my $version = $how{version} // '1.1';
    my $head = "$method $uri HTTP/$version\r\n"
        . Vibelock::Http::Message::header_lines(@headers) . "\r\n";

    return ($head, $body // '');
}

sub read_head {
    my ($self, %how) = @_;

    my $method = shift(@{ $self->{methods} }) // 'GET';
    my $r = Vibelock::Http::Response->read_head($self, $how{limit});

    $r->{method} = $how{method} // $method;

    return $r;
}

sub read_body {
    my ($self, $r, %how) = @_;

    return $r if !$r->status;

    if ($r->has_body($r->{method})) {
        $r->read_body($self, $how{limit}, until_close => 1);

    } else {
        $r->{complete} = 1;
    }

    return $r;
}

sub read_response {
    my ($self, %how) = @_;

    return $self->read_body($self->read_head(%how), %how);
}

sub response {
    my ($self, $seconds) = @_;

    return $self->{response} ||= do {
        my $r = $self->read_response(limit => $seconds);
        $self->close unless $self->{keep};
        $r;
    };
}

sub answered {
    my ($self) = @_;

    return $self->available ne '' || !$self->is_open;
}

sub abort { my $self = shift; return $self->close }

sub close {
    my ($self) = @_;

    $self->end_writer;

    return $self->SUPER::close;
}

sub reset {
    my ($self) = @_;

    $self->end_writer;

    return $self->SUPER::reset;
}

sub end_writer {
    my ($self) = @_;

    my $writer = delete $self->{writer} or return;

    end_group($writer);

    return;
}

1;

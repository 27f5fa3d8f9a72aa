package Vibelock::H2;

# An HTTP/2 client on one connection with many streams, without TLS (nginx:
# "listen 127.0.0.1:%%PORT_1%% http2;").
#
#   my $h2 = Vibelock::H2->connect(port => $t->port(1));
#
#   my $one = $h2->request(POST => '/exec', json => { timeout => 5 });
#   my $two = $h2->request(POST => '/exec', headers => { 'X-Api-Key' => 'k' },
#                          end => 0);         # its body comes later
#   $h2->send_data($two, 'abc');
#   $h2->send_data($two, 'def', end => 1);
#
#   $h2->reset_stream($one);                  # and the others go on
#   my $r = $h2->response($two);              # a Vibelock::Http::Response
#   my $r = $h2->head($two);                  # once its headers are there
#   $h2->wait_reset($two)                     # the code, if nginx reset it
#   $h2->ping                                 # nginx has read all we sent
#   $h2->close;  $h2->abort;                  # FIN; RST of the connection
#
# Options of request: headers, body, json as in Vibelock::Http.  The rest is in
# Vibelock::H2::Connection.

use strict;
use warnings;

use parent qw(-norequire Vibelock::H2::Connection);

use JSON::PP ();

use Vibelock::H2::Connection;
use Vibelock::Http::Message;
use Vibelock::Http::Response;
use Vibelock::Socket;

sub connect {
    my ($class, %how) = @_;

    my $socket = Vibelock::Socket->connect(%how);
    my $self = $class->new($socket);

    $self->{next} = 1;
    $socket->write($self->PREFACE);
    $self->send_settings;

    return $self;
}

sub request {
    my ($self, $method, $uri, %how) = @_;

    my @headers = Vibelock::Http::Message::pairs($how{headers});
    my $body = $how{body};

    if (exists $how{json}) {
        $body = JSON::PP->new->utf8->canonical->encode($how{json});
        unshift @headers, ['content-type', 'application/json'];
    }

    my $id = $self->{next};
    $self->{next} += 2;

    my $end = $how{end} // 1;

    unshift @headers, [':method', $method], [':scheme', 'http'],
                      [':path', $uri], [':authority', 'localhost'];
    push @headers, ['content-length', length $body]
        if defined $body && $end
           && !Vibelock::Http::Message::has_header('content-length', @headers);

    $self->send_headers($id, \@headers, end => $end && !length($body // ''));
    $self->send_data($id, $body, end => $end) if length($body // '');

    return $id;
}

sub head {
    my ($self, $id, $seconds) = @_;

    my $stream = $self->stream($id);

    $self->pump(sub {
        $stream->{headers} || Vibelock::H2::Connection::is_over($stream)
    }, $seconds);

    return $self->make_response($stream);
}

sub response {
    my ($self, $id, $seconds) = @_;

    my $stream = $self->stream($id);

    $self->wait_over($stream, $seconds);

    return $self->make_response($stream);
}

sub wait_reset {
    my ($self, $id, $seconds) = @_;

    my $stream = $self->stream($id);

    $self->wait_over($stream, $seconds);

    return $stream->{reset};
}

sub wait_over {
    my ($self, $stream, $seconds) = @_;

    return $self->pump(
        sub { Vibelock::H2::Connection::is_over($stream) }, $seconds);
}

sub make_response {
    my ($self, $stream) = @_;

    my %headers;
    push @{ $headers{ $_->[0] } }, $_->[1] for @{ $stream->{headers} || [] };

    my $complete = $stream->{ended};

    return Vibelock::Http::Response->new(
        version  => '2',
        status   => (delete($headers{':status'}) || [0])->[0],
        headers  => \%headers,
        body     => $stream->{body},
        complete => $complete,
        error    => $complete ? ''
                  : defined $stream->{reset} ? 'reset' : $self->socket->error,
    );
}

sub close { $_[0]->socket->close }
sub abort { $_[0]->socket->reset }

1;

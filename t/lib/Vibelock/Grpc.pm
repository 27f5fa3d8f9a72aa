package Vibelock::Grpc;

# A gRPC (HTTP/2) server that the test plays step by step, in the manner of
# Vibelock::Upstream (accept_request, pending, stop_listening, …).
#
#   my $up = Vibelock::Grpc->new;
#   $t->set(UPSTREAM => $up->port);  # grpc_pass grpc://127.0.0.1:%%UPSTREAM%%
#   my $x = $up->accept_request;
#   $x->method  $x->uri  $x->header('X-Api-Key')  $x->body
#   $x->respond(200, { 'X-A' => 'b' }, 'body');        # and trailers
#   $x->send_head(200, { … });                         # or in steps
#   $x->send_data('part');
#   $x->send_trailers({ 'grpc-status' => 0 });         # ends the stream
#   $x->end;                                           # ends it without them
#   $x->reset_stream($code);                           # RST_STREAM
#   $x->h2->goaway;
#   $x->close;  $x->reset;                             # the connection
#   $x->wait_reset                                     # nginx has reset it
#
# nginx opens one stream at a time on a connection.

use strict;
use warnings;

use parent qw(-norequire Vibelock::Upstream);

use Vibelock::Upstream;

sub exchange_class { 'Vibelock::Grpc::Exchange' }

package Vibelock::Grpc::Exchange;

use parent qw(-norequire Vibelock::Upstream::Exchange);

use Carp qw(croak);

use Vibelock::H2::Connection;
use Vibelock::Http::Message;
use Vibelock::Util qw(now);

sub h2 { $_[0]{socket}{h2} }

sub new {
    my ($class, $upstream, $socket) = @_;

    my $self = $class->SUPER::new($upstream, $socket);

    $socket->{h2} ||= Vibelock::H2::Connection->new($socket);

    return $self;
}

# A stream that no exchange has taken yet.

sub next_stream {
    my ($self) = @_;

    my $streams = $self->h2->{streams};
    my ($id) = sort { $a <=> $b }
               grep { $streams->{$_}{headers} && !$streams->{$_}{taken} }
               keys %$streams;

    return $id ? $streams->{$id} : undef;
}

sub has_next {
    my ($self) = @_;

    1 while $self->h2->read_frame(now());

    return $self->next_stream ? 1 : 0;
}

sub read_head {
    my ($self, $seconds) = @_;

    my $h2 = $self->h2;

    if (!$h2->{started}) {
        my $preface = $self->socket->read_exactly(length $h2->PREFACE,
                                                  $seconds) // '';
        croak 'no HTTP/2 preface' if $preface ne $h2->PREFACE;
        $h2->{started} = 1;
        $h2->send_settings;
    }

    $h2->pump(sub { $self->next_stream }, $seconds)
        or croak 'no gRPC request: ' . $self->socket->error;

    my $stream = $self->{stream} = $self->next_stream;

    $stream->{taken} = 1;
    push @{ $self->{headers}{ $_->[0] } }, $_->[1]
        for @{ $stream->{headers} };

    $self->{method} = $self->header(':method');
    $self->{uri} = $self->header(':path');
    $self->{version} = '2';

    return $self;
}

sub read_body {
    my ($self, $seconds) = @_;

    my $stream = $self->{stream};

    $self->h2->pump(
        sub { $stream->{ended} || defined $stream->{reset} }, $seconds);

    $self->{body} = $stream->{body};
    $self->{complete} = $stream->{ended};

    return $self->{complete};
}

sub send_head {
    my ($self, $status, $headers, %how) = @_;

    return $self->h2->send_headers($self->{stream}{id}, [
        [':status', $status],
        ['content-type', 'application/grpc'],
        Vibelock::Http::Message::pairs($headers),
    ], %how);
}

sub send_data {
    my ($self, $bytes, %how) = @_;

    return $self->h2->send_data($self->{stream}{id}, $bytes, %how);
}

sub send_trailers {
    my ($self, $headers) = @_;

    return $self->h2->send_headers($self->{stream}{id},
        [Vibelock::Http::Message::pairs($headers)], end => 1);
}

sub end { return $_[0]->send_data('', end => 1) }

sub respond {
    my ($self, $status, $headers, $body) = @_;

    my $sent = $self->send_head($status, $headers)
        && (!length($body // '') || $self->send_data($body))
        && $self->send_trailers({ 'grpc-status' => 0 });

    $self->done;

    return $sent;
}

sub reset_stream {
    my ($self, $code) = @_;

    return $self->h2->reset_stream($self->{stream}{id}, $code);
}

sub wait_reset {
    my ($self, $seconds) = @_;

    my $stream = $self->{stream};

    $self->h2->pump(sub { defined $stream->{reset} }, $seconds);

    return defined $stream->{reset};
}

1;

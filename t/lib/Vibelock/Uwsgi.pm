package Vibelock::Uwsgi;

# A uwsgi server that the test plays step by step, in the manner of
# Vibelock::Upstream (accept_request, pending, stop_listening, …).
#
#   my $up = Vibelock::Uwsgi->new;
#   $t->set(UPSTREAM => $up->port);      # uwsgi_pass 127.0.0.1:%%UPSTREAM%%
#   my $x = $up->accept_request;
#   $x->method  $x->uri  $x->header('X-Api-Key')  $x->body  $x->param('…')
#   $x->respond(200, { 'X-A' => 'b' }, 'body');        # and closes
#   $x->send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart");
#   $x->close;  $x->reset;
#
# nginx's uwsgi_param must pass REQUEST_METHOD, REQUEST_URI and CONTENT_LENGTH
# for method, uri and body to be there.

use strict;
use warnings;

use parent qw(-norequire Vibelock::Upstream);

use Vibelock::Upstream;

sub exchange_class { 'Vibelock::Uwsgi::Exchange' }

package Vibelock::Uwsgi::Exchange;

use parent qw(-norequire Vibelock::FastCGI::Exchange);

use Carp qw(croak);

use Vibelock::FastCGI;
use Vibelock::Http::Message;

sub read_head {
    my ($self, $seconds) = @_;

    my $socket = $self->socket;
    my $head = $socket->read_exactly(4, $seconds)
        // croak 'no uwsgi packet: ' . $socket->error;
    my (undef, $length) = unpack 'CvC', $head;
    my $bytes = $socket->read_exactly($length, $seconds)
        // croak 'no uwsgi variables: ' . $socket->error;

    $self->{params} = { unpack '(v/a)*', $bytes };
    $self->take_params;

    return $self;
}

sub read_body {
    my ($self, $seconds) = @_;

    my $length = $self->param('CONTENT_LENGTH') || 0;
    my $body = $self->socket->read_exactly($length, $seconds);

    $self->{complete} = defined $body ? 1 : 0;
    $self->{body} = $body // $self->socket->take;

    return $self->{complete};
}

sub respond {
    my ($self, $status, $headers, $body) = @_;

    $body //= '';

    my $sent = $self->send_head($status, [
        Vibelock::Http::Message::pairs($headers),
        ['Content-Length', length $body],
    ]) && $self->send($body);

    $self->close;

    return $sent;
}

1;

package Vibelock::FastCGI;

# A FastCGI responder that the test plays step by step, in the manner of
# Vibelock::Upstream (accept_request, pending, stop_listening, …).
#
#   my $up = Vibelock::FastCGI->new;
#   $t->set(UPSTREAM => $up->port);      # fastcgi_pass 127.0.0.1:%%UPSTREAM%%
#   my $x = $up->accept_request;
#   $x->method  $x->uri  $x->header('X-Api-Key')  $x->body
#   $x->param('SCRIPT_NAME')                 # any parameter
#
#   $x->respond(200, { 'X-A' => 'b' }, 'body');        # in full
#
#   $x->stdout("Status: 200\r\n\r\npart");             # or in steps
#   $x->stderr("a complaint");
#   $x->stdout('');                                    # end of the stream
#   $x->end_request;                                   # END_REQUEST
#   $x->close;  $x->reset;                             # with or without it
#
# nginx's fastcgi_param must pass REQUEST_METHOD, REQUEST_URI and
# CONTENT_LENGTH for method, uri and body to be there.

use strict;
use warnings;

use parent qw(-norequire Vibelock::Upstream);

use Vibelock::Upstream;

sub exchange_class { 'Vibelock::FastCGI::Exchange' }

package Vibelock::FastCGI::Exchange;

use parent qw(-norequire Vibelock::Upstream::Exchange);

use Carp qw(croak);

use Vibelock::Http::Message;

use constant {
    BEGIN_REQUEST => 1, END_REQUEST => 3, PARAMS => 4, STDIN_ => 5,
    STDOUT_ => 6, STDERR_ => 7,

    KEEP_CONN => 1,
};

sub param { $_[0]{params}{ $_[1] } }

sub read_record {
    my ($self, $seconds) = @_;

    my $socket = $self->socket;
    my $head = $socket->read_exactly(8, $seconds) // return;
    my (undef, $type, $id, $length, $padding) = unpack 'CCnnC', $head;
    my $rest = $socket->read_exactly($length + $padding, $seconds) // return;

    $self->{id} = $id;

    return ($type, substr $rest, 0, $length);
}

sub read_head {
    my ($self, $seconds) = @_;

    my $params = '';

    while (1) {
        my ($type, $content) = $self->read_record($seconds)
            or croak 'no FastCGI parameters: ' . $self->socket->error;

        if ($type == BEGIN_REQUEST) {
            $self->{keep} = unpack('xxC', $content) & KEEP_CONN;

        } elsif ($type == PARAMS) {
            last if $content eq '';
            $params .= $content;
        }
    }

    $self->{params} = { pairs($params) };
    $self->take_params;

    return $self;
}

# What the parameters say of the request, for uwsgi too.

sub take_params {
    my ($self) = @_;

    my $params = $self->{params};

    $self->{method} = $params->{REQUEST_METHOD} // '';
    $self->{uri} = $params->{REQUEST_URI} // '';

    for my $name (grep { /^HTTP_/ } keys %$params) {
        my $header = lc substr $name, 5;
        $header =~ tr/_/-/;
        $self->{headers}{$header} = [$params->{$name}];
    }

    return;
}

sub pairs {
    my ($bytes) = @_;

    my @pairs;

    while (length $bytes) {
        my @lengths = map {
            my $n = ord $bytes;
            $n < 128 ? ord substr $bytes, 0, 1, ''
                     : unpack('N', substr $bytes, 0, 4, '') & 0x7fffffff;
        } 1 .. 2;
        push @pairs, map { substr $bytes, 0, $_, '' } @lengths;
    }

    return @pairs;
}

sub read_body {
    my ($self, $seconds) = @_;

    $self->{body} = '';
    $self->{complete} = 0;

    while (my ($type, $content) = $self->read_record($seconds)) {
        next if $type != STDIN_;

        if ($content eq '') {
            $self->{complete} = 1;
            last;
        }

        $self->{body} .= $content;
    }

    return $self->{complete};
}

sub record {
    my ($self, $type, $content) = @_;

    return $self->send(
        pack('CCnnCC', 1, $type, $self->{id}, length $content, 0, 0)
        . $content);
}

sub stream {
    my ($self, $type, $bytes) = @_;

    return $self->record($type, '') if $bytes eq '';

    while (length $bytes) {
        $self->record($type, substr $bytes, 0, 65535, '') or return 0;
    }

    return 1;
}

sub stdout { return $_[0]->stream(STDOUT_, $_[1]) }
sub stderr { return $_[0]->stream(STDERR_, $_[1]) }

sub end_request {
    my ($self, $status) = @_;

    return $self->record(END_REQUEST, pack 'NCxxx', $status // 0, 0);
}

sub respond {
    my ($self, $status, $headers, $body) = @_;

    $self->stdout("Status: $status\r\n"
        . Vibelock::Http::Message::header_lines(
            Vibelock::Http::Message::pairs($headers))
        . "\r\n" . ($body // ''));
    $self->stdout('');

    my $sent = $self->end_request;

    $self->{keep} ? $self->done : $self->close;

    return $sent;
}

1;

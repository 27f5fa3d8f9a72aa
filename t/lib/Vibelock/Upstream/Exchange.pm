package Vibelock::Upstream::Exchange;

# One request at an upstream and its answer; the methods are described in
# Vibelock::Upstream.

use strict;
use warnings;

use parent qw(-norequire Vibelock::Http::Message);

use Carp qw(croak);

use Vibelock::Http::Message;

sub new {
    my ($class, $upstream, $socket) = @_;

    return bless {
        upstream => $upstream,
        socket   => $socket,
        method   => '',
        uri      => '',
        version  => '',
        headers  => {},
        body     => '',
        complete => 0,
        error    => '',
    }, $class;
}

sub socket  { $_[0]{socket} }
sub method  { $_[0]{method} }
sub uri     { $_[0]{uri} }
sub version { $_[0]{version} }

sub read_head {
    my ($self, $seconds) = @_;

    my $head = $self->{socket}->read_until("\r\n\r\n", $seconds)
        // croak 'no request head: ' . $self->{socket}->error;

    (my $first, $self->{headers}) = Vibelock::Http::Message::parse_head($head);

    (@$self{qw(method uri version)}) = $first =~ m{^(\S+) (\S+) HTTP/(\S+)$}
        or croak "not a request line: $first";

    return $self;
}

sub read_body {
    my ($self, $seconds) = @_;

    return $self->Vibelock::Http::Message::read_body($self->{socket}, $seconds);
}

sub describe {
    my ($self) = @_;

    return "$self->{method} $self->{uri} " . substr $self->{body}, 0, 300;
}

sub send { my $self = shift; return $self->{socket}->write(@_) }

sub send_head {
    my ($self, $status, $headers) = @_;

    return $self->send("HTTP/1.1 $status X\r\n"
        . Vibelock::Http::Message::header_lines(
            Vibelock::Http::Message::pairs($headers))
        . "\r\n");
}

sub send_chunk {
    my ($self, $bytes) = @_;

    return $self->send(Vibelock::Http::Message::chunk($bytes));
}

sub respond {
    my ($self, $status, $headers, $body) = @_;

    my @headers = Vibelock::Http::Message::pairs($headers);
    my $close = $self->{version} eq '1.0'
        || lc($self->header('Connection') // '') eq 'close';

    $body //= '';

    if (ref $body) {
        push @headers, ['Transfer-Encoding', 'chunked'];
        $body = join '', map { Vibelock::Http::Message::chunk($_) } @$body, '';

    } elsif ($status !~ /^(?:1..|204|304)$/) {
        push @headers, ['Content-Length', length $body];
    }

    push @headers, ['Connection', 'close'] if $close;

    $body = '' if $self->{method} eq 'HEAD';

    my $sent = $self->send("HTTP/1.1 $status X\r\n"
        . Vibelock::Http::Message::header_lines(@headers) . "\r\n" . $body);

    $close ? $self->close : $self->done;

    return $sent;
}

sub done {
    my ($self) = @_;

    $self->{upstream}->keep($self);

    return;
}

# True if the connection has brought another request.

sub has_next { $_[0]{socket}->available ne '' }

sub close       { $_[0]{socket}->close }
sub reset       { $_[0]{socket}->reset }
sub is_open     { $_[0]{socket}->is_open }
sub wait_closed { my $self = shift; return $self->{socket}->wait_closed(@_) }

1;

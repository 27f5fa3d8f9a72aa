package Vibelock::Upstream;

# An HTTP upstream that the test itself plays, step by step: nginx connects to
# a socket that listens in the test's own process, and nothing happens there
# until the test takes the next step.  (For many requests at once, see
# Vibelock::Upstream::Auto.)
#
#   my $up = Vibelock::Upstream->new;          # listens on 127.0.0.1
#   $t->set(UPSTREAM => $up->port);   # proxy_pass http://127.0.0.1:%%UPSTREAM%%
#
#   my $pending = $t->async(POST => '/exec');
#   my $x = $up->accept_request;               # waits for it, body and all
#   is($x->uri, '/exec');
#   $x->respond(200, { 'Content-Type' => 'text/plain' }, 'done');
#   is($pending->response->status, 200);
#
#   $up->accept_request(body => 0)     the head alone; later $x->read_body
#   $up->accept_connection             not even that; later $x->read_head
#   $up->pending                       true if nginx has connected or sent a
#                                      request that was not accepted yet
#   $up->stop_listening                connections are refused
#   $up->listen                        and taken again, on the same port
#   $up->port  $up->address            address: 127.0.0.1:port
#
#   my $up = Vibelock::Upstream->unreachable;
#                                      a port where connecting never ends
#
# An exchange ($x) is a Vibelock::Http::Message (headers, body, json, …) with
#
#   $x->method  $x->uri  $x->version
#   $x->respond($status, $headers, $body)      in full, with Content-Length
#   $x->respond(200, {}, ['a', 'b'])           chunked
#   $x->send($bytes)                           anything
#   $x->send_head($status, $headers)           status line and headers as given
#   $x->send_chunk($bytes)                     '' is the last one
#   $x->done                                   a raw response is over: the
#                                              connection may bring another
#   $x->close   $x->reset                      FIN; RST
#   $x->wait_closed                            'closed' or 'reset' when nginx
#                                              has given up, '' if it has not
#   $x->is_open
#   $x->socket                                 the Vibelock::Socket
#
# After respond, the connection is closed where HTTP/1.0 or "Connection: close"
# asked for it, else kept: accept_request takes the next request from there too.

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use Socket qw(INADDR_LOOPBACK pack_sockaddr_in);

use Vibelock::Port qw(free_port);
use Vibelock::Socket;
use Vibelock::Upstream::Exchange;
use Vibelock::Util qw(limit now);

sub new {
    my ($class, %how) = @_;

    my $self = bless {
        port => $how{port} || free_port(),
        idle => [],
    }, $class;

    return $self->listen;
}

# A queue that is full, and from which nobody accepts: the kernel drops what
# comes then, as a dead host would.

sub unreachable {
    my ($class) = @_;

    my $self = bless { port => free_port(), idle => [] }, $class;

    $self->listen(0);

    for (1 .. 16) {
        my $socket = IO::Socket::INET->new(Proto => 'tcp', Blocking => 0);

        connect $socket, pack_sockaddr_in($self->{port}, INADDR_LOOPBACK);
        push @{ $self->{queue} }, $socket;

        return $self unless IO::Select->new($socket)->can_write(0.1);
    }

    croak "connections to port $self->{port} do not stall";
}

sub port    { $_[0]{port} }
sub address { '127.0.0.1:' . $_[0]{port} }

sub listen {
    my ($self, $backlog) = @_;

    $self->{listener} ||= IO::Socket::INET->new(
        LocalAddr => '127.0.0.1',
        LocalPort => $self->{port},
        Proto     => 'tcp',
        ReuseAddr => 1,
        Listen    => $backlog // 511,
    ) or croak "cannot listen on port $self->{port}: $!";

    return $self;
}

sub stop_listening {
    my ($self) = @_;

    my $listener = delete $self->{listener};
    close $listener if $listener;

    return;
}

# What an accepted connection speaks; protocols other than HTTP override it.

sub exchange_class { 'Vibelock::Upstream::Exchange' }

# A kept connection that has brought another request.  Each is read once, and
# judged by what is in its buffer then: what comes later wakes the select.

sub next_on_idle {
    my ($self) = @_;

    for my $exchange (@{ $self->{idle} }) {
        return $exchange if $exchange->has_next;
        $exchange->close if $exchange->socket->{end};
    }

    @{ $self->{idle} } = grep { $_->socket->handle } @{ $self->{idle} };

    return undef;
}

sub ready {
    my ($self, $seconds) = @_;

    my $select = IO::Select->new($self->{listener} || (),
        map { $_->socket->handle } @{ $self->{idle} });

    return $select->can_read($seconds);
}

sub pending {
    my ($self) = @_;

    return 1 if $self->next_on_idle;

    return $self->{listener}
           && IO::Select->new($self->{listener})->can_read(0) ? 1 : 0;
}

sub accept_connection {
    my ($self, %how) = @_;

    my $deadline = now() + limit($how{limit});

    while (1) {
        if (my $idle = $self->next_on_idle) {
            @{ $self->{idle} } = grep { $_ != $idle } @{ $self->{idle} };
            return $self->exchange_class->new($self, $idle->socket);
        }

        my $left = $deadline - now();
        croak 'no request came to the upstream in time' if $left <= 0;

        my @ready = $self->ready($left);
        my $listener = $self->{listener} or next;

        if (grep { $_ == $listener } @ready) {
            my $handle = $listener->accept or next;

            return $self->exchange_class->new(
                $self, Vibelock::Socket->adopt($handle));
        }
    }
}

sub accept_request {
    my ($self, %how) = @_;

    my $exchange = $self->accept_connection(%how);

    $exchange->read_head($how{limit});
    $exchange->read_body($how{limit}) unless exists $how{body} && !$how{body};

    return $exchange;
}

sub keep {
    my ($self, $exchange) = @_;

    push @{ $self->{idle} }, $exchange;

    return;
}

1;

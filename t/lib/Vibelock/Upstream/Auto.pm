package Vibelock::Upstream::Auto;

# An HTTP upstream in a process of its own, which answers by itself: for tests
# with many requests at once.  (To step one request, see Vibelock::Upstream.)
#
#   my $up = Vibelock::Upstream::Auto->start;
#   $t->set(UPSTREAM => $up->port);
#
# What it does is asked for by the request, in the header X-Upstream or, without
# it, in the end of the path:
#
#   ok            200 {"ok":true}
#   echo          200, the request as JSON: method, uri, headers, body
#   status/503    that status, with a JSON body
#   bytes/100000  200 and so many bytes
#   stream/10     200 and so many chunks, "data: 1\n\n" …
#   running       200 with "X-Operation-Running: 1"
#   park/NAME     200, once the test says $up->release('NAME')
#   silent        nothing at all
#   cut           a head with Content-Length: 100, ten bytes, and a close
#   close         a close without a word
#   reset         a RST
#
# and echo where neither says any of this.  A handler replaces all that; it runs
# in the upstream's process:
#
#   Vibelock::Upstream::Auto->start(handler => sub {
#       my ($request) = @_;                  # { method, uri, headers, body }
#       return (200, { 'X-A' => 'b' }, 'body');
#   });
#
#   $up->requests           what has come so far: ({ method, uri, headers,
#                           body_length, what, n }, …)
#   $up->wait_requests($n)  until there are so many
#   $up->gone               how many went away before their answer
#   $up->stop               refuses connections from then on
#   $up->restart            on the same port

use strict;
use warnings;

use parent qw(-norequire Vibelock::Child);

use Carp qw(croak);
use Errno qw(EAGAIN EINTR);
use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use Socket qw(SOL_SOCKET SO_LINGER);

use Vibelock::Child;
use Vibelock::Http::Message;
use Vibelock::Port qw(free_port);
use Vibelock::Process qw(fork_child);
use Vibelock::Util qw(wait_for read_file append_file write_file);

my $json = JSON::PP->new->utf8->canonical;

sub start {
    my ($class, %how) = @_;

    my $self = bless {
        port    => $how{port} || free_port(),
        handler => $how{handler},
        dir     => File::Temp->newdir('vibelock-XXXXXXXX', TMPDIR => 1),
    }, $class;

    write_file("$self->{dir}/$_", '') for qw(requests gone);

    return $self->restart;
}

sub port { $_[0]{port} }

sub restart {
    my ($self) = @_;

    my $listener = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1',
        LocalPort => $self->{port},
        Proto     => 'tcp',
        ReuseAddr => 1,
        Listen    => 511,
        Blocking  => 0,
    ) or croak "cannot listen on port $self->{port}: $!";

    $self->{pid} = fork_child(sub { $self->serve($listener) }, $listener);

    return $self;
}

sub release {
    my ($self, $name) = @_;

    return write_file("$self->{dir}/park-$name", '');
}

sub requests {
    my ($self) = @_;

    return map { $json->decode($_) }
           split /\n/, read_file("$self->{dir}/requests");
}

sub wait_requests {
    my ($self, $n, $seconds) = @_;

    return wait_for { $self->requests >= $n } $seconds;
}

sub gone {
    my ($self) = @_;

    return -s "$self->{dir}/gone";
}

# The server process

sub serve {
    my ($self, $listener) = @_;

    my %connections;

    while (1) {
        my ($readers, $writers) = (IO::Select->new($listener),
                                   IO::Select->new);
        my $parked = 0;

        for my $c (values %connections) {
            $readers->add($c->{handle});
            $writers->add($c->{handle}) if $c->{out} ne '';
            $parked ||= defined $c->{park};
        }

        my ($readable, $writable) = IO::Select::select(
            $readers, $writers, undef, $parked ? 0.01 : undef);

        for my $handle (@{ $readable || [] }) {
            if ($handle == $listener) {
                my $new = $listener->accept or next;
                $new->blocking(0);
                $connections{$new} = { handle => $new, in => '', out => '' };
                next;
            }

            $self->receive($connections{$handle});
        }

        for my $c (values %connections) {
            if (defined $c->{park} && -e "$self->{dir}/park-$c->{park}") {
                delete $c->{park};
                $c->{out} .= $self->answer($c->{request}, 200, {},
                                           '{"ok":true}');
                $c->{busy} = 0;
            }

            $self->next_request($c);
            transmit($c);

            if ($c->{closed}) {
                append_file("$self->{dir}/gone", '.') if $c->{busy};
                delete $connections{ $c->{handle} };
                close $c->{handle};
            }
        }
    }
}

sub receive {
    my ($self, $c) = @_;

    my $n = sysread $c->{handle}, $c->{in}, 65536, length $c->{in};

    return if $n || (!defined $n && ($! == EAGAIN || $! == EINTR));

    $c->{closed} = 1;

    return;
}

sub transmit {
    my ($c) = @_;

    if ($c->{out} ne '') {
        my $n = syswrite $c->{handle}, $c->{out};

        if (defined $n) {
            substr $c->{out}, 0, $n, '';

        } elsif ($! != EAGAIN && $! != EINTR) {
            $c->{closed} = 1;
        }
    }

    $c->{closed} = 1 if $c->{last} && !$c->{busy} && $c->{out} eq '';

    return;
}

sub next_request {
    my ($self, $c) = @_;

    return if $c->{busy} || $c->{last} || $c->{closed};

    my $request = take_request($c) or return;

    my $what = $request->{headers}{'x-upstream'}[0]
        // ($request->{uri} =~ m{/((?:ok|echo|status|bytes|stream|running|park
                                    |silent|cut|close|reset)
                                  (?:/[\w-]+)?)(?:\?.*)?$}x ? $1 : 'echo');

    append_file("$self->{dir}/requests", $json->encode({
        method      => $request->{method},
        uri         => $request->{uri},
        headers     => $request->{headers},
        body_length => length $request->{body},
        what        => $what,
        n           => ++$self->{n},
    }) . "\n");

    $c->{request} = $request;
    $c->{last} = 1 if $request->{close};

    return $self->perform($c, $what);
}

sub perform {
    my ($self, $c, $what) = @_;

    my $request = $c->{request};
    my ($verb, $argument) = split m{/}, $what, 2;

    if ($self->{handler}) {
        $c->{out} .= $self->answer($request, $self->{handler}->($request));

    } elsif ($verb eq 'park' || $verb eq 'silent') {
        $c->{park} = $argument // '' if $verb eq 'park';
        $c->{busy} = 1;
        $c->{last} = 0 if $verb eq 'silent';

    } elsif ($verb eq 'cut') {
        $c->{out} .= "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
                     . '0123456789';
        $c->{last} = 1;

    } elsif ($verb eq 'close') {
        $c->{last} = 1;

    } elsif ($verb eq 'reset') {
        setsockopt $c->{handle}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
        $c->{closed} = 1;

    } else {
        $c->{out} .= $self->answer($request,
                                   response($request, $verb, $argument));
    }

    return;
}

sub response {
    my ($request, $verb, $argument) = @_;

    my %type = ('Content-Type' => 'application/json');

    if ($verb eq 'status') {
        return ($argument, \%type, $json->encode({ status => $argument + 0 }));
    }

    if ($verb eq 'bytes') {
        return (200, {}, 'x' x $argument);
    }

    if ($verb eq 'stream') {
        return (200, { 'Content-Type' => 'text/event-stream' },
                [map { "data: $_\n\n" } 1 .. $argument]);
    }

    if ($verb eq 'running') {
        return (200, { %type, 'X-Operation-Running' => 1 }, '{"ok":true}');
    }

    if ($verb eq 'ok') {
        return (200, \%type, '{"ok":true}');
    }

    return (200, \%type, $json->encode({
        method  => $request->{method},
        uri     => $request->{uri},
        headers => {
            map { $_ => join ', ', @{ $request->{headers}{$_} } }
            keys %{ $request->{headers} }
        },
        body    => $request->{body},
    }));
}

sub answer {
    my ($self, $request, $status, $headers, $body) = @_;

    my @headers = Vibelock::Http::Message::pairs($headers);

    $body //= '';

    if (ref $body && $request->{version} eq '1.0') {
        $body = join '', @$body;
    }

    if (ref $body) {
        push @headers, ['Transfer-Encoding', 'chunked'];
        $body = join '', map { Vibelock::Http::Message::chunk($_) } @$body, '';

    } elsif ($status !~ /^(?:1..|204|304)$/) {
        push @headers, ['Content-Length', length $body];
    }

    push @headers, ['Connection', 'close'] if $request->{close};

    return "HTTP/1.1 $status X\r\n"
        . Vibelock::Http::Message::header_lines(@headers) . "\r\n"
        . ($request->{method} eq 'HEAD' ? '' : $body);
}

# A whole request out of the buffer, or nothing yet.

sub take_request {
    my ($c) = @_;

    my $at = index $c->{in}, "\r\n\r\n";
    return if $at < 0;

    my ($first, $headers) =
        Vibelock::Http::Message::parse_head(substr $c->{in}, 0, $at);
    my ($method, $uri, $version) = $first =~ m{^(\S+) (\S+) HTTP/(\S+)};
    my $body = '';
    my $end = $at + 4;

    if (($headers->{'transfer-encoding'} || [''])->[0] eq 'chunked') {
        while (1) {
            my $line = index $c->{in}, "\r\n", $end;
            return if $line < 0;

            my $size = hex substr $c->{in}, $end, $line - $end;
            $end = $line + 2 + $size + 2;
            return if length $c->{in} < $end;

            last if $size == 0;
            $body .= substr $c->{in}, $line + 2, $size;
        }

    } elsif (my $length = ($headers->{'content-length'} || [0])->[0]) {
        return if length $c->{in} < $end + $length;
        $body = substr $c->{in}, $end, $length;
        $end += $length;
    }

    substr $c->{in}, 0, $end, '';

    return {
        method  => $method,
        uri     => $uri,
        version => $version,
        headers => $headers,
        body    => $body,
        close   => $version eq '1.0'
                   || lc(($headers->{connection} || [''])->[0]) eq 'close',
    };
}

1;

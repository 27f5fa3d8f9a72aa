package Vibelock::Proxy;

# A TCP proxy that can fall silent: the way a firewall cuts a connection off.
# It runs in a process of its own; each command is done when it returns.
#
#   my $proxy = Vibelock::Proxy->start(to => $redis->port);   # host => '…'
#   my $proxy = Vibelock::Proxy->start(to_path => $redis->path);
#   $t->set(REDIS => $proxy->port);
#
#   $proxy->stall              nothing passes, nothing is closed; connections
#                              are still accepted, and are silent as well
#   $proxy->stall('replies')   only from the server to the client
#   $proxy->stall('requests')  only from the client to the server
#   $proxy->resume             what was held back passes on
#   $proxy->trickle(16)        from the server to the client so many bytes at a
#                              time, a hundred times a second at most
#   $proxy->drop               closes all connections (FIN)
#   $proxy->reset              resets them (RST)
#   $proxy->forget             closes nothing, but what comes on the connections
#                              there are is lost for good, also after resume
#   $proxy->connections        how many are open
#   $proxy->accepted           how many there have ever been
#   $proxy->to($port)          connections from here on go there
#   $proxy->stop               refuses connections from then on

use strict;
use warnings;

use parent qw(-norequire Vibelock::Child);

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use IO::Socket::IP;
use IO::Socket::UNIX;
use Socket qw(AF_UNIX SOCK_STREAM SOL_SOCKET SO_LINGER);

use Vibelock::Child;
use Vibelock::Port qw(free_port);
use Vibelock::Process qw(fork_child);
use Vibelock::Socket;
use Vibelock::Util qw(now);

use constant PAUSE => 0.01;

sub start {
    my ($class, %how) = @_;

    my $self = bless {
        port => $how{port} || free_port(),
        to   => { port => $how{to}, host => $how{host} // '127.0.0.1',
                  path => $how{to_path} },
    }, $class;

    my $listener = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1',
        LocalPort => $self->{port},
        Proto     => 'tcp',
        ReuseAddr => 1,
        Listen    => 511,
        Blocking  => 0,
    ) or croak "cannot listen on port $self->{port}: $!";

    socketpair my $ours, my $theirs, AF_UNIX, SOCK_STREAM, 0
        or croak "socketpair: $!";

    $self->{pid} = fork_child(
        sub { $self->serve($listener, $theirs) }, $listener, $theirs);

    $self->{control} = Vibelock::Socket->adopt($ours);

    return $self;
}

sub port { $_[0]{port} }

for my $name (qw(stall resume trickle drop reset forget connections accepted
                 to))
{
    no strict 'refs';
    *$name = sub {
        my ($self, $argument) = @_;
        return $self->command($name . (defined $argument ? " $argument" : ''));
    };
}

# The proxy process.  A connection is two ends; each reads for the other.

sub serve {
    my ($self, $listener, $control) = @_;

    my %state = (ends => {}, stalled => {}, accepted => 0, self => $self);

    while (1) {
        my $readers = IO::Select->new($listener, $control);
        my $writers = IO::Select->new;

        for my $end (values %{ $state{ends} }) {
            my $peer = $end->{peer};
            next if $state{stalled}{ $end->{side} } && !$end->{forgotten};

            $readers->add($end->{handle})
                if !$end->{eof} && length $end->{read} < 65536;
            $writers->add($peer->{handle})
                if $end->{read} ne '' && !trickles(\%state, $end);
        }

        my ($readable, $writable) =
            IO::Select::select($readers, $writers, undef,
                               $state{trickle} ? PAUSE : undef);

        for my $handle (@{ $readable || [] }) {
            if ($handle == $control) {
                control(\%state, $control);

            } elsif ($handle == $listener) {
                accept_connection(\%state, $listener);

            } elsif (my $end = $state{ends}{$handle}) {
                receive($end);
            }
        }

        # An end that closes takes its peer with it.
        for my $key (keys %{ $state{ends} }) {
            my $end = $state{ends}{$key} or next;
            pass_on(\%state, $end);
        }
    }
}

sub accept_connection {
    my ($state, $listener) = @_;

    my $client = $listener->accept or return;
    my $to = $state->{self}{to};
    my $server = $to->{path}
        ? IO::Socket::UNIX->new(Peer => $to->{path})
        : IO::Socket::IP->new(PeerHost => $to->{host},
                              PeerPort => $to->{port});

    $state->{accepted}++;

    if (!$server) {
        close $client;
        return;
    }

    $_->blocking(0) for $client, $server;

    my %one = (handle => $client, side => 'requests', read => '');
    my %two = (handle => $server, side => 'replies', read => '');

    @one{qw(peer eof)} = (\%two, 0);
    @two{qw(peer eof)} = (\%one, 0);
    $state->{ends}{$client} = \%one;
    $state->{ends}{$server} = \%two;

    return;
}

sub receive {
    my ($end) = @_;

    my $n = sysread $end->{handle}, $end->{read}, 65536, length $end->{read};

    $end->{eof} = 1 if defined $n ? !$n : !$!{EAGAIN};
    $end->{read} = '' if $end->{forgotten};

    return;
}

sub trickles {
    my ($state, $end) = @_;

    return $state->{trickle} && $end->{side} eq 'replies';
}

sub pass_on {
    my ($state, $end) = @_;

    return if $end->{forgotten} || $state->{stalled}{ $end->{side} };

    my $to = $end->{peer}{handle};

    if ($end->{read} ne '') {
        my $most = length $end->{read};

        if (trickles($state, $end)) {
            return if now() < ($end->{next} // 0);

            $end->{next} = now() + PAUSE;
            $most = $state->{trickle};
        }

        my $n = syswrite $to, $end->{read}, $most;
        substr $end->{read}, 0, $n, '' if $n;
        end_connection($state, $end) if !defined $n && !$!{EAGAIN};
        return;
    }

    if ($end->{eof} && !$end->{passed}++) {
        shutdown $to, 1;
    }

    end_connection($state, $end) if $end->{eof} && $end->{peer}{eof};

    return;
}

sub end_connection {
    my ($state, $end) = @_;

    for my $side ($end->{peer}, $end) {
        delete $state->{ends}{ $side->{handle} };
        close $side->{handle};
    }

    return;
}

sub control {
    my ($state, $control) = @_;

    sysread $control, my $line, 4096 or POSIX::_exit(0);

    my ($command, $argument) = split ' ', $line;
    my @clients = grep { $_->{side} eq 'requests' } values %{ $state->{ends} };
    my $reply = 'ok';

    if ($command eq 'stall') {
        my @sides = $argument || ('requests', 'replies');
        @{ $state->{stalled} }{@sides} = (1) x @sides;

    } elsif ($command eq 'resume') {
        $state->{stalled} = {};
        $state->{trickle} = 0;

    } elsif ($command eq 'trickle') {
        $state->{trickle} = $argument;

    } elsif ($command eq 'drop' || $command eq 'reset') {
        for my $client (@clients) {
            setsockopt $client->{handle}, SOL_SOCKET, SO_LINGER,
                       pack('ii', 1, 0) if $command eq 'reset';
            end_connection($state, $client);
        }

    } elsif ($command eq 'forget') {
        for my $end (values %{ $state->{ends} }) {
            @$end{qw(forgotten read)} = (1, '');
        }

    } elsif ($command eq 'connections') {
        $reply = @clients;

    } elsif ($command eq 'accepted') {
        $reply = $state->{accepted};

    } elsif ($command eq 'to') {
        $state->{self}{to}{port} = $argument;
    }

    syswrite $control, "$reply\n";

    return;
}

1;

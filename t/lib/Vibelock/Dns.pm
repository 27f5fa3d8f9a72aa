package Vibelock::Dns;

# A name server that says what the test wants.
#
#   my $dns = Vibelock::Dns->start('redis.test' => ['127.0.0.2', '127.0.0.3']);
#   $t->http('resolver 127.0.0.1:' . $dns->port . ' valid=1s;');
#
#   $dns->set('redis.test' => ['127.0.0.4']);     # from now on
#   $dns->set('redis.test' => []);                # there is no such name
#   $dns->queries                                 # how many there were
#
# Addresses are IPv4; for IPv6 a name has none.

use strict;
use warnings;

use parent qw(-norequire Vibelock::Child);

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use Socket qw(AF_UNIX SOCK_STREAM inet_aton);

use Vibelock::Child;
use Vibelock::Process qw(fork_child);
use Vibelock::Socket;

sub start {
    my ($class, %names) = @_;

    my $socket = IO::Socket::INET->new(
        Proto     => 'udp',
        LocalAddr => '127.0.0.1',
        LocalPort => 0,
    ) or croak "cannot open a UDP socket: $!";

    socketpair my $ours, my $theirs, AF_UNIX, SOCK_STREAM, 0
        or croak "socketpair: $!";

    my $self = bless { port => $socket->sockport }, $class;

    $self->{pid} = fork_child(sub { serve($socket, $theirs) },
                              $socket, $theirs);
    $self->{control} = Vibelock::Socket->adopt($ours);

    $self->set($_ => $names{$_}) for keys %names;

    return $self;
}

sub port { $_[0]{port} }

sub set {
    my ($self, $name, $addresses) = @_;

    return $self->command("set $name @$addresses");
}

sub queries { $_[0]->command('queries') }

# The process that answers.

sub serve {
    my ($socket, $control) = @_;

    my %names;
    my $queries = 0;
    my $select = IO::Select->new($socket, $control);

    while (1) {
        for my $handle ($select->can_read) {
            if ($handle == $socket) {
                $socket->recv(my $query, 512);
                $queries++;
                $socket->send(answer($query, \%names));
                next;
            }

            sysread $control, my $line, 4096 or return;

            my ($command, $name, @addresses) = split ' ', $line;

            $names{$name} = \@addresses if $command eq 'set';
            syswrite $control, "$queries\n";
        }
    }
}

sub answer {
    my ($query, $names) = @_;

    my ($id) = unpack 'n', $query;
    my $question = substr $query, 12;
    my ($name, $type) = ('', 0);

    for (my $at = 0; my $len = ord substr $question, $at, 1; ) {
        $name .= ($name eq '' ? '' : '.') . substr $question, $at + 1, $len;
        $at += 1 + $len;
        $type = unpack 'n', substr $question, $at + 1, 2;
    }

    my $addresses = $names->{$name} || [];
    my @found = $type == 1 ? @$addresses : ();
    my $code = @$addresses ? 0 : 3;

    return pack('n6', $id, 0x8180 | $code, 1, scalar @found, 0, 0)
        . substr($question, 0, length($name) + 6)
        . join '', map {
            pack('n3 N n a4', 0xc00c, 1, 1, 1, 4, inet_aton($_))
        } @found;
}

1;

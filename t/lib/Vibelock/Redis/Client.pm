package Vibelock::Redis::Client;

# A Redis client (RESP2).
#
#   my $c = Vibelock::Redis::Client->connect(port => $port);
#       host, port | path, user, password, db
#
#   my $value = $c->cmd('XADD', 'stream', '*', 'release', $text);
#       a string, a number, undef, or a reference to a list of these; an error
#       reply dies with its text
#   $c->send('XREAD', 'BLOCK', 0, 'STREAMS', 's', '$');      # in two steps
#   my $value = $c->read_reply($limit);
#   $c->close

use strict;
use warnings;

use parent qw(-norequire Vibelock::Socket);

use Carp qw(croak);

use Vibelock::Socket;

sub connect {
    my ($class, %how) = @_;

    my $self = $class->SUPER::connect(%how);

    $self->cmd('AUTH', $how{user} // (), $how{password})
        if defined $how{password};
    $self->cmd('SELECT', $how{db}) if $how{db};

    return $self;
}

sub cmd {
    my ($self, @words) = @_;

    $self->send(@words);

    return $self->read_reply;
}

sub send {
    my ($self, @words) = @_;

    return $self->write('*' . @words . "\r\n"
        . join '', map { '$' . length($_) . "\r\n$_\r\n" } @words);
}

sub read_reply {
    my ($self, $seconds) = @_;

    my $reply = $self->read_any($seconds);

    croak $$reply if ref $reply eq 'SCALAR';

    return $reply;
}

# An error is a reference to its text, so that one inside a list stays there.

sub read_any {
    my ($self, $seconds) = @_;

    my $line = $self->read_until("\r\n", $seconds)
        // croak 'no reply from Redis: ' . $self->error;
    my ($type, $rest) = $line =~ /^(.)(.*)\r\n$/s;

    return $rest if $type eq '+' || $type eq ':';
    return \$rest if $type eq '-';
    return undef if $rest < 0;

    if ($type eq '$') {
        my $bytes = $self->read_exactly($rest + 2, $seconds)
            // croak 'no reply from Redis: ' . $self->error;
        return substr $bytes, 0, $rest;
    }

    if ($type eq '*') {
        return [map { $self->read_any($seconds) } 1 .. $rest];
    }

    croak "not a Redis reply: $line";
}

1;

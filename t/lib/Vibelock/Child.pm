package Vibelock::Child;

# What is played by a process of its own, whose pid is in {pid}: the base of
# Vibelock::Dns and others.
#
#   $child->stop             it is no more; at the test's end this comes by
#                            itself
#   $child->command($line)   says that line over {control}, a Vibelock::Socket,
#                            and gives the one it says back

use strict;
use warnings;

use Carp qw(croak);

use Vibelock::Process qw(end_group);

sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    end_group($pid);

    return;
}

sub command {
    my ($self, $line) = @_;

    $self->{control}->write("$line\n");

    my $reply = $self->{control}->read_until("\n")
        // croak ref($self) . " did not take \"$line\"";
    chomp $reply;

    return $reply;
}

sub DESTROY {
    my ($self) = @_;

    local ($@, $?, $!);
    $self->stop if $$ == $Vibelock::Process::owner;
}

1;

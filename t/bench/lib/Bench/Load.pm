package Bench::Load;

# The load generator: load.c, compiled when it is first needed.
#
#   my $load = Bench::Load->new($directory);
#   my $r = $load->run(port => $port, request => $text, requests => 1000, …);
#
# The options are those of load.c, and request is the text to send.  Returns
# what it prints, as a hash; longest and busy are lists.  It dies when a request
# was not answered, or, not told that others are expected (others => 1), with
# another status.

use strict;
use warnings;

use Carp qw(croak);
use File::Basename qw(dirname);

use Bench::Machine qw(client_cpu pinned);
use Vibelock::Process ();

sub new {
    my ($class, $directory) = @_;

    my $source = dirname(__FILE__) . '/../../load.c';
    my $program = "$directory/load";

    my ($code, $output) = Vibelock::Process::run(
        [$ENV{CC} || 'gcc', '-O2', '-o', $program, $source]);

    croak "load.c does not compile:\n$output" if $code;

    return bless { program => $program }, $class;
}

sub run {
    my ($self, %how) = @_;

    my $request = delete $how{request};
    my $others = delete $how{others};
    my $limit = $how{limit} //= 300;

    my ($code, $output) = Vibelock::Process::run(
        [pinned(client_cpu(), $self->{program},
                map { "$_=$how{$_}" } sort keys %how)],
        input => $request,
        limit => $limit + 10,
    );

    croak "no load on port $how{port}: $output" if $code;

    my %result = split ' ', $output;

    croak "no load on port $how{port}: nothing was printed"
        unless defined $result{good};

    croak "on port $how{port}: $output" if $result{other} && !$others;

    $_ = [split /,/] for grep { defined } @result{qw(longest busy)};

    return \%result;
}

1;

package Vibelock::Util;

# Waiting for conditions, and reading and writing files.
#
#   use Vibelock::Util qw(wait_for limit now read_file write_file append_file);
#
#   ok(wait_for { -e $file }, 'the file appeared');     # at most 20 seconds
#   my $value = wait_for { compute() } 60;              # the block's value,
#                                                       # or what it was last
#   my $deadline = now() + limit(5);                    # monotonic seconds
#
# No test sleeps for a time and hopes: it waits for what it is after.  Limits
# are generous, they only end a test that has already failed; a slow machine
# or tool (valgrind) stretches them with VIBELOCK_SLOW=<factor>.

use strict;
use warnings;

use Exporter qw(import);
use Carp qw(croak);
use Time::HiRes ();

our @EXPORT_OK = qw(wait_for limit now read_file write_file append_file);

use constant DEFAULT_LIMIT => 20;
use constant POLL => 0.01;

sub now {
    return Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC());
}

sub limit {
    my ($seconds) = @_;

    my $factor = $ENV{VIBELOCK_SLOW} || ($ENV{VIBELOCK_VALGRIND} ? 5 : 1);

    return ($seconds // DEFAULT_LIMIT) * $factor;
}

sub wait_for (&;$) {
    my ($condition, $seconds) = @_;

    my $deadline = now() + limit($seconds);

    while (1) {
        my $late = now() >= $deadline;
        my $value = $condition->();

        return $value if $value || $late;

        Time::HiRes::sleep(POLL);
    }
}

sub read_file {
    my ($path) = @_;

    open my $fh, '<:raw', $path or croak "cannot read $path: $!";
    local $/;
    my $text = <$fh>;
    close $fh;

    return $text // '';
}

# Written beside and renamed, so that nobody ever reads half of it.

sub write_file {
    my ($path, $text) = @_;

    open my $fh, '>:raw', "$path.new" or croak "cannot write $path: $!";
    print {$fh} $text;
    close $fh or croak "cannot write $path: $!";
    rename "$path.new", $path or croak "cannot write $path: $!";

    return $path;
}

sub append_file {
    my ($path, $text) = @_;

    open my $fh, '>>:raw', $path or croak "cannot write $path: $!";
    print {$fh} $text;
    close $fh or croak "cannot write $path: $!";

    return $path;
}

1;

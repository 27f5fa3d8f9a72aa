package Vibelock::Log;

# The logs of one nginx, for Vibelock::Test: waiting for a line, and the check
# that nothing is in them that should not be.

use strict;
use warnings;

use Test::More ();

use Vibelock::Util qw(wait_for read_file);

my $severe = qr/^\d{4}\/\d\d\/\d\d \d\d:\d\d:\d\d \[(?:alert|crit|emerg)\] /;

sub new {
    my ($class, $dir) = @_;

    return bless { dir => $dir, mark => 0, expected => [], forgiven => {} },
                 $class;
}

sub text {
    my ($self, $name) = @_;

    my $path = "$self->{dir}/$name";

    return -e $path ? read_file($path) : '';
}

sub size { return -s "$_[0]{dir}/error.log" || 0 }

sub since {
    my ($self, $mark) = @_;

    my $text = $self->text('error.log');

    return $mark < length $text ? substr $text, $mark : '';
}

sub mark {
    my ($self) = @_;

    return $self->{mark} = $self->size;
}

sub error_log  { return $_[0]->since($_[0]{mark}) }
sub access_log { return $_[0]->text('access.log') }

sub log_like {
    my ($self, $pattern, $seconds) = @_;

    return wait_for { $self->error_log =~ $pattern } $seconds;
}

sub access_like {
    my ($self, $pattern, $seconds) = @_;

    return wait_for { $self->access_log =~ $pattern } $seconds;
}

# The last access.log line of a URI once there are n of them, as { method, uri,
# status, result, … }; {} where they never come.

sub logged {
    my ($self, $uri, $n) = @_;

    my @lines;

    wait_for {
        @lines = $self->access_log =~ /^(\S+ \Q$uri\E \d{3}.*)\n/mg;
        @lines >= ($n // 1);
    } or return {};

    my ($method, undef, $status, @named) = split ' ', $lines[-1];

    return { method => $method, uri => $uri, status => $status,
             map { split /=/, $_, 2 } @named };
}

sub expect {
    my ($self, $pattern) = @_;

    push @{ $self->{expected} }, $pattern;

    return;
}

# A test says why it expects the line; here only the line counts.

sub expect_log {
    my ($self, $pattern, $why) = @_;

    Test::More::note("expected in the log: $pattern ($why)") if defined $why;

    return $self->expect($pattern);
}

# The lines of a start or reload that was meant to be refused.

sub forgive {
    my ($self, $text) = @_;

    $self->{forgiven}{$_} = 1 for grep { $_ =~ $severe } split /\n/, $text;

    return;
}

sub alerts {
    my ($self) = @_;

    my @found = grep { $_ =~ $severe && !$self->{forgiven}{$_} }
                split /\n/, $self->text('error.log');

    for my $name (map { s{.*/}{}r }
                  glob "$self->{dir}/{sanitizer,valgrind}.* "
                       . "$self->{dir}/output.log")
    {
        push @found, map { "$name: $_" }
            grep { /ERROR: \w+Sanitizer|runtime error:/
                   || /ERROR SUMMARY: [1-9]/ }
            split /\n/, $self->text($name);
    }

    return grep { my $line = $_; !grep { $line =~ $_ } @{ $self->{expected} } }
           @found;
}

1;

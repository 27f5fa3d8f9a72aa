package Vibelock::Workers;

# The workers of an nginx master, as its process titles tell:
#
#   Vibelock::Workers::list($master, $log)
#       { pid => …, starting => 0|1, leaving => 0|1 }, …
#
# starting: forked, and not yet set up; leaving: shutting down.  valgrind hides
# titles, there the error log (notice) tells.

use strict;
use warnings;

use Vibelock::Util qw(read_file);

sub list {
    my ($master, $log) = @_;

    my @children = children($master);

    return from_log($log, @children) if $ENV{VIBELOCK_VALGRIND};

    my @workers;

    for my $pid (@children) {
        my $title = title($pid);

        next if $title =~ /^nginx: cache /;

        push @workers, {
            pid      => $pid,
            starting => $title =~ /^nginx: worker process/ ? 0 : 1,
            leaving  => $title =~ /is shutting down/ ? 1 : 0,
        };
    }

    return @workers;
}

sub children {
    my ($master) = @_;

    my @children;

    for my $file (glob '/proc/[0-9]*/stat') {
        my $stat = eval { read_file($file) } or next;
        my ($pid, $state, $parent) = $stat =~ /^(\d+) \(.*\) (\S) (\d+)/s
            or next;
        push @children, $pid if $parent == $master && $state ne 'Z';
    }

    return sort { $a <=> $b } @children;
}

sub title {
    my ($pid) = @_;

    my $title = eval { read_file("/proc/$pid/cmdline") } // '';
    $title =~ s/\0.*//s;

    return $title;
}

sub from_log {
    my ($log, @children) = @_;

    my $text = $log->text('error.log');
    my %worker = map { $_ => 1 } $text =~ /: start worker process (\d+)$/mg;
    my %leaving = map { $_ => 1 }
        $text =~ /\[notice\] (\d+)#\d+: (?:gracefully shutting|exiting)/g;

    return map {
        { pid => $_, starting => 0, leaving => $leaving{$_} ? 1 : 0 }
    } grep { $worker{$_} } @children;
}

1;

#!/usr/bin/env perl

# The benchmark: vibelock beside what people would use instead.
#
#   bench.pl [--count] [--quick | --smoke] [--part=<name>]... [--keep]
#
# --count   also count instructions, under valgrind
# --quick   less of everything, two to three minutes
# --smoke   a few of everything: whether it works, no figure means anything
# --part    requests, count, held, swept, growth, bus; all by default
# --keep    leave the directory with all files, and callgrind's
#
# Prints tables, and whether they agree with those of docs/performance.md. A
# whole run with neither --quick nor --part puts them there in their place.

use strict;
use warnings;
use filetest 'access';

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use Getopt::Long qw(GetOptions);
use POSIX qw(strftime);

my $root;
BEGIN { $root = abs_path(dirname(__FILE__) . '/../..') }

use lib "$root/t/bench/lib", "$root/t/lib";

use Bench::Bus;
use Bench::Earlier;
use Bench::Load;
use Bench::Machine qw(describe program redis_server stolen);
use Bench::Million;
use Bench::Profile;
use Bench::Report;
use Bench::Requests;
use Bench::Row;
use Bench::Setup;
use Vibelock::Util qw(now read_file);

my %usual = (
    limit    => 1800,
    rounds   => 99,
    seconds  => 0.04,
    first    => 3000,
    servers  => 1000,
    count    => { rounds => 9, first => 300, requests => 600 },
    locks    => 1_000_000,
    held     => { rounds => 33, requests => 10_000 },
    swept    => { rounds => 6, sweep => 100, rate => 1000 },
    growth   => [10_000, 1_000_000],
    bus      => { rounds => 5, releases => 20 },
);

my %quick = (
    %usual,
    limit    => 360,
    rounds   => 5,
    seconds  => 0.05,
    first    => 1000,
    count    => { rounds => 2, first => 100, requests => 200 },
    locks    => 100_000,
    held     => { rounds => 5, requests => 5000 },
    swept    => { rounds => 2, sweep => 100, rate => 1000 },
    growth   => [10_000, 50_000],
    bus      => { rounds => 1, releases => 8 },
);

my %smoke = (
    %quick,
    limit    => 60,
    rounds   => 1,
    seconds  => 0.001,
    first    => 20,
    count    => { rounds => 1, first => 40, requests => 10 },
    locks    => 2000,
    held     => { rounds => 1, requests => 100 },
    swept    => { rounds => 1, sweep => 100, rate => 100 },
    growth   => [500, 1000],
    bus      => { rounds => 1, releases => 3 },
);

my @all = qw(requests count held swept growth bus);
my ($count, $quick, $smoke, $keep, @parts);

GetOptions(
    count    => \$count,
    quick    => \$quick,
    smoke    => \$smoke,
    keep     => \$keep,
    'part=s' => \@parts,
) && !@ARGV or die "usage: bench.pl [--count] [--quick | --smoke]"
                 . " [--part=<name>]... [--keep]\n";

for my $name (@parts) {
    grep { $_ eq $name } @all
        or die "there is no part \"$name\"; there are @all\n";
}

my $how = $smoke ? \%smoke : $quick ? \%quick : \%usual;
my %part = map { $_ => 1 }
           (@parts ? @parts : grep { $_ ne 'count' } @all),
           $count ? 'count' : ();

die "there is no valgrind, which --count needs\n"
    if $part{count} && !program('valgrind');

$SIG{ALRM} = sub { die "it took more than $how->{limit} s\n" };
alarm $how->{limit};

my $module = $ENV{VIBELOCK_MODULE}
             // "$root/build/ngx_http_vibelock_module.so";

die "there is no module $module; ./build.sh build makes one\n"
    unless -f $module;

$module = abs_path($module);

# Better known before it took ten minutes.

my $page = "$root/docs/performance.md";
my $writes = !($quick || $smoke || @parts);

die "docs/performance.md may not be written, and a whole run puts its figures"
    . " there; --quick writes nothing\n"
    if $writes && !(-w $page && -w dirname($page));

my $dir = tempdir('vibelock-bench-XXXXXXXX', TMPDIR => 1);
chmod 0755, $dir;

my $begun = now();
my $stolen = stolen();
my @machine = ('taken on ' . strftime('%Y-%m-%d', gmtime) . ', in '
               . "$how->{rounds} rounds of each request"
               . ($part{count} ? ", and $how->{count}{rounds} by instructions"
                               : ''),
               describe());
my $load = Bench::Load->new($dir);

my (@timed, @counted, $profile);

eval {
    timed();
    ($profile, @counted) = counted();
    1;
} or do {
    my $why = $@;

    # What took minutes is not lost with what comes behind it.

    print "\n", Bench::Report::table(@timed), "\n" if @timed;
    die $why;
};

finish();
exit 0;

sub say_what {
    my ($what) = @_;

    printf STDERR "--- %4.0f s  %s\n", now() - $begun, $what;

    return;
}

sub setup {
    my ($name, %more) = @_;

    mkdir "$dir/$name";

    return Bench::Setup->new(
        dir     => "$dir/$name",
        module  => $module,
        servers => $how->{servers},
        %more,
    )->start;
}

# How quick the bus is differs by the minute, so its rounds come between those
# of the others.

sub timed {
    my $bus = bus();

    for my $measure (\&requests, \&held, \&swept, sub { }) {
        released($bus) if $bus;
        push @timed, $measure->();
    }

    push @timed, $bus->row if $bus;

    return;
}

sub requests {
    return () unless $part{requests} || $part{growth};

    my $setup = setup('time');
    my @rows;

    if ($part{requests}) {
        say_what('processor time of requests');

        my $samples = Bench::Requests::by_time($setup, $load,
            map { $_ => $how->{$_} } qw(rounds seconds first));

        push @rows, Bench::Requests::rows($samples, 'ns');
    }

    if ($part{growth}) {
        say_what('memory of a worker');
        push @rows, growth($setup);
    }

    $setup->check_done;
    $setup->stop;

    return @rows;
}

# All that a gateway is asked, one worker.

sub growth {
    my ($setup) = @_;

    my @subjects = map { $setup->subject($_) }
                   qw(delete checked proxied_guarded exec);
    my $nginx = $subjects[0]{nginx};
    my ($sent, @memory) = (0);

    for my $total (@{ $how->{growth} }) {
        while ($sent < $total) {
            for my $s (@subjects) {
                my $n = $how->{growth}[0] / 10;

                Bench::Requests::send_to($load, $s, requests => $n);
                $sent += $n;
            }
        }

        push @memory, $nginx->memory_kb;
    }

    return Bench::Row->new(
        what        => 'memory of a worker after '
                       . Bench::Million::words($how->{growth}[1])
                       . ' more requests',
        alternative => 'after ' . Bench::Million::words($how->{growth}[0]),
        unit        => 'kB',
        bar         => 1.01,     # a page or two is no growth
        pairs       => [[@memory[1, 0]]],
    );
}

sub bus {
    return undef unless $part{bus};

    if (!redis_server()) {
        say_what('there is no Redis, and so no row of the bus');
        return undef;
    }

    return Bench::Bus->new(dir => $dir, module => $module);
}

sub released {
    my ($bus) = @_;

    say_what('releases to another gateway');

    $bus->measure($how->{bus}{releases}) for 1 .. $how->{bus}{rounds};

    return;
}

sub held {
    return () unless $part{held};

    say_what("$how->{locks} locks held");

    return Bench::Million::held({ dir => $dir, module => $module }, $load,
                                locks => $how->{locks}, %{ $how->{held} });
}

sub swept {
    return () unless $part{swept};

    say_what("$how->{locks} locks expire");

    return Bench::Million::swept({ dir => $dir, module => $module }, $load,
                                 locks => $how->{locks}, %{ $how->{swept} });
}

sub counted {
    return () unless $part{count};

    say_what('instructions of requests');

    my (%samples, @added);

    for my $round (1 .. $how->{count}{rounds}) {
        my $setup = setup("count$round", count => 1, keep => $keep);

        my ($sample, $added) = Bench::Requests::by_count($setup, $load,
            round => $round,
            map { $_ => $how->{count}{$_} } qw(first requests));

        $setup->check_done;
        $setup->stop;

        push @{ $samples{$_} }, $sample->{$_} for keys %$sample;
        push @added, $added;
    }

    my $profile = Bench::Profile::table(Bench::Profile::medians(@added),
        [delete => 'DELETE'], [published => 'published'],
        [proxied_guarded => 'proxied'], [exec => 'exec'], [busy => '409']);

    return ($profile, Bench::Requests::rows(\%samples, 'instructions'));
}

sub finish {
    push @machine, sprintf('kept from its processors by their host meanwhile: '
                           . '%.2f s, in %.0f s', stolen() - $stolen,
                           now() - $begun);

    my %text = (
        machine => join('', map { "- $_\n" } @machine),
        time    => Bench::Report::table(@timed),
        count   => Bench::Report::table(@counted),
        profile => $profile,
    );

    print "\n$text{machine}\n";
    print "$text{time}\n" if @timed;
    print "$text{count}\n$text{profile}\n" if @counted;

    my @agreement = $smoke ? () : agreement($page, \%text);

    print map { "- $_\n" } @agreement;

    return unless $writes;

    $text{machine} .= join '', map { "- $_\n" } @agreement;

    for my $name ('machine', 'time', $count ? qw(count profile) : ()) {
        Bench::Report::insert($page, $name, "\n$text{$name}\n");
    }

    say_what('docs/performance.md has these figures now');

    return;
}

# With the run that the page has figures of.

sub agreement {
    my ($page, $text) = @_;

    my @tables = grep { $text->{$_} } qw(time count);
    my $earlier = Bench::Earlier->new(read_file($page), @tables);
    my ($same, @other) = (0);

    for my $name (@tables) {
        my ($n, @lines) = $earlier->compare($name => $text->{$name});

        $same += $n;
        push @other, map { "does not agree: $_" } @lines;
    }

    return () unless $same + @other;

    return (sprintf('beside the run of %s, whose figures %s: '
                    . '%d of %d ratios agree, each median within the spread of '
                    . 'the other', $earlier->date,
                    $writes ? 'stood here before'
                            : 'docs/performance.md has',
                    $same, $same + @other),
            @other);
}

END {
    my $code = $?;

    if ($dir) {
        $keep ? print STDERR "--- files: $dir\n" : remove_tree($dir);
    }

    $? = $code;
}

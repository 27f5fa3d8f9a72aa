package Vibelock::Process;

# Child processes: started, watched, and never left behind.
#
#   use Vibelock::Process qw(spawn fork_child run alive wait_exit end_group);
#
#   my $pid = spawn(['redis-server', '-'], stdout => $file, stderr => $file,
#                   env => { NAME => 'value' });
#   my $pid = fork_child(sub { ... }, @handles);    # the child exits after
#                                # the sub; only these handles are open in it
#   alive($pid)                              # false once it has ended
#   my $status = wait_exit($pid, $seconds);  # as in $?; undef if still there
#   end_group($pid);                         # SIGKILL to it and its children
#   adopt($pid);                             # a daemon's: the watcher ends it
#
#   my ($code, $output) = run(['nginx', '-V']);      # stdout and stderr
#   my ($code, $output) = run([...], input => $text, limit => 60, env => {});
#
# Each child leads a process group of its own.  A watcher process outlives the
# test by an instant: if the test is killed outright, the watcher kills the
# groups that are still there.

use strict;
use warnings;

use Exporter qw(import);
use Carp qw(croak);
use File::Temp ();
use POSIX qw(:sys_wait_h setpgid);

use Vibelock::Util qw(wait_for read_file);

our @EXPORT_OK = qw(spawn fork_child run alive wait_exit end_group adopt);

my %status;             # pid => how it ended
my %running;            # pid => 1
my $watcher;            # the pipe to the watcher process
our $owner = $$;

$SIG{PIPE} = 'IGNORE';
$SIG{$_} //= sub { exit 1 } for qw(INT TERM HUP);

sub spawn {
    my ($command, %how) = @_;

    return start_child(%how, code => sub {
        { no warnings 'exec'; exec { $command->[0] } @$command }
        print STDERR "cannot run $command->[0]: $!\n";
        POSIX::_exit(127);
    });
}

sub fork_child {
    my ($code, @handles) = @_;

    return start_child(code => sub {
        close_all_but(@handles);
        eval { $code->(); 1 } or do {
            print STDERR "# child: $@";
            POSIX::_exit(1);
        };
        POSIX::_exit(0);
    });
}

sub start_child {
    my (%how) = @_;

    start_watcher() unless $watcher;

    my $pid = fork() // croak "fork: $!";

    if ($pid == 0) {
        setpgid(0, 0);
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
        $SIG{PIPE} = 'DEFAULT' if $how{stdout};

        redirect(\*STDIN, '<', $how{stdin} // '/dev/null');
        redirect(\*STDOUT, '>>', $how{stdout}) if $how{stdout};
        redirect(\*STDERR, '>>', $how{stderr}) if $how{stderr};

        my $env = $how{env} || {};
        for my $name (keys %$env) {
            defined $env->{$name} ? $ENV{$name} = $env->{$name}
                                  : delete $ENV{$name};
        }

        $how{code}->();
    }

    setpgid($pid, $pid);
    adopt($pid);

    return $pid;
}

sub adopt {
    my ($pid) = @_;

    # A pid comes back: what ended under it before is another's end.
    delete $status{$pid};

    $running{$pid} = 1;
    syswrite $watcher, "+$pid\n";

    return;
}

# A listening socket or a connection that a child has too stays open when the
# test closes it.  Perl counts the users of each descriptor, so the numbers must
# not be free for new ones: they become /dev/null.

sub close_all_but {
    my (@handles) = @_;

    my %keep = map { $_ => 1 } 0, 1, 2, map { fileno $_ } @handles;

    my @fds = grep { !$keep{$_} } map { /(\d+)$/ } glob '/proc/self/fd/*';

    open my $null, '+<', '/dev/null' or return;
    fileno($null) != $_ && POSIX::dup2(fileno($null), $_) for @fds;

    return;
}

sub redirect {
    my ($handle, $mode, $path) = @_;

    open $handle, $mode, $path
        or do { print STDERR "cannot open $path: $!\n"; POSIX::_exit(127) };
}

sub run {
    my ($command, %how) = @_;

    my $output = File::Temp->new;
    my $input;

    if (defined $how{input}) {
        $input = File::Temp->new;
        binmode $input;
        print {$input} $how{input};
        $input->flush;
    }

    my $pid = spawn($command,
        env    => $how{env},
        stdout => "$output",
        stderr => "$output",
        stdin  => $input ? "$input" : undef,
    );

    my $status = wait_exit($pid, $how{limit});
    my $text = read_file("$output");

    if (!defined $status) {
        end_group($pid);
        return (-1, $text . "\n$command->[0]: did not end in time\n");
    }

    return ($status & 127 ? 128 + ($status & 127) : $status >> 8, $text);
}

sub alive {
    my ($pid) = @_;

    return 0 if exists $status{$pid};

    my $waited = waitpid $pid, WNOHANG;

    if ($waited == $pid) {
        $status{$pid} = $?;
        delete $running{$pid};
        syswrite $watcher, "-$pid\n" if $watcher;
        return 0;
    }

    return 1 if $waited == 0;

    # A daemon is not our child; dead, it may wait for init to notice.
    my $stat = eval { read_file("/proc/$pid/stat") } // return 0;

    return $stat =~ /\) Z / ? 0 : 1;
}

sub wait_exit {
    my ($pid, $seconds) = @_;

    wait_for { !alive($pid) } $seconds;

    return exists $status{$pid} ? $status{$pid} : undef;
}

sub end_group {
    my ($pid) = @_;

    kill 'KILL', -$pid;
    wait_for { !alive($pid) };

    return;
}

sub start_watcher {
    pipe my $read, my $write or croak "pipe: $!";

    my $pid = fork() // croak "fork: $!";

    if ($pid == 0) {
        setpgid(0, 0);
        close_all_but($read);
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', '/dev/null';
        open STDERR, '>', '/dev/null';
        $SIG{$_} = 'IGNORE' for qw(INT TERM HUP);

        my %group;
        while (my $line = <$read>) {
            $line =~ /^\+(\d+)/ and $group{$1} = 1;
            $line =~ /^-(\d+)/ and delete $group{$1};
        }

        kill 'KILL', map { -$_ } keys %group;
        POSIX::_exit(0);
    }

    $watcher = $write;

    return;
}

END {
    if ($$ == $owner) {
        my $code = $?;
        end_group($_) for keys %running;
        $? = $code;
    }
}

1;

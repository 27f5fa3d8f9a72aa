package Bench::Nginx;

# An nginx to be measured: its workers' processor time, instructions, memory.
#
#   my $nginx = Bench::Nginx->new(
#       dir     => $directory,       of its own; made if it is not there
#       modules => ['/path/of.so'],
#       main    => '…',  http => '…',      lines of these levels
#       servers => { name => '…' },        the lines of a server each
#       workers => 1,
#       cpu     => 0,                where the workers run, or a list "0,1"
#       count   => 1,                under valgrind, to count instructions
#   );
#   $nginx->start;
#   $nginx->port('name')
#   $nginx->cpu_ns           processor time of all workers, up to now
#   $nginx->settle           waits until they have nothing left to do
#   $nginx->memory_kb        memory of their own, the zones not included
#   $nginx->counts           instructions since the last call, or the start,
#                            by part, see Bench::Profile
#   $nginx->stop;
#
# A server has one location that is measured: a regular expression that comes
# second costs one more match.

use strict;
use warnings;

use Carp qw(croak);
use IO::Socket::INET;
use Time::HiRes qw(sleep);

use Bench::Machine qw(worker_cpu pinned);
use Bench::Profile;
use Vibelock::Port qw(free_port);
use Vibelock::Process qw(spawn alive wait_exit end_group);
use Vibelock::Util qw(wait_for read_file write_file);
use Vibelock::Workers;

# Workers that use less than a thirtieth of their time have nothing to do: now
# and then there is a timer of theirs.

use constant QUIET => 0.03;     # seconds

sub new {
    my ($class, %how) = @_;

    mkdir $how{dir};

    return bless { workers => 1, cpu => worker_cpu(), %how, ports => {} },
                 $class;
}

sub port {
    my ($self, $name) = @_;

    return $self->{ports}{$name} //= free_port();
}

sub start {
    my ($self) = @_;

    my $dir = $self->{dir};

    write_file("$dir/nginx.conf", $self->conf);
    $self->{dumps} = 0;

    my @command = ('nginx', '-p', "$dir/", '-e', "$dir/error.log",
                   '-c', "$dir/nginx.conf");

    # Each worker writes what it has counted when it reopens its logs, for
    # which there is a signal; that function has a name in every nginx.

    # No debugger comes: what it would come through stays behind, among all
    # temporary files, when valgrind is killed.

    unshift @command, 'valgrind', '--tool=callgrind', '--vgdb=no',
        "--callgrind-out-file=$dir/callgrind.%p",
        '--dump-before=ngx_reopen_files'
        if $self->{count};

    my $pid = $self->{pid} = spawn([pinned($self->{cpu}, @command)],
        env    => { PATH => "$ENV{PATH}:/usr/sbin" },
        stdout => "$dir/output.log",
        stderr => "$dir/output.log",
    );

    my $up = wait_for {
        my @pids = $self->pids;

        !alive($pid) || (@pids == $self->{workers} && $self->answers)
    } 60;

    croak "nginx in $dir did not start:\n" . read_file("$dir/output.log")
        . (-e "$dir/error.log" ? read_file("$dir/error.log") : '')
        unless $up && alive($pid);

    return $self;
}

sub conf {
    my ($self) = @_;

    my $dir = $self->{dir};

    return join "\n",
        'daemon off;',
        "worker_processes $self->{workers};",
        $> == 0 ? 'user root;' : (),
        "pid $dir/nginx.pid;",
        "error_log $dir/error.log crit;",
        (map { "load_module $_;" } @{ $self->{modules} || [] }),
        $self->{main} // '',
        'events { worker_connections 1024; }',
        'http {',
        'access_log off;',
        'keepalive_requests 1000000000;',
        'keepalive_timeout 1h;',
        'default_type application/octet-stream;',
        (map { "${_}_temp_path $dir/temp_$_;" }
         qw(client_body proxy fastcgi uwsgi scgi)),
        $self->{http} // '',
        (map { $self->server($_) } sort keys %{ $self->{servers} }),
        "}\n";
}

sub server {
    my ($self, $name) = @_;

    my $reuseport = $self->{workers} > 1 ? ' reuseport' : '';

    return join "\n",
        'server {',
        'listen 127.0.0.1:' . $self->port($name) . "$reuseport;",
        'server_name localhost;',
        $self->{servers}{$name},
        '}';
}

sub pids {
    my ($self) = @_;

    return Vibelock::Workers::children($self->{pid});
}

sub answers {
    my ($self) = @_;

    my ($name) = sort keys %{ $self->{servers} };

    return IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                 PeerPort => $self->port($name));
}

sub cpu_ns {
    my ($self) = @_;

    my $ns = 0;

    for my $pid ($self->pids) {
        my ($own) = read_file("/proc/$pid/schedstat") =~ /^(\d+)/;
        $ns += $own;
    }

    return $ns;
}

sub settle {
    my ($self) = @_;

    my $before = $self->cpu_ns;

    wait_for {
        sleep QUIET;

        my $now = $self->cpu_ns;
        my $used = $now - $before;

        $before = $now;

        $used < QUIET * 1e9 / 30
    } or croak "nginx in $self->{dir} is always busy";

    return;
}

sub memory_kb {
    my ($self) = @_;

    my $kb = 0;

    for my $pid ($self->pids) {
        my ($own) = read_file("/proc/$pid/status") =~ /^RssAnon:\s*(\d+)/m;
        $kb += $own;
    }

    return $kb;
}

sub counts {
    my ($self) = @_;

    my %sum;

    for my $file ($self->dumped) {
        my $counts = Bench::Profile::read_counts($file);

        $sum{$_} += $counts->{$_} for keys %$counts;
        unlink $file unless $self->{keep};
    }

    return \%sum;
}

# The files that the workers write now, each of them whole.

sub dumped {
    my ($self) = @_;

    my $n = ++$self->{dumps};

    # By the master, which tells them over a channel: a signal that comes to a
    # worker just before it waits for events would be seen with the next event.

    kill 'USR1', $self->{pid};

    return map {
        my $file = "$self->{dir}/callgrind.$_.$n";

        wait_for { -e $file && read_file($file) =~ /^totals: /m }
            or croak "there is no $file";

        $file;
    } $self->pids;
}

sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    kill 'TERM', $pid;
    wait_exit($pid, 20);
    end_group($pid);

    return;
}

1;

package Bench::Machine;

# What the figures are taken on: which processors may be used, and how to name
# the machine and its parts.
#
#   use Bench::Machine qw(worker_cpu client_cpu both_cpus pinned pin
#                         module program redis_server describe stolen);
#
#   my @command = pinned(worker_cpu(), 'nginx', …);
#   pin($pid, client_cpu());         a process that runs already
#   module('ngx_http_lua_module')    the path of a module of nginx's, or undef
#   program('valgrind')              the path of a program, or undef
#   redis_server()                   likewise, of the Redis that is measured
#   describe()                       lines that tell what figures are taken on
#   stolen()                         seconds that the host of a virtual machine
#                                    has kept from its processors, so far

use strict;
use warnings;

use Exporter qw(import);
use POSIX ();

use Vibelock::Process qw(run);
use Vibelock::Util qw(read_file);

our @EXPORT_OK = qw(worker_cpu client_cpu both_cpus pinned pin
                    module program redis_server describe stolen);

# The kernel says "0-3,6".

my @allowed = map { /^(\d+)-(\d+)$/ ? $1 .. $2 : $_ }
              split /,/, read_file('/proc/self/status')
                         =~ /^Cpus_allowed_list:\s*(\S+)/m ? $1 : 0;

sub worker_cpu { $allowed[0] }
sub client_cpu { $allowed[-1] }
sub both_cpus  { join ',', $allowed[0], $allowed[-1] }

sub pinned {
    my ($cpu, @command) = @_;

    return ('taskset', '-c', $cpu, @command);
}

sub pin {
    my ($pid, $cpu) = @_;

    my ($code, $output) = run(['taskset', '-acp', $cpu, $pid]);

    die "taskset: $output" if $code;

    return;
}

sub module {
    my ($name) = @_;

    my ($directory) = output('nginx', '-V') =~ /--modules-path=(\S+)/
        or return undef;
    my $path = "$directory/$name.so";

    return -e $path ? $path : undef;
}

sub program {
    my ($name) = @_;

    for my $directory (split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/bin') {
        return "$directory/$name" if -x "$directory/$name";
    }

    return undef;
}

sub redis_server {
    return program($ENV{VIBELOCK_REDIS} || 'redis-server');
}

sub describe {
    my $nginx = output('nginx', '-V');
    my ($model) = read_file('/proc/cpuinfo') =~ /^model name\s*:\s*(.+)$/m;
    my ($memory) = read_file('/proc/meminfo') =~ /^MemTotal:\s*(\d+)/m;
    my ($system) = (-e '/etc/os-release' ? read_file('/etc/os-release') : '')
                   =~ /^PRETTY_NAME="?([^"\n]+)/m;
    my ($kernel) = (POSIX::uname())[2] =~ /^([\d.]+)/;
    my ($load) = read_file('/proc/loadavg') =~ /^(\S+)/;

    my @parts = (
        $nginx =~ m{nginx version: (\S+)},
        $nginx =~ m{(OpenSSL \S+)},
    );

    push @parts, "lua module $1"
        if package_version('libnginx-mod-http-lua') =~ /([\d.]+)-/;
    push @parts, "Redis $1"
        if redis_server()
           && output(redis_server(), '--version') =~ /v=(\S+)/;
    push @parts, $1
        if program('valgrind')
           && output('valgrind', '--version') =~ /(valgrind-\S+)/;

    return (
        sprintf('%s, %d of its processors, %.1f GB', $model // 'processor',
                scalar @allowed, $memory / 1024 / 1024),
        join(', ', $system // 'Linux', "kernel $kernel", @parts),
        'load when it began: ' . $load,
    );
}

sub stolen {
    my $ticks = 0;

    $ticks += (split)[8] // 0 for grep { /^cpu\d/ }
                              split /\n/, read_file('/proc/stat');

    return $ticks / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

sub package_version {
    my ($package) = @_;

    return program('dpkg-query')
        ? output('dpkg-query', '-W', '-f', '${Version}', $package) : '';
}

sub output {
    my ($code, $text) = run([@_]);

    return $code == 127 ? '' : $text;
}

1;

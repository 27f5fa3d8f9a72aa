package Vibelock::Redis;

# A real redis-server of the test's own; or $VIBELOCK_REDIS, as valkey-server.
#
#   my $redis = Vibelock::Redis->start;              # skips nothing: it dies if
#                                                    # there is no redis-server
#   $t->set(REDIS => $redis->port);
#   my $id = $redis->cmd('XADD', 'stream', '*', 'k', 'v');
#
#   $redis->stop; $redis->start;     # TERM; again, on the same port
#   $redis->kill;                    # SIGKILL
#   $redis->restart;                 # stop and start
#   $redis->pause;  $redis->resume;  # SIGSTOP, SIGCONT
#   $redis->port  $redis->path  $redis->dir  $redis->log
#   $redis->client(%options)         a connection of its own
#                                    (Vibelock::Redis::Client)
#
# Options of the first start:
#
#   requirepass => 'secret'
#   acl         => ['user bus on >secret ~vibelock:* +xadd', …]   an aclfile
#   bind        => '::1'             127.0.0.1 if not given
#   unix        => 1                 a Unix socket only, at $redis->path
#   persist     => 1                 keeps its data over stop and kill
#   config      => ['maxmemory 10mb', …]         lines of redis.conf
#   env         => { … }                         its environment
#
# cmd connects as the default user, with requirepass where it is set; an error
# reply dies with its text.

use strict;
use warnings;

use Carp qw(croak);
use File::Temp ();

use Vibelock::Port qw(free_port);
use Vibelock::Process qw(spawn alive wait_exit end_group);
use Vibelock::Redis::Client;
use Vibelock::Util qw(wait_for read_file write_file);

sub start {
    my ($self, %how) = @_;

    $self = $self->new(%how) unless ref $self;

    croak 'Redis runs already' if $self->{pid} && alive($self->{pid});

    my $dir = $self->{dir};
    my $server = $ENV{VIBELOCK_REDIS} || 'redis-server';

    $self->{pid} = spawn([$server, "$dir/redis.conf"],
        env    => $self->{env},
        stdout => "$dir/output.log",
        stderr => "$dir/output.log",
    );

    $self->wait_ready;

    return $self;
}

sub new {
    my ($class, %how) = @_;

    my $dir = File::Temp->newdir('vibelock-XXXXXXXX', TMPDIR => 1);

    chmod 0755, "$dir";

    my $self = bless {
        dir      => $dir,
        host     => $how{bind} // '127.0.0.1',
        port     => $how{unix} ? 0 : $how{port} || free_port(),
        path     => $how{unix} ? "$dir/redis.sock" : undef,
        password => $how{requirepass},
        env      => $how{env} || {},
    }, $class;

    my @lines = (
        "dir $dir",
        "logfile $dir/redis.log",
        "port $self->{port}",
        "bind $self->{host}",
        'save ""',
        'appendonly ' . ($how{persist} ? 'yes' : 'no'),
        'appendfsync always',
        'daemonize no',
        'enable-debug-command yes',
    );

    push @lines, "unixsocket $self->{path}", 'unixsocketperm 777'
        if $how{unix};
    push @lines, "requirepass \"$self->{password}\""
        if defined $self->{password};

    if ($how{acl}) {
        write_file("$dir/users.acl",
            join '', map { "$_\n" }
            'user default on nopass ~* &* +@all', @{ $how{acl} });
        push @lines, "aclfile $dir/users.acl";
    }

    write_file("$dir/redis.conf",
               join '', map { "$_\n" } @lines, @{ $how{config} || [] });

    return $self;
}

sub port { $_[0]{port} }
sub path { $_[0]{path} }
sub dir  { "$_[0]{dir}" }
sub pid  { $_[0]{pid} }
sub log  { -e "$_[0]{dir}/redis.log" ? read_file("$_[0]{dir}/redis.log") : '' }

# It answers, and has loaded what it kept.

sub wait_ready {
    my ($self) = @_;

    my $pid = $self->{pid};

    my $ready = wait_for {
        !alive($pid) || eval { $self->client->cmd('PING') eq 'PONG' };
    } 60;

    return if $ready && alive($pid);

    croak "Redis did not start:\n" . $self->log
        . read_file("$self->{dir}/output.log");
}

sub client {
    my ($self, %how) = @_;

    return Vibelock::Redis::Client->connect(
        $self->{path} ? (path => $self->{path})
                      : (host => $self->{host}, port => $self->{port}),
        password => $self->{password},
        %how,
    );
}

sub cmd {
    my ($self, @words) = @_;

    my $client = $self->{client};

    $client = $self->{client} = $self->client
        unless $client && $client->is_open;

    return $client->cmd(@words);
}

sub restart {
    my ($self) = @_;

    $self->stop;

    return $self->start;
}

sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    delete $self->{client};
    CORE::kill 'TERM', $pid;
    CORE::kill 'CONT', $pid;
    end_group($pid) unless defined wait_exit($pid, 15);

    return;
}

sub kill {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    delete $self->{client};
    end_group($pid);

    return;
}

sub pause {
    my ($self) = @_;

    CORE::kill 'STOP', $self->{pid};

    # Stopped at once would be a guess: wait until the kernel says so.
    wait_for {
        my $stat = eval { read_file("/proc/$self->{pid}/stat") } // '';
        $stat =~ /\) T /;
    };

    return;
}

sub resume {
    my ($self) = @_;

    return CORE::kill 'CONT', $self->{pid};
}

sub DESTROY {
    my ($self) = @_;

    local ($@, $?, $!);
    $self->kill if $$ == $Vibelock::Process::owner;
}

1;

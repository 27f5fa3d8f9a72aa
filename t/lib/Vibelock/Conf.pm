package Vibelock::Conf;

# Puts nginx.conf together for Vibelock::Test, which describes its methods.

use strict;
use warnings;

use Carp qw(croak);

use Vibelock::Port qw(free_port);
use Vibelock::Util qw(write_file);

sub new {
    my ($class, %options) = @_;

    return bless { %options, set => {}, ports => {}, text => {} }, $class;
}

for my $name (qw(main events http server conf)) {
    no strict 'refs';
    *$name = sub { my ($self, $text) = @_; $self->{text}{$name} = $text };
}

sub set {
    my ($self, %values) = @_;

    @{ $self->{set} }{ keys %values } = values %values;

    return;
}

sub port {
    my ($self, $n) = @_;

    return $self->{ports}{$n} //= free_port();
}

# How many workers the configuration asks for.

sub workers {
    my ($self) = @_;

    return $self->render =~ /^\s*worker_processes\s+(\d+)/m ? $1 : 1;
}

sub write {
    my ($self, $path, %how) = @_;

    return write_file($path, $self->render(%how));
}

sub render {
    my ($self, %how) = @_;

    my $conf = $self->{text}{conf} // $self->assemble;

    $conf =~ s/%%MAIN%%/$self->main_preamble(%how)/e;
    $conf =~ s/%%HTTP%%/$self->http_preamble/e;
    $conf =~ s/%%PORT_([0-9])%%/$self->port($1)/ge;
    $conf =~ s/%%DIR%%/$self->{dir}/g;
    $conf =~ s{%%(\w+)%%}{
        $self->{set}{$1} // croak "nothing was set for %%$1%%"
    }ge;

    return $conf;
}

sub assemble {
    my ($self) = @_;

    my %text = map { $_ => $self->{text}{$_} // '' }
               qw(main events http server);

    my $own = $text{server} eq '' && $text{http} =~ /^\s*server\s*\{/m;

    my $server = $own ? '' : join "\n",
        'server {',
        'listen 127.0.0.1:%%PORT_0%%;',
        'server_name localhost;',
        $text{server},
        '}';

    return join "\n",
        '%%MAIN%%',
        $text{main},
        'events {',
        'worker_connections 1024;',
        $text{events},
        '}',
        'http {',
        '%%HTTP%%',
        $text{http},
        $server,
        "}\n";
}

sub main_preamble {
    my ($self, %how) = @_;

    my @lines = (
        'daemon ' . ($self->{daemon} ? 'on;' : 'off;'),
        'worker_processes ' . ($self->{workers} // 2) . ';',
        'error_log %%DIR%%/' . ($how{error_log} // 'error.log') . ' '
            . ($self->{log_level} // 'info') . ';',
        'pid %%DIR%%/nginx.pid;',
        'lock_file %%DIR%%/nginx.lock;',
        'env ASAN_OPTIONS;',
        'env UBSAN_OPTIONS;',
        'env LD_PRELOAD;',
    );

    # Workers of another user could not read what the test writes.
    push @lines, 'user ' . ($self->{user} // 'root') . ';' if $> == 0;

    push @lines, "load_module $self->{module};"
        if $self->{module} && $self->{module} ne 'static';

    push @lines, "worker_shutdown_timeout $self->{shutdown_timeout};"
        if $self->{shutdown_timeout};

    return join "\n", @lines;
}

sub http_preamble {
    my ($self) = @_;

    my $format = $self->{log_format} // join ' ',
        '$request_method $request_uri $status',
        $self->{module}
            ? ('result=$vibelock_result', 'age=$vibelock_age',
               'token=$vibelock_token', 'operation=$vibelock_operation')
            : ();

    return join "\n",
        "log_format harness \"$format\";",
        'access_log %%DIR%%/access.log harness;',
        'default_type text/plain;',
        map { "${_}_temp_path %%DIR%%/temp_$_;" }
            qw(client_body proxy fastcgi uwsgi scgi);
}

1;

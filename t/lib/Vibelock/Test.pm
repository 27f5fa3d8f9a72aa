package Vibelock::Test;

# A test's own nginx: its directory, ports, configuration, life and logs.
#
#   use strict; use warnings;
#   use Test::More;
#   use Vibelock::Test qw(wait_for);
#   use Vibelock::Upstream;
#
#   my $up = Vibelock::Upstream->new;
#   my $t = Vibelock::Test->new(workers => 1);
#
#   $t->set(UPSTREAM => $up->port);
#   $t->http(<<'EOF');
#       vibelock_zone $arg_id zone=z:1m;
#   EOF
#   $t->server(<<'EOF');
#       location / {
#           vibelock exec zone=z;
#           proxy_pass http://127.0.0.1:%%UPSTREAM%%;
#       }
#   EOF
#   $t->start;
#
#   my $pending = $t->async(POST => '/?id=1', json => { timeout => 5 });
#   my $x = $up->accept_request;
#   is($t->post('/?id=1')->status, 409);
#   $x->respond(200);
#   is($pending->response->status, 200);
#
#   $t->done;        # stops nginx, checks the logs, done_testing
#
# Vibelock::Test->new(%options):
#
#   module     => 0         plain nginx; else $VIBELOCK_MODULE, or
#                           build/ngx_http_vibelock_module.so; 'static' where
#                           nginx has it built in
#   workers    => 2
#   log_level  => 'info'    or 'debug'
#   log_format => '…'       of access.log, in "…" (default: below)
#   user       => 'nobody'  of the workers, where the test runs as root
#   shutdown_timeout => '5s'
#   daemon     => 1         as a daemon, not as the test's child
#   env        => { … }     nginx's environment
#   nginx      => path      else $VIBELOCK_NGINX, or nginx from the PATH
#
# Configuration: main, events, http and server give the lines of one level
# each (a second call replaces them); conf gives the whole text instead, where
# %%MAIN%% and %%HTTP%% stand for what the harness puts there.  Everywhere,
# %%DIR%% is the test's directory, %%PORT_0%% … %%PORT_9%% are free ports of
# 127.0.0.1 (the server listens on 0), %%NAME%% is what set(NAME => …) gave.
# Without server lines, http lines may bring servers of their own.
#
# Life:
#
#   $t->start               returns when the workers are there, else dies with
#                           the log
#   $t->start_fails         the output of a start that is refused; '' if it is
#                           not
#   $t->config_test         (exit code, output) of nginx -t
#   $t->reload              HUP; returns when the new workers serve and the old
#                           ones have begun to leave
#   $t->reload_fails        the log of a reload that is refused; '' if it is not
#   $t->signal('HUP')       to the master; no waiting
#   $t->quit($limit)        gracefully; false if nginx is still there
#   $t->stop                at once
#   $t->upgrade             USR2; returns the old master's pid (nginx takes it
#                           only with daemon => 1)
#   $t->master  $t->workers  $t->leaving     pids (leaving: workers that are
#                           shutting down)
#   $t->kill_worker($pid, 'KILL')            and waits for its successor
#
# Requests, to port 0 unless port => … is given; options as in Vibelock::Http:
#
#   $t->get($uri, …)  $t->post($uri, …)  $t->delete($uri, …)
#   $t->request(PUT => $uri, …)      a Vibelock::Http::Response
#   $t->async(POST => $uri, …)       a Vibelock::Http::Connection
#   $t->connect(…)                   the same, nothing sent
#
# Files and logs:
#
#   $t->dir  $t->path($name)  $t->write_file($name, $text)  $t->read_file($name)
#   $t->port($n)  $t->url($uri)
#   $t->error_log  $t->access_log            the texts
#   $t->log_like(qr/…/, $limit)              waits; false if it never comes
#   $t->access_like(qr/…/, $limit)           likewise
#   $t->logged($uri, $n)                     waits for its n-th (first) line in
#                                            access.log: { method, uri, status,
#                                            result, age, token, operation }
#   $t->log_mark                             error_log and log_like speak of
#                                            what comes from here on
#   $t->expect_log(qr/…/, 'why')             for the check below
#   wait_for { … } $limit;
#
# A line of access.log is
#
#   METHOD URI STATUS result=$vibelock_result age=… token=… operation=…
#
# (the latter with the module).  The end: $t->done stops every nginx of the
# test, and fails it where an error log has an [alert], [crit] or [emerg] that
# was not expected, or a sanitizer or valgrind has reported something; then
# done_testing.  $t->finish does this for one nginx, earlier.  The directory is
# removed unless the test failed or VIBELOCK_KEEP is set.
#
# VIBELOCK_PRELOAD goes to nginx as LD_PRELOAD (AddressSanitizer's library);
# VIBELOCK_VALGRIND=1 runs nginx under valgrind (other values: its options).

use strict;
use warnings;

use Carp qw(croak);
use Cwd ();
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Temp ();
use Test::More ();

use Vibelock::Conf;
use Vibelock::Http qw(http_request http_async http_connect);
use Vibelock::Log;
use Vibelock::Port qw(free_port);
use Vibelock::Process qw(spawn run alive wait_exit end_group adopt);
use Vibelock::Util qw(wait_for);
use Vibelock::Workers;

our @EXPORT_OK = qw(wait_for free_port);

my $root = Cwd::abs_path(dirname(__FILE__) . '/../../..');
my @instances;
my $owner = $$;

sub new {
    my ($class, %options) = @_;

    my $dir = File::Temp::tempdir('vibelock-XXXXXXXX',
                                  TMPDIR => 1, CLEANUP => 0);

    # Workers of another user read and write here too.
    chmod $options{user} ? 0777 : 0755, $dir;

    my $module = $options{module} // $ENV{VIBELOCK_MODULE}
        // "$root/build/ngx_http_vibelock_module.so";

    my $self = bless {
        options => \%options,
        dir     => $dir,
        conf    => Vibelock::Conf->new(
            %options,
            dir    => $dir,
            module => !$module ? undef
                : $module eq 'static' ? $module
                : Cwd::abs_path($module) // $module,
        ),
        log     => Vibelock::Log->new($dir),
    }, $class;

    push @instances, $self;

    return $self;
}

sub dir  { $_[0]{dir} }
sub path { "$_[0]{dir}/$_[1]" }
sub port { $_[0]{conf}->port($_[1] // 0) }
sub url  { 'http://127.0.0.1:' . $_[0]->port . ($_[1] // '/') }

sub write_file {
    my ($self, $name, $text) = @_;

    return Vibelock::Util::write_file("$self->{dir}/$name", $text);
}

sub read_file { Vibelock::Util::read_file("$_[0]{dir}/$_[1]") }

for my $name (qw(main events http server conf set)) {
    no strict 'refs';
    *$name = sub {
        my ($self, @arguments) = @_;
        $self->{conf}->$name(@arguments);
        return $self;
    };
}

for my $name (qw(error_log access_log log_like access_like logged log_mark
                 expect_log))
{
    no strict 'refs';
    (my $method = $name) =~ s/^log_mark$/mark/;
    *$name = sub { my $self = shift; return $self->{log}->$method(@_) };
}

# The process

# By its full name: an upgrade executes that again, and /usr/sbin is not in
# everybody's PATH.

sub nginx {
    my ($self) = @_;

    my ($found) = grep { -x } map { "$_/nginx" }
        split(/:/, $ENV{PATH}), '/usr/local/sbin', '/usr/sbin', '/sbin';

    return $self->{options}{nginx} || $ENV{VIBELOCK_NGINX} || $found
        || croak 'there is no nginx';
}

sub command {
    my ($self, @arguments) = @_;

    my @command = ($self->nginx,
                   '-p', "$self->{dir}/", '-e', "$self->{dir}/error.log",
                   @arguments);

    if (my $valgrind = $ENV{VIBELOCK_VALGRIND}) {
        unshift @command, 'valgrind', '--trace-children=yes',
            "--log-file=$self->{dir}/valgrind.%p",
            "--suppressions=$root/t/lib/valgrind.supp",
            $valgrind eq '1' ? () : split ' ', $valgrind;
    }

    return \@command;
}

sub environment {
    my ($self) = @_;

    my $asan = "log_path=$self->{dir}/sanitizer:detect_leaks=0";
    my $ubsan = "log_path=$self->{dir}/sanitizer:print_stacktrace=1";

    return {
        ASAN_OPTIONS  => join(':', $asan, $ENV{ASAN_OPTIONS} || ()),
        UBSAN_OPTIONS => join(':', $ubsan, $ENV{UBSAN_OPTIONS} || ()),
        $ENV{VIBELOCK_PRELOAD}
            ? (LD_PRELOAD => $ENV{VIBELOCK_PRELOAD}) : (),
        %{ $self->{options}{env} || {} },
    };
}

sub launch {
    my ($self) = @_;

    croak 'nginx runs already' if $self->running;

    unlink "$self->{dir}/nginx.pid";
    $self->{conf}->write("$self->{dir}/nginx.conf");
    $self->{pid} = spawn($self->command('-c', "$self->{dir}/nginx.conf"),
        env    => $self->environment,
        stdout => "$self->{dir}/output.log",
        stderr => "$self->{dir}/output.log",
    );

    if ($self->{options}{daemon}) {
        my $status = wait_exit($self->{pid});

        if (defined $status && $status == 0) {
            # The daemon writes it, after its parent has gone.
            $self->{pid} = wait_for { $self->pid_in_file }
                or croak 'nginx did not write its pid';
            adopt($self->{pid});
        }
    }

    return $self->{pid};
}

sub running { $_[0]{pid} && alive($_[0]->master) }

sub start {
    my ($self) = @_;

    my $mark = $self->{log}->size;
    my $pid = $self->launch;
    my $workers = $self->{conf}->workers;

    wait_for { !alive($pid) || ($self->workers >= $workers) } 30;

    if (!alive($pid) || $self->workers < $workers) {
        croak "nginx did not start:\n" . $self->{log}->since($mark)
            . $self->read_file('output.log');
    }

    return $self;
}

sub start_fails {
    my ($self) = @_;

    my $mark = $self->{log}->size;
    my $pid = $self->launch;

    wait_for { !alive($pid) || $self->workers } 30;

    return '' if alive($pid);

    my $text = $self->{log}->since($mark) . $self->read_file('output.log');
    $self->{log}->forgive($text);

    return $text;
}

sub config_test {
    my ($self) = @_;

    my $file = "$self->{dir}/test.conf";

    $self->{conf}->write($file, error_log => 'test.log');

    my @command = @{ $self->command('-t', '-c', $file) };
    s{/error\.log$}{/test.log} for @command;

    return run(\@command, env => $self->environment);
}

sub signal {
    my ($self, $signal) = @_;

    return kill $signal, $self->master;
}

sub reload {
    my ($self) = @_;

    my $mark = $self->{log}->size;
    my %before = map { $_ => 1 } $self->workers;

    $self->{conf}->write("$self->{dir}/nginx.conf");
    $self->signal('HUP');

    my $served = wait_for {
        my @workers = Vibelock::Workers::list($self->master, $self->{log});

        # All of the old ones have begun to leave; that is only after all of
        # the new ones are there.
        !(grep { $before{ $_->{pid} } && !$_->{leaving} } @workers)
            && (grep { !$before{ $_->{pid} } && !$_->{leaving} } @workers)
            && !(grep { $_->{starting} } @workers)
    } 30;

    $served or croak "nginx did not reload:\n" . $self->{log}->since($mark);

    return $self;
}

sub reload_fails {
    my ($self) = @_;

    my $mark = $self->{log}->size;

    $self->{conf}->write("$self->{dir}/nginx.conf");
    $self->signal('HUP');

    # Workers may still be starting that a reload before brought.

    my $over = wait_for {
        $self->{log}->since($mark)
            =~ / \[emerg\] |: reconfiguring\n.* start worker process /s;
    };

    my $text = $self->{log}->since($mark);

    return '' if $over && $text !~ / \[emerg\] /;

    $self->{log}->forgive($text);

    return $text;
}

sub quit {
    my ($self, $seconds) = @_;

    return 1 unless $self->running;

    my $master = $self->master;

    kill 'QUIT', $master;

    return wait_for { !alive($master) } $seconds // 30;
}

sub stop {
    my ($self) = @_;

    my $pid = $self->{pid} or return;

    # After an upgrade there may be two.
    my %masters = map { $_ => 1 } $pid, $self->master;

    kill 'TERM', grep { alive($_) } keys %masters;

    my $ended = wait_for { !grep { alive($_) } keys %masters } 15;

    end_group($pid);
    delete $self->{pid};

    Test::More::fail('nginx stopped') unless $ended;

    return;
}

sub upgrade {
    my ($self) = @_;

    my $old = $self->master;

    kill 'USR2', $old;

    my $upgraded = wait_for {
        $self->master != $old && $self->workers >= $self->{conf}->workers;
    } 30;

    $upgraded or croak "nginx did not upgrade:\n" . $self->error_log;

    return $old;
}

sub master {
    my ($self) = @_;

    return $self->pid_in_file // $self->{pid} // croak 'nginx was not started';
}

sub pid_in_file {
    my ($self) = @_;

    my $text = eval { $self->read_file('nginx.pid') } // '';

    return $text =~ /^(\d+)/ ? $1 : undef;
}

sub workers {
    my ($self) = @_;

    return map { $_->{pid} }
           grep { !$_->{leaving} && !$_->{starting} }
           Vibelock::Workers::list($self->master, $self->{log});
}

sub leaving {
    my ($self) = @_;

    return map { $_->{pid} } grep { $_->{leaving} }
           Vibelock::Workers::list($self->master, $self->{log});
}

sub kill_worker {
    my ($self, $worker, $signal) = @_;

    my %before = map { $_ => 1 } $self->workers;

    $self->{log}->expect(qr/worker process $worker exited on signal/);
    $self->{log}->expect(qr/was locked by $worker\b/);

    kill $signal // 'KILL', $worker or croak "no worker $worker: $!";

    my $replaced = wait_for {
        !kill(0, $worker)
            && (!$before{$worker} || grep { !$before{$_} } $self->workers);
    };

    $replaced or croak "worker $worker was not replaced";

    return;
}

# Requests

sub request {
    my ($self, $method, $uri, %how) = @_;

    return http_request(port => $self->port, %how,
                        method => $method, uri => $uri);
}

sub get    { my $self = shift; return $self->request('GET', @_) }
sub post   { my $self = shift; return $self->request('POST', @_) }
sub delete { my $self = shift; return $self->request('DELETE', @_) }

sub async {
    my ($self, $method, $uri, %how) = @_;

    return http_async(port => $self->port, %how,
                      method => $method, uri => $uri);
}

sub connect {
    my ($self, %how) = @_;

    return http_connect(port => $self->port, %how);
}

# The end

sub no_alerts {
    my ($self) = @_;

    my @lines = $self->{log}->alerts;

    Test::More::is(join("\n", @lines), '', 'no alerts in the logs');

    return !@lines;
}

sub finish {
    my ($self) = @_;

    $self->stop;
    $self->no_alerts unless $self->{finished}++;

    return;
}

sub done {

    $_->finish for grep { !$_->{finished} } @instances;

    Test::More::done_testing();

    return;
}

END {
    if ($$ == $owner) {
        my $code = $?;
        my $passed = !$code && Test::More->builder->is_passing;

        for my $t (@instances) {
            end_group($t->{pid}) if $t->{pid};

            if ($ENV{VIBELOCK_KEEP} || !$passed) {
                Test::More::diag("files of this test: $t->{dir}");

            } else {
                require File::Path;
                File::Path::remove_tree($t->{dir}, { safe => 0 });
            }
        }

        $? = $code;
    }
}

1;

#!/usr/bin/env perl

# An example of what stands behind the gateway: it really runs commands, and
# deploys archives slowly. Perl's core modules only; one process a connection.
#
#     POST /v1/infra/servers/<id>/exec      {"command":"...","timeout":60}
#     POST /v1/infra/servers/<id>/deploy    {"archive":"<base64 of a tar file>"}
#     POST /v1/infra/servers/<id>/unstick
#
# It does what it is told, without asking who tells it: that is the gateway's
# work. So it listens on 127.0.0.1 alone, and takes an operation only with the
# gateway's fencing token, never with an older one than it has seen of that
# gateway: where there are several, X-Lock-Gateway says which it is.

use strict;
use warnings;

use Encode ();
use Fcntl qw(:flock O_CREAT O_RDWR);
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use Getopt::Long qw(GetOptions);
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use MIME::Base64 qw(decode_base64);
use POSIX qw(:sys_wait_h _exit);
use Time::HiRes qw(sleep time);

use constant {
    IDLE        => 75,           # seconds that a connection waits for a request
    MAX_HEAD    => 64 * 1024,
    MAX_BODY    => 256 * 1024 * 1024,
    MAX_OUTPUT  => 1024 * 1024,  # of a command's output, what is kept
    TIMEOUT     => 60,           # as the gateway's default= and max=
    MAX_TIMEOUT => 3600,
};

my %option = (port => 0, step => 1.5);

GetOptions(\%option, 'port=i', 'dir=s', 'user=s', 'announce=s', 'step=f')
    && !@ARGV
    or die "usage: upstream.pl [--port=N] [--dir=DIR] [--user=NAME]"
        . " [--announce=FILE] [--step=SECONDS]\n";

my $json = JSON::PP->new->utf8->canonical;
my %status_text = (
    200 => 'OK', 400 => 'Bad Request', 403 => 'Forbidden',
    404 => 'Not Found', 405 => 'Method Not Allowed', 409 => 'Conflict',
    413 => 'Content Too Large', 422 => 'Unprocessable Content',
);

main();


sub main {
    my $listener = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1', LocalPort => $option{port},
        Listen => 128, ReuseAddr => 1,
    ) or die "cannot listen on 127.0.0.1:$option{port}: $@\n";

    announce($listener->sockport);
    become_user($option{user}) if defined $option{user};

    # Only now: where the port is taken, nothing is left behind.
    my $own_dir = defined $option{dir} ? undef : tempdir('upstream.XXXXXX',
                                                         TMPDIR => 1);
    my $dir = $option{dir} //= $own_dir;

    chdir $dir or die "$dir: $!\n";
    for my $name (qw(servers running tokens)) {
        -d $name or mkdir $name or die "$dir/$name: $!\n";
    }

    adopt_orphans();

    my $stop = 0;

    local $SIG{PIPE} = 'IGNORE';
    local $SIG{CHLD} = sub { };    # only so that accept() is interrupted
    local @SIG{qw(HUP INT TERM)} = (sub { $stop = 1 }) x 3;

    my $select = IO::Select->new($listener);

    until ($stop) {
        reap();

        next if !$select->can_read(1);
        my $socket = $listener->accept or next;

        my $pid = fork // do { warn "fork: $!\n"; next };

        if ($pid == 0) {
            @SIG{qw(CHLD HUP INT TERM)} = ('DEFAULT') x 4;
            close $listener;
            handle_connection($socket);
            _exit(0);
        }
    }

    end_descendants();

    if (defined $own_dir) {
        chdir '/';
        remove_tree($own_dir);
    }
}


# The file appears with its content in it, for whoever waits for it.

sub announce {
    my $port = shift;

    if (!defined $option{announce}) {
        print STDERR "listening on 127.0.0.1:$port\n";
        return;
    }

    open my $file, '>', "$option{announce}.new"
        or die "$option{announce}.new: $!\n";
    print {$file} "$port\n";
    close $file or die "$option{announce}.new: $!\n";
    rename "$option{announce}.new", $option{announce}
        or die "$option{announce}: $!\n";
}


sub become_user {
    my $name = shift;

    my ($uid, $gid) = (getpwnam $name)[2, 3];
    die "no user \"$name\"\n" if !defined $uid;

    $) = "$gid $gid";
    $( = $gid;
    ($<, $>) = ($uid, $uid);

    die "cannot become $name: $!\n" if $> != $uid || $< != $uid;
}


# What a command leaves running becomes a child of this process, not of init's,
# so that nothing stays when this ends. Where the call is not known, only what
# keeps its parent is found.

sub adopt_orphans {
    my $PR_SET_CHILD_SUBREAPER = 36;

    eval {
        require 'syscall.ph';
        syscall(&SYS_prctl, $PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    };
}


sub reap {
    while (waitpid(-1, WNOHANG) > 0) { }
}


# Some may fork while others are killed, hence until there are none.

sub end_descendants {
    for (1 .. 100) {
        reap();
        my @pids = descendants() or last;
        kill KILL => @pids;
        sleep 0.02;
    }
}


sub descendants {
    my %children;

    for my $path (glob '/proc/[0-9]*/stat') {
        open my $file, '<', $path or next;
        local $/;
        my ($pid, $parent) = (<$file> // '') =~ /^(\d+) \(.*\) \S (\d+)/s
            or next;
        push @{ $children{$parent} }, $pid;
    }

    my @found = my @next = @{ $children{$$} // [] };

    while (defined(my $pid = shift @next)) {
        my @more = @{ $children{$pid} // [] };
        push @found, @more;
        push @next, @more;
    }

    return @found;
}


# HTTP

sub handle_connection {
    my $socket = shift;

    my $buffer = '';

    while (my $request = read_request($socket, \$buffer)) {
        handle_request($socket, $request);
        last if !$request->{keepalive} || $request->{lost};
    }
}


sub handle_request {
    my ($socket, $request) = @_;

    return send_error($socket, $request, @{ $request->{error} })
        if $request->{error};

    my ($path, $query) = split /\?/, $request->{target}, 2;
    my ($server, $operation) =
        $path =~ m{^/v1/infra/servers/([^/]{1,128})/(exec|deploy|unstick)$};

    return send_error($socket, $request, 404, 'NOT_FOUND', 'Nothing is here')
        if !defined $operation;

    return send_error($socket, $request, 405, 'METHOD_NOT_ALLOWED',
                      'An operation is a POST')
        if $request->{method} ne 'POST';

    $server = file_name($server);

    -d "servers/$server" or mkdir "servers/$server";

    return unstick($socket, $request, $server) if $operation eq 'unstick';

    my @refusal = check_token($server,
        @{ $request->{headers} }{qw(x-lock-token x-lock-gateway)});
    return send_error($socket, $request, @refusal) if @refusal;

    return run_exec($socket, $request, $server) if $operation eq 'exec';

    my $stream = ($query // '') !~ /(?:^|&)stream=false(?:&|$)/;
    return deploy($socket, $request, $server, $stream);
}


# Returns nothing when the connection ends, or waits for too long.

sub read_request {
    my ($socket, $buffer) = @_;

    until ($$buffer =~ /\r?\n\r?\n/) {
        return if length $$buffer > MAX_HEAD || !fill($socket, $buffer);
    }

    $$buffer =~ s/^(.*?\r?\n)\r?\n//s;
    my ($line, @fields) = split /\r?\n/, $1;

    my ($method, $target, $minor) =
        $line =~ m{^([A-Z]+) (\S+) HTTP/1\.([01])$} or return;

    my %headers;
    for (@fields) {
        my ($name, $value) = /^([^:\s]+):\s*(.*?)\s*$/ or return;
        $headers{lc $name} = $value;
    }

    my $connection = lc($headers{connection} // '');
    my $keepalive = $minor ? $connection !~ /close/
                           : $connection =~ /keep-alive/;

    my %request = (
        method => $method, target => $target, headers => \%headers, body => '',
        minor => $minor, keepalive => $keepalive,
    );

    send_bytes($socket, \%request, "HTTP/1.1 100 Continue\r\n\r\n")
        if lc($headers{expect} // '') eq '100-continue';

    my $read = lc($headers{'transfer-encoding'} // '') eq 'chunked'
        ? read_chunks($socket, $buffer, \$request{body})
        : read_length($socket, $buffer, \$request{body},
                      $headers{'content-length'} // 0);
    return if !$read;

    if ($read < 0) {
        $request{keepalive} = 0;
        $request{error} = [413, 'TOO_LARGE', 'The body is too large'];
    }

    return \%request;
}


# Both return 1 for a body read, 0 for an end before that, -1 for too much.

sub read_length {
    my ($socket, $buffer, $body, $length) = @_;

    return 0 if $length !~ /^[0-9]{1,15}$/;
    return -1 if $length > MAX_BODY;

    while (length $$buffer < $length) {
        fill($socket, $buffer) or return 0;
    }

    $$body .= substr $$buffer, 0, $length, '';
    return 1;
}


sub read_chunks {
    my ($socket, $buffer, $body) = @_;

    while (1) {
        until ($$buffer =~ /\n/) {
            return 0 if length $$buffer > 4096 || !fill($socket, $buffer);
        }

        $$buffer =~ s/^([0-9a-fA-F]{1,8})[^\n]*\n// or return 0;
        my $length = hex $1;

        return -1 if length($$body) + $length > MAX_BODY;
        last if $length == 0;

        read_length($socket, $buffer, $body, $length) or return 0;

        until ($$buffer =~ s/^\r?\n//) {
            return 0 if length $$buffer > 1 || !fill($socket, $buffer);
        }
    }

    # Trailer fields, to the empty line.
    until ($$buffer =~ s/^\r?\n//) {
        if ($$buffer !~ s/^[^\n]+\n//) {
            return 0 if length $$buffer > MAX_HEAD || !fill($socket, $buffer);
        }
    }

    return 1;
}


sub fill {
    my ($socket, $buffer) = @_;

    IO::Select->new($socket)->can_read(IDLE) or return 0;

    return sysread $socket, $$buffer, 256 * 1024, length $$buffer;
}


# A client that is gone ends nothing: the operation goes on without it.

sub send_bytes {
    my ($socket, $request, $bytes) = @_;

    my $offset = 0;

    while (!$request->{lost} && $offset < length $bytes) {
        my $sent = syswrite $socket, $bytes, length($bytes) - $offset, $offset;

        if (defined $sent) {
            $offset += $sent;

        } elsif (!$!{EINTR}) {
            $request->{lost} = 1;
        }
    }
}


sub send_head {
    my ($socket, $request, $status, @fields) = @_;

    push @fields, 'Connection: ' . ($request->{keepalive} ? 'keep-alive'
                                                          : 'close');

    send_bytes($socket, $request, join "\r\n",
               "HTTP/1.1 $status $status_text{$status}", @fields, '', '');
}


sub send_json {
    my ($socket, $request, $status, $content) = @_;

    my $body = $json->encode($content) . "\n";

    send_head($socket, $request, $status, 'Content-Type: application/json',
              'Content-Length: ' . length $body);
    send_bytes($socket, $request, $body) if $request->{method} ne 'HEAD';
}


sub send_error {
    my ($socket, $request, $status, $code, $message) = @_;

    send_json($socket, $request, $status, {
        success => JSON::PP::false,
        error => { code => $code, message => $message },
    });
}


# Fencing: of the operations of one gateway, the token never goes back; that of
# another says nothing beside it. Returns a refusal.

sub check_token {
    my ($server, $token, $gateway) = @_;

    return (403, 'NO_LOCK_TOKEN', 'Operations come through the gateway')
        if ($token // '') !~ /^[0-9]{1,16}$/;

    my $name = "tokens/$server\@" . file_name(substr $gateway // '', 0, 64);

    sysopen my $file, $name, O_RDWR | O_CREAT or die "$name: $!\n";
    flock $file, LOCK_EX or die "$name: $!\n";

    my $last = <$file> // 0;

    return (409, 'STALE_LOCK_TOKEN', 'A newer operation has been here')
        if $token < $last;

    seek $file, 0, 0;
    print {$file} $token;
    close $file or die "$name: $!\n";

    return;
}


sub file_name {
    my $text = shift;

    return $text =~ s/([^A-Za-z0-9_-])/sprintf '%%%02x', ord $1/ger;
}


# exec

sub run_exec {
    my ($socket, $request, $server) = @_;

    my $order = eval { $json->decode($request->{body}) };
    my $command = ref $order eq 'HASH' ? $order->{command} : undef;

    return send_error($socket, $request, 400, 'VALIDATION_ERROR',
                      'The body is to be {"command":"...","timeout":60}')
        if !defined $command || ref $command || $command eq '';

    my $timeout = $order->{timeout} // TIMEOUT;

    return send_error($socket, $request, 400, 'VALIDATION_ERROR',
                      'timeout is to be a number of seconds, at most '
                      . MAX_TIMEOUT)
        if $timeout !~ /^[0-9]+(?:\.[0-9]+)?$/
            || $timeout <= 0 || $timeout > MAX_TIMEOUT;

    my $result = run_command($server, Encode::encode_utf8($command), $timeout);

    print STDERR "exec on $server ended with $result->{exitCode}",
        $result->{timedOut} ? " (timeout)\n" : "\n";

    send_json($socket, $request, 200,
              { success => JSON::PP::true, data => $result });
}


# Ends when the command's shell does, or at the timeout, and takes with it what
# the command left in the background.

sub run_command {
    my ($server, $command, $timeout) = @_;

    my ($pid, @pipes) = start_command($server, $command);

    my $running = "running/$server.$pid";
    open my $file, '>', $running or die "$running: $!\n";
    close $file;

    my $deadline = time + $timeout;
    my $select = IO::Select->new(@pipes);
    my %output = map { $_ => '' } @pipes;
    my $status;

    until (defined $status) {
        collect($select, \%output, 0.05);
        $status = $? if waitpid($pid, WNOHANG) == $pid;
        last if time >= $deadline;
    }

    my $timed_out = !defined $status;

    kill KILL => -$pid;

    if ($timed_out) {
        waitpid $pid, 0;
        $status = $?;
    }

    unlink $running;

    # What is in the pipes still; a process that left the group may hold them.
    for (my $last = time + 1; $select->count && time < $last;) {
        collect($select, \%output, 0.05) or last;
    }

    my ($stdout, $stderr) =
        map { Encode::decode('UTF-8', $output{$_}) } @pipes;

    return {
        exitCode => $status & 127 ? 128 + ($status & 127) : $status >> 8,
        stdout => $stdout, stderr => $stderr,
        timedOut => $timed_out ? JSON::PP::true : JSON::PP::false,
    };
}


sub start_command {
    my ($server, $command) = @_;

    pipe my $out, my $out_end or die "pipe: $!\n";
    pipe my $err, my $err_end or die "pipe: $!\n";

    my $pid = fork // die "fork: $!\n";

    if ($pid == 0) {
        $SIG{PIPE} = 'DEFAULT';
        setpgrp 0, 0;
        open STDIN, '<', '/dev/null';
        open STDOUT, '>&', $out_end;
        open STDERR, '>&', $err_end;
        chdir "servers/$server";
        exec '/bin/sh', '-c', $command or _exit(127);
    }

    # Here as well: whoever comes first, the group is there from now on.
    setpgrp $pid, $pid;

    return ($pid, $out, $err);
}


# Returns how many pipes had something, were it their end.

sub collect {
    my ($select, $output, $wait) = @_;

    if (!$select->count) {
        sleep $wait;
        return 0;
    }

    my @ready = $select->can_read($wait);

    for my $pipe (@ready) {
        my $count = sysread $pipe, my $bytes, 65536;

        if (!$count) {
            $select->remove($pipe);
            next;
        }

        my $room = MAX_OUTPUT - length $output->{$pipe};
        $output->{$pipe} .= substr $bytes, 0, $room if $room > 0;
    }

    return scalar @ready;
}


# unstick

sub unstick {
    my ($socket, $request, $server) = @_;

    my $ended = 0;

    opendir my $directory, 'running' or die "running: $!\n";

    for my $name (readdir $directory) {
        $ended++ if $name =~ /^\Q$server\E\.([0-9]+)$/ && kill KILL => -$1;
    }

    print STDERR "unstick of $server ended $ended\n";

    send_json($socket, $request, 200, {
        success => JSON::PP::true, data => { unstuck => JSON::PP::true,
                                             ended => $ended },
    });
}


# deploy

sub deploy {
    my ($socket, $request, $server, $stream) = @_;

    my $archive = take_archive(\$request->{body});

    return send_error($socket, $request, 400, 'VALIDATION_ERROR',
                      'The body is to be {"archive":"<base64 of a tar file>"}')
        if !defined $archive;

    my $report = sub { };

    if ($stream) {
        start_events($socket, $request);
        $report = sub { send_event($socket, $request, @_) };
    }

    my ($result, $failure) = deploy_steps($server, $archive, $report);

    print STDERR "deploy on $server ", $failure // 'ended', "\n";

    if ($stream) {
        $report->($failure ? (error => { code => 'DEPLOY_FAILED',
                                         message => $failure })
                           : (done => { success => JSON::PP::true,
                                        data => $result }));
        end_events($socket, $request);

    } elsif ($failure) {
        send_error($socket, $request, 422, 'DEPLOY_FAILED', $failure);

    } else {
        send_json($socket, $request, 200,
                  { success => JSON::PP::true, data => $result });
    }
}


# Takes the archive out before the rest is decoded: JSON::PP goes through a
# string character by character, which takes long over megabytes.

sub take_archive {
    my $body = shift;

    $$body =~ s{("archive"\s*:\s*")([A-Za-z0-9+/=\\]*)"}{$1"} or return;

    my $archive = $2;
    $archive =~ s{\\/}{/}g;

    my $order = eval { $json->decode($$body) };
    return if ref $order ne 'HASH' || ($order->{archive} // 'none') ne '';

    return if $archive eq '' || $archive =~ /\\/;

    return decode_base64($archive);
}


sub deploy_steps {
    my ($server, $archive, $report) = @_;

    my $home = "servers/$server";
    my $new = tempdir('release.XXXXXX', DIR => $home);
    my $files = 0;

    my @steps = (
        [unpack  => sub { unpack_archive($archive, $new) }],
        [check   => sub { ($files = count_files($new)) > 0
                              ? undef : 'the archive is empty' }],
        [install => sub { install_release($new, "$home/app") }],
        [restart => sub { undef }],
    );

    for my $number (1 .. @steps) {
        my ($name, $step) = @{ $steps[$number - 1] };

        $report->(progress => { step => $name, number => $number,
                                of => scalar @steps });
        sleep $option{step};

        if (defined(my $failure = $step->())) {
            remove_tree($new);
            return (undef, "$name: $failure");
        }
    }

    return { files => $files, bytes => length $archive };
}


# tar finds out by itself whether a file is compressed, but not for a pipe.

sub unpack_archive {
    my ($archive, $dir) = @_;

    my $file = "$dir.tar";

    open my $out, '>:raw', $file or return "$file: $!";
    print {$out} $archive;
    close $out or return "$file: $!";

    my $status = system 'tar', '-x', '--no-same-owner', '-C', $dir,
                        '-f', $file;
    unlink $file;

    return $status == 0 ? undef : 'this is no tar file';
}


sub count_files {
    my $dir = shift;

    my ($count, @dirs) = (0, $dir);

    while (defined(my $next = shift @dirs)) {
        opendir my $directory, $next or next;

        for my $name (grep { $_ ne '.' && $_ ne '..' } readdir $directory) {
            my $path = "$next/$name";

            if (-d $path && !-l $path) {
                push @dirs, $path;
            } else {
                $count++;
            }
        }
    }

    return $count;
}


sub install_release {
    my ($new, $app) = @_;

    remove_tree("$app.old");
    rename $app, "$app.old" or $!{ENOENT} or return "$app: $!";
    rename $new, $app or return "$app: $!";
    remove_tree("$app.old");

    return;
}


# Server-sent events, each as a chunk of its own.

sub start_events {
    my ($socket, $request) = @_;

    $request->{keepalive} = 0 if !$request->{minor};

    send_head($socket, $request, 200, 'Content-Type: text/event-stream',
              'Cache-Control: no-store', 'X-Accel-Buffering: no',
              $request->{minor} ? 'Transfer-Encoding: chunked' : ());
}


sub send_event {
    my ($socket, $request, $name, $data) = @_;

    my $event = "event: $name\ndata: " . $json->encode($data) . "\n\n";

    $event = sprintf "%x\r\n%s\r\n", length $event, $event
        if $request->{minor};

    send_bytes($socket, $request, $event);
}


sub end_events {
    my ($socket, $request) = @_;

    send_bytes($socket, $request, "0\r\n\r\n") if $request->{minor};
}

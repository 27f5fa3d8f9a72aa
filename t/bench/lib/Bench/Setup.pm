package Bench::Setup;

# What is measured, and beside what: servers, and the requests to them.
#
#   my $setup = Bench::Setup->new(
#       dir     => $directory,
#       module  => '/path/of.so',
#       servers => 1000,             in the registry, and asked for in turn
#       count   => 1,                under valgrind
#   );
#   $setup->start;
#   $setup->subjects                 the names of what is measured
#   $setup->subject('delete')        { name, nginx, port, request, status,
#                                      span }; undef where a part is missing
#   $setup->check_done               dies if something was not done that is
#                                    measured, though all was answered
#   $setup->stop;
#
# Two subjects that are compared answer the same bytes, which start() checks.

use strict;
use warnings;

use Carp qw(croak);
use Digest::SHA qw(sha256_hex);
use File::Basename qw(dirname);
use IO::Select;
use IO::Socket::INET;

use Bench::Machine qw(both_cpus client_cpu module pin redis_server);
use Bench::Nginx;
use Vibelock::Http qw(http_request);
use Vibelock::Redis;
use Vibelock::Util qw(read_file write_file);

use constant API_KEY => 'vl_live_0123456789abcdef0123456789abcdef';

# A server's id ends where the load generator counts.
use constant SERVER  => 'da76a437-284c-47fa-8462-';
use constant COUNTER => '@' x 12;
use constant FIRST   => '0' x 12;

my $servers = '~ ^/v1/infra/servers/(?<server_id>[^/]+)';

# Bodies of 300 bytes: a plain one, and one that has all that JSON has.

my $plain = sized('{"command":"cd /srv/app && ./bin/migrate --all %s",'
                  . '"timeout":60,"shell":true}');

my $rich = sized('{"command":["./bin/migrate","--all","%s"],'
                 . '"env":{"APP_ENV":"production","LANG":"C.UTF-8",'
                 . '"PATHS":["/srv/app/bin","/usr/bin"],"DEBUG":null},'
                 . '"note":"\"caf\u00e9\": ' . "d\xc3\xa9ploy\xc3\xa9" . '",'
                 . '"timeout":60,"shell":true}');

sub sized {
    my ($format) = @_;

    return sprintf $format, 'x' x (300 - length(sprintf $format, ''));
}

my $exec = <<'END';
    vibelock exec zone=ops;
    vibelock_ttl json=timeout default=60s add=90s max=1h;
    proxy_pass http://platform;
END

# By name: the nginx that serves it, the location, and the request.  Where
# "same" stands, the location returns what that other subject answers; where it
# is refused before that, "refused" is where it does. "asks" is who looks at the
# key and the server, "locks" who takes a lock and gives it back, "collects" who
# has garbage to collect, once in many requests.

my %subjects = (

    delete => {
        nginx => 'vibelock', method => 'DELETE', path => 'lock', asks => 1,
        conf => 'vibelock_release zone=ops;',
    },
    published => {
        nginx => 'bus', method => 'DELETE', path => 'lock', published => 1,
        asks => 1,
        conf => 'vibelock_release zone=ops;',
    },
    return200 => {
        nginx => 'plain', method => 'DELETE', path => 'lock',
        same => 'delete',
    },

    busy => {
        nginx => 'vibelock2', path => 'deploy', hot => 1, status => 409,
        asks => 1,
        conf => 'vibelock deploy zone=ops; empty_gif;',
    },
    return409 => {
        nginx => 'plain2', path => 'deploy', hot => 1, status => 409,
        same => 'busy',
    },
    limited409 => {
        nginx => 'limit2', path => 'deploy', hot => 1, status => 409,
        same => 'busy', refused => '@busy', conf => <<'END',
            limit_conn servers 1;
            limit_conn_status 409;
            error_page 409 @busy;
            empty_gif;
END
    },

    local => {
        nginx => 'plain', path => 'exec', conf => 'empty_gif;',
    },
    guarded => {
        nginx => 'bare', path => 'exec', locks => 1,
        conf => 'vibelock exec zone=ops; empty_gif;',
    },
    checked => {
        nginx => 'vibelock', path => 'exec', asks => 1, locks => 1,
        conf => 'vibelock exec zone=ops; empty_gif;',
    },
    limited => {
        nginx => 'limit', path => 'exec',
        conf => 'limit_conn servers 1; empty_gif;',
    },
    lua => {
        nginx => 'lua', path => 'exec', collects => 1, conf => <<'END',
            access_by_lua_block {
                local locks = ngx.shared.locks

                if not locks:add(ngx.var.server_id, 1, 900) then
                    return ngx.exit(409)
                end

                ngx.ctx.locked = true
            }
            log_by_lua_block {
                if ngx.ctx.locked then
                    ngx.shared.locks:delete(ngx.var.server_id)
                end
            }
            empty_gif;
END
    },
    lua_redis => {
        nginx => 'lua', path => 'exec', collects => 1, conf => <<'END',
            access_by_lua_block {
                return require("redis_lock").take(ngx.var.server_id)
            }
            log_by_lua_block {
                require("redis_lock").release()
            }
            empty_gif;
END
    },

    proxied => {
        nginx => 'plain', path => 'deploy',
        conf => 'proxy_pass http://platform;',
    },
    proxied_limited => {
        nginx => 'limit', path => 'deploy',
        conf => 'limit_conn servers 1; proxy_pass http://platform;',
    },
    proxied_guarded => {
        nginx => 'vibelock', path => 'deploy', asks => 1, locks => 1,
        conf => <<'END',
            vibelock deploy zone=ops;
            vibelock_ttl 15m;
            vibelock_overrun on;
            proxy_pass http://platform;
END
    },

    unguarded => {
        nginx => 'vibelock', path => 'exec', conf => 'empty_gif;',
    },

    post => {
        nginx => 'plain', method => 'POST', path => 'exec', body => $plain,
        conf => 'proxy_pass http://platform;',
    },
    exec => {
        nginx => 'vibelock', method => 'POST', path => 'exec', body => $plain,
        asks => 1, locks => 1, conf => $exec,
    },
    exec_rich => {
        nginx => 'vibelock', method => 'POST', path => 'exec', body => $rich,
        asks => 1, locks => 1, conf => $exec,
    },
);

sub new {
    my ($class, %how) = @_;

    my %own = map { $_ => { %{ $subjects{$_} }, name => $_ } } keys %subjects;

    return bless { servers => 1000, %how, subject => \%own, nginx => {} },
                 $class;
}

sub subjects { return sort keys %{ $_[0]{subject} } }

sub subject { return $_[0]{subject}{ $_[1] } }

sub start {
    my ($self) = @_;

    my $subject = $self->{subject};

    delete @$subject{qw(lua lua_redis)} unless lua_modules();
    delete @$subject{qw(lua_redis published)} unless redis_server();

    if (redis_server()) {
        $self->{redis} = Vibelock::Redis->start;
        pin($self->{redis}->pid, client_cpu());
    }

    for my $s (values %$subject) {
        $s->{method} //= 'GET';
        $s->{status} //= 200;
        $s->{span} = $s->{hot} ? 1 : $self->{servers};
        $s->{request} = request($s);
    }

    $self->start_upstream;
    $self->start_vibelock;
    $self->start_lua if $subject->{lua};
    $self->copy_answers;
    $self->start_limit;
    $self->start_plain;

    $self->check($_) for map { $subject->{$_} } $self->subjects;

    return $self;
}

sub stop {
    my ($self) = @_;

    $_->stop for values %{ $self->{nginx} };
    $self->{redis}->stop if $self->{redis};
    delete @$self{qw(redis held deaf)};

    return;
}

# The parts

sub start_nginx {
    my ($self, $name, %how) = @_;

    my @own = grep { $_->{nginx} eq $name } values %{ $self->{subject} };

    my $nginx = $self->{nginx}{$name} = Bench::Nginx->new(
        dir   => "$self->{dir}/$name",
        count => $self->{count},
        keep  => $self->{keep},
        %how,
        servers => {
            %{ $how{servers} || {} },
            map { $_->{name} => location($_) } @own,
        },
    );

    $nginx->start;

    for my $s (@own) {
        $s->{port} = $nginx->port($s->{name});
        $s->{nginx} = $nginx;
    }

    return;
}

sub location {
    my ($s) = @_;

    my $text = "location $servers/$s->{path}\$ {\n$s->{conf}\n}";

    $text .= "\nlocation $s->{refused} {\n$s->{answer}\n}" if $s->{refused};

    return $text;
}

sub start_upstream {
    my ($self) = @_;

    $self->start_nginx('upstream',
        cpu     => client_cpu(),
        count   => 0,
        servers => { upstream => 'location / { return 200 "done\n"; }' });

    my $port = $self->{nginx}{upstream}->port('upstream');

    $self->{platform} = <<"END";
        upstream platform {
            server 127.0.0.1:$port;
            keepalive 32;
        }

        proxy_ignore_client_abort on;
        proxy_http_version 1.1;
        proxy_set_header Host \$host;
        proxy_set_header Connection "";
END

    return;
}

sub start_vibelock {
    my ($self) = @_;

    my $zone = 'vibelock_zone $server_id zone=ops:10m sweep=1h;';
    my $registry = registry("$self->{dir}/registry.json", $self->{servers});
    my @modules = (modules => [$self->{module}]);
    my @status = (servers => status_server());

    $self->start_nginx('vibelock', @modules, @status,
        http => join "\n", $zone, $registry, $self->{platform});

    $self->start_nginx('bare', @modules, @status, http => $zone);

    $self->start_bus($zone) if $self->{subject}{published};

    $self->start_hot('vibelock2', @modules,
        http => join("\n", $zone, $registry),
        hold => 'vibelock deploy zone=ops; vibelock_ttl 1h;');

    return;
}

# Tells what was done.

sub status_server {
    return { status => 'location / { vibelock_status json; }' };
}

# The directive, and its file.

sub registry {
    my ($path, $servers) = @_;

    my $hash = sha256_hex(API_KEY);
    my @servers = map {
        sprintf '{"id":"%s%012x","key":"k1","kind":"STANDALONE"}', SERVER, $_
    } 0 .. $servers - 1;

    write_file($path, join '',
        '{"version":1,',
        qq("keys":[{"id":"k1","type":"api","sha256":"$hash"}],\n),
        '"servers":[', join(",\n", @servers), "]}\n");

    return "vibelock_registry $path check=1h;";
}

# Repeats of one release within a second go out as one: so many servers that
# none comes twice in that time.

sub start_bus {
    my ($self, $zone) = @_;

    my $servers = $self->{subject}{published}{span}
        = $self->{servers} * ($self->{count} ? 10 : 100);

    $self->start_nginx('bus', modules => [$self->{module}],
        servers => status_server(),
        http => join "\n", $zone,
            registry("$self->{dir}/registry_bus.json", $servers),
            'vibelock_redis redis://127.0.0.1:' . $self->{redis}->port . ';');

    return;
}

sub lua_modules {
    my @modules = map { module($_) // () }
                  qw(ndk_http_module ngx_http_lua_module);

    return @modules == 2 ? @modules : ();
}

sub start_lua {
    my ($self) = @_;

    my $http = 'lua_shared_dict locks 10m;';

    if ($self->{subject}{lua_redis}) {
        my $text = read_file(dirname(__FILE__) . '/../../redis_lock.lua');
        my $port = $self->{redis}->port;

        $text =~ s/REDIS_PORT/$port/;
        write_file("$self->{dir}/redis_lock.lua", $text);

        $http .= qq(\nlua_package_path "$self->{dir}/?.lua;;";);
    }

    $self->start_nginx('lua', modules => [lua_modules()], http => $http);

    return;
}

# Two workers that refuse a server's requests: one is held by an upstream that
# never answers.

sub start_hot {
    my ($self, $name, %how) = @_;

    my $deaf = $self->{deaf} //= IO::Socket::INET->new(
        LocalAddr => '127.0.0.1', Proto => 'tcp', Listen => 5,
    ) or croak "cannot listen: $!";

    my $port = $deaf->sockport;
    my $hold = delete $how{hold};

    $self->start_nginx($name,
        workers => 2,
        cpu     => both_cpus(),
        %how,
        servers => { hold => location({ path => 'deploy', conf => <<"END" }) });
            $hold
            proxy_read_timeout 1h;
            proxy_pass http://127.0.0.1:$port;
END

    my $nginx = $self->{nginx}{$name};
    my $request = $self->{subject}{busy}{request};

    push @{ $self->{held} }, send_to($nginx->port('hold'), $request);

    # It is held when its upstream is connected to; to ask earlier would be to
    # take it.

    IO::Select->new($deaf)->can_read(60)
        or croak "$name does not hold its server";

    push @{ $self->{held} }, $deaf->accept;

    return;
}

# What is set beside an answer gives the same bytes.

sub copy_answers {
    my ($self) = @_;

    my $subject = $self->{subject};

    for my $s (grep { $_->{same} } values %$subject) {
        $s->{answer} = returning($s, ask($subject->{ $s->{same} }));
        $s->{conf} //= $s->{answer};
    }

    return;
}

sub start_limit {
    my ($self) = @_;

    my $zone = 'limit_conn_zone $server_id zone=servers:10m;';

    $self->start_nginx('limit', http => "$zone\n$self->{platform}");
    $self->start_hot('limit2', http => $zone, hold => 'limit_conn servers 1;');

    return;
}

sub start_plain {
    my ($self) = @_;

    $self->start_nginx('plain', http => $self->{platform});
    $self->start_nginx('plain2', workers => 2, cpu => both_cpus());

    return;
}

# What makes nginx give this answer.

sub returning {
    my ($s, $answer) = @_;

    my ($head, $body) = split /\r\n\r\n/, $answer, 2;
    my @lines;

    # As long as an age will be while it is measured.
    $body =~ s/"ageMs":\d+/"ageMs":54321/;

    for my $line (split /\r\n/, $head) {
        my ($name, $value) = $line =~ /^([\w-]+): (.*)$/ or next;

        next if $name =~ /^(Server|Date|Content-Length|Connection)$/;

        push @lines, $name eq 'Content-Type'
            ? "default_type $value;" : "add_header $name \"$value\" always;";
    }

    return join "\n", @lines, "return $s->{status} '$body';";
}

# Requests

sub request {
    my ($s) = @_;

    my $id = SERVER . ($s->{hot} ? FIRST : COUNTER);
    my $body = $s->{body} // '';

    return join "\r\n",
        "$s->{method} /v1/infra/servers/$id/$s->{path} HTTP/1.1",
        'Host: localhost',
        'User-Agent: bench/1.0',
        'Accept: */*',
        'X-Api-Key: ' . API_KEY,
        $body eq '' ? () : ('Content-Type: application/json',
                            'Content-Length: ' . length $body),
        '', $body;
}

sub send_to {
    my ($port, $request) = @_;

    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $port,
    ) or croak "port $port: $!";

    $request =~ s/\@{12}/@{[ FIRST ]}/;
    syswrite $socket, $request;

    return $socket;
}

sub ask {
    my ($s) = @_;

    my $socket = send_to($s->{port}, $s->{request});
    my $text = '';

    until (is_whole($text)) {
        IO::Select->new($socket)->can_read(60)
            && sysread($socket, $text, 65536, length $text)
            or croak "$s->{name} does not answer: $text";
    }

    return $text;
}

sub is_whole {
    my ($text) = @_;

    my ($head, $body) = split /\r\n\r\n/, $text, 2;

    return defined $body && $head =~ /\r\nContent-Length: (\d+)/
        && length $body >= $1;
}

# An answer is what it should be, and as long as the one it is set beside.

sub check {
    my ($self, $s) = @_;

    my $answer = ask($s);

    croak "$s->{name} answers $answer"
        unless $answer =~ m{^HTTP/1\.1 $s->{status} };

    $self->check_asks($s) if $s->{asks};

    return unless $s->{same};

    my $one = shape($answer);
    my $other = shape(ask($self->{subject}{ $s->{same} }));

    croak "$s->{name} and $s->{same} do not answer alike:\n$one\n$other"
        unless $one eq $other;

    return;
}

# Neither a key that is not in the registry passes nor a server.

sub check_asks {
    my ($self, $s) = @_;

    my $id = $s->{hot} ? FIRST : COUNTER;
    my $none = 'f' x length $id;

    my $key = ask({ %$s, request => $s->{request} =~ s/vl_live_/vl_dead_/r });
    my $server = ask({ %$s, request => $s->{request} =~ s/\Q$id/$none/r });

    croak "$s->{name} does not ask for the key: $key"
        unless $key =~ m{^HTTP/1\.1 401 };
    croak "$s->{name} does not ask for the server: $server"
        unless $server =~ m{^HTTP/1\.1 404 };

    return;
}

# A request that took no lock costs less than one that did. So does a release
# that was merged, or lost as too many waited, or was not read back.

sub check_done {
    my ($self) = @_;

    my (%sent, $count);

    for my $s (values %{ $self->{subject} }) {
        $sent{ $s->{nginx}{dir} } += $s->{sent} // 0 if $s->{locks};
    }

    for my $nginx (values %{ $self->{nginx} }) {
        my $sent = $sent{ $nginx->{dir} } or next;

        for my $done (qw(acquired released)) {
            $count = counter($nginx, $done);

            croak "of $sent requests only $count have $done a lock"
                if $count < $sent;
        }
    }

    my $s = $self->{subject}{published} or return;

    for my $done (qw(published received)) {
        $count = counter($s->{nginx}, $done);

        croak "of $s->{sent} releases only $count were $done"
            if $count < 0.95 * ($s->{sent} // 0);
    }

    return;
}

sub counter {
    my ($nginx, $name) = @_;

    my $status = http_request(port => $nginx->port('status'))->body;

    return $status =~ /"$name":(\d+)/
        ? $1 : croak "the status has no $name: $status";
}

# An answer without what changes by the second, its headers in order.

sub shape {
    my ($text) = @_;

    $text =~ s/^Date: .*\r\n//m;
    $text =~ s/^(Retry-After|Content-Length): \d+/$1: N/mg;
    $text =~ s/"(retryAfter|ageMs|expiresInMs)":\d+/"$1":N/g;

    my ($head, $body) = split /\r\n\r\n/, $text, 2;
    my ($status, @headers) = split /\r\n/, $head;

    return join "\n", $status, sort(@headers), '', $body;
}

1;

#!/usr/bin/perl

# vibelock_keep: an operation that says it is not over.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start(handler => sub {
    my ($request) = @_;

    my ($status, $running, $other) = $request->{uri} =~ m{/(\d+)/(.*?)/(.*?)\?};

    return ($status, {
        length $running ? ('X-Operation-Running' => $running) : (),
        length $other ? ('X-Other' => $other) : (),
    }, 'answer');
});
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_owner me;
    vibelock exec zone=ops;
    vibelock_keep $upstream_http_x_operation_running $upstream_http_x_other;
    merge_slashes off;

    map $upstream_status $keep {
        default 0;
        202     1;
    }
EOC
$t->server(<<'EOC');
    location / {
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /never/ {
        vibelock_keep "";
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /always/ {
        vibelock_keep yes;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /status/ {
        vibelock_keep $keep;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /hidden/ {
        proxy_hide_header X-Operation-Running;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /page/ {
        proxy_intercept_errors on;
        error_page 503 /local;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /next/ {
        proxy_intercept_errors on;
        error_page 503 = @next;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location @next {
        rewrite ^ /200//?x break;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /local {
        vibelock off;
        return 200 "local\n";
    }
    location = /lock {
        vibelock off;
        vibelock_release zone=ops;
    }
EOC
$t->start;

my $n = 0;

# What became of the lock: the log's word, and whether it is there.

sub end_is {
    my ($path, $expected, $name) = @_;

    my $id = ++$n;
    $t->post("$path?id=$id");

    $t->access_like(qr/^\w+ \S+\?id=$id \d+ result=/m);
    my ($result) = $t->access_log =~ /^\w+ \S+\?id=$id \d+ result=(\S+)/m;
    my $state = $t->get("/lock?id=$id")->json->{data}{state} // 'free';

    return is("$result $state", $expected, $name);
}

my ($kept, $released) = ('KEPT stuck', 'RELEASED free');

end_is('/200//', $released, 'no header: released');
end_is('/200/0/', $released, '"0": released');
end_is('/200/1/', $kept, '"1": kept');
end_is('/200/true/', $kept, '"true": kept');
end_is('/200/false/', $kept, '"false" is neither empty nor "0": kept');
end_is('/200/00/', $kept, '"00": kept');
end_is('/200/0.0/', $kept, '"0.0": kept');
end_is('/200/-0/', $kept, '"-0": kept');
end_is('/200//1', $kept, 'the second value alone: kept');
end_is('/200/0/1', $kept, 'either of them: kept');
end_is('/200/1/0', $kept, 'whichever comes first');
end_is('/500/1/', $kept, 'of an error as well: kept');
end_is('/204/1/', $kept, 'of an answer without a body: kept');
end_is('/never/200/1/', $released, 'an empty value never keeps');
end_is('/always/200//', $kept, 'a constant always keeps');
end_is('/status/202//', $kept, 'by status, with a map: kept');
end_is('/status/200//', $released, 'by status, with a map: released');
end_is('/hidden/200/1/', $kept, 'a header that the client does not see: kept');
end_is('/page/503/1/', $kept, 'error_page makes a page of it: kept');
end_is('/page/503//', $released, 'error_page, and nothing to keep: released');
end_is('/next/503/1/', $kept, 'error_page goes on to another upstream: kept');

ok($t->log_like(qr/\[warn\].*vibelock: lock is stuck: vibelock_keep says so, /),
   'the log says why');

$t->done;

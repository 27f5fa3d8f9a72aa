#!/usr/bin/perl

# vibelock_zone's key: what may be locked, and what an empty key means.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start(handler => sub { return 200 });
my $t = Vibelock::Test->new(workers => 2);

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $id zone=ops:1m;
    vibelock_zone $server_port:$arg_a:$http_x_b zone=compound:1m;
    vibelock_zone fixed zone=fixed:64k;
    vibelock_owner me;
    vibelock_server_kind STANDALONE;
    vibelock_keep 1;
EOC
$t->server(<<'EOC');
    location ~ ^/exec/(?<id>[^/]*) {
        vibelock exec zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location ~ ^/lock/(?<id>[^/]*) {
        vibelock_release zone=ops;
    }
    location ~ ^/unstick/(?<id>[^/]*) {
        vibelock_unstick zone=ops;
    }
    location /compound {
        vibelock exec zone=compound;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /fixed {
        vibelock exec zone=fixed;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
EOC
$t->start;

sub escaped { return join '', map { sprintf '%%%02X', ord } split //, $_[0] }

# Locks the key, finds it busy, sees and breaks it; or what was said instead.

sub life {
    my ($key) = @_;

    my $id = escaped($key);
    my @got = (
        $t->post("/exec/$id")->status,
        $t->post("/exec/$id")->status,
        $t->get("/lock/$id")->body =~ /"locked":true/ ? 'locked' : 'free',
        $t->delete("/lock/$id")->body =~ /"released":true/ ? 'broken' : 'not',
    );

    return "@got";
}

sub is_good { return is(life($_[0]), '200 409 locked broken', $_[1]) }

sub is_refused {
    my ($key, $name) = @_;

    my $id = escaped($key);

    return is(join(' ', map {
        my $r = $t->request($_->[0], "/$_->[1]/$id");
        $r->status . ($r->body =~ /VALIDATION_ERROR/ ? '' : '?');
    } [POST => 'exec'], [GET => 'lock'], [DELETE => 'lock'],
      [POST => 'unstick']), '400 400 400 400', $name);
}

subtest 'an empty key' => sub {
    for (1 .. 6) {
        is($t->post('/exec/')->status, 200, 'runs without a lock');
    }

    is($t->get('/lock/')->status, 404, '404 at the endpoint');
    is($t->delete('/lock/')->status, 404, '404 for DELETE');
    is($t->post('/unstick/')->status, 404, '404 at unstick');

    ok($t->access_like(qr{^POST /exec/ 200 result=BYPASSED}m), 'BYPASSED');

    my @lines = $t->error_log =~ /(\[warn\].*the key "\$id" of zone "ops" is empty, operation "exec" runs without a lock)/g;
    is(scalar @lines, 1, 'logged once a minute');
};

subtest 'length' => sub {
    is_good('x', '1 byte');
    is_good('x' x $_, "$_ bytes") for 36, 64, 119, 120, 121, 254, 255;
    is_good("\xc3\xa9" x 127, '254 bytes of UTF-8');
    is_good("\xe2\x82\xac" x 85, '255 bytes of UTF-8');
    is_refused('x' x 256, '256 bytes');
    is_refused('x' x 2000, '2000 bytes');
    is_refused("\xe2\x82\xac" x 85 . 'x', '256 bytes of UTF-8');
};

subtest 'every byte' => sub {
    my (@ascii, @refused);

    # "/" parts keys here, and NUL is refused by nginx.
    for my $byte (1 .. 255) {
        next if chr $byte eq '/';
        my $status = $t->post('/exec/byte' . escaped(chr $byte))->status;
        push @{ $status == 200 ? \@ascii : \@refused }, $byte;
    }

    is_deeply(\@ascii, [grep { chr ne '/' } 1 .. 127],
              'all of ASCII, each of its own');
    is_deeply(\@refused, [128 .. 255], 'none that is alone above it');

    my @left = grep {
        $t->delete('/lock/byte' . escaped(chr $_))->body !~ /"released":true/
    } @ascii;
    is_deeply(\@left, [], 'each is found again');
};

subtest 'UTF-8' => sub {
    is_good("\xc2\x80", 'U+0080');
    is_good("\xdf\xbf", 'U+07FF');
    is_good("\xe0\xa0\x80", 'U+0800');
    is_good("\xed\x9f\xbf", 'U+D7FF');
    is_good("\xee\x80\x80", 'U+E000');
    is_good("\xef\xbf\xbf", 'U+FFFF');
    is_good("\xf0\x90\x80\x80", 'U+10000');
    is_good("\xf4\x8f\xbf\xbf", 'U+10FFFF');

    is_refused("\x80", 'a lone continuation');
    is_refused("\xc0\x80", 'U+0000 in two bytes');
    is_refused("\xc1\xbf", 'U+007F in two bytes');
    is_refused("\xe0\x80\xaf", 'a slash in three bytes');
    is_refused("\xe0\x9f\xbf", 'U+07FF in three bytes');
    is_refused("\xf0\x8f\xbf\xbf", 'U+FFFF in four bytes');
    is_refused("\xed\xa0\x80", 'a surrogate');
    is_refused("\xed\xbf\xbf", 'the last surrogate');
    is_refused("\xf4\x90\x80\x80", 'past U+10FFFF');
    is_refused("\xf5\x80\x80\x80", 'U+140000');
    is_refused("\xf8\x88\x80\x80\x80", 'five bytes');
    is_refused("\xf8\x90\x80\x80", 'four bytes after F8');
    is_refused("\xff\xfe", 'a byte order mark of UTF-16');
    is_refused("a\xc3", 'cut off after one byte of two');
    is_refused("a\xe2\x82", 'cut off after two bytes of three');
    is_refused("a\xf0\x9f\x98", 'cut off after three bytes of four');
    is_refused("\xc3(", 'no continuation');
    is_refused("\xe2(\xa1", 'no continuation in the middle');
    is_refused("\xc2\xc2", 'a beginning in the place of a continuation');
    is_refused("\xe2\x82\xfe", 'a byte that never is in UTF-8, as the last');
    is_refused("\xf0\xdf\xbf\x80", 'two bytes of another in the middle');
    is_refused("servers of \xea\xc5\xb6", 'behind ASCII');
};

subtest 'keys match exactly' => sub {
    is($t->post('/exec/case')->status, 200, 'one');
    is($t->post('/exec/CASE')->status, 200, 'case');
    is($t->post('/exec/case%20')->status, 200, 'a blank behind it');
    is($t->post('/exec/cas')->status, 200, 'shorter');
    is($t->post('/exec/case%09')->status, 200, 'a tab behind it');
    is($t->post('/exec/%63ase')->status, 409, 'another way to write it');
};

subtest 'made of several variables' => sub {
    my $post = sub {
        my ($a, $b) = @_;
        $t->post("/compound?a=$a", headers => { 'X-B' => $b })->status;
    };

    is($post->(1, 2), 200, 'one');
    is($post->(1, 2), 409, 'the same');
    is($post->(1, 3), 200, 'another');
    is($post->(2, 2), 200, 'and another');
};

subtest 'without a variable' => sub {
    is($t->post('/fixed?id=1')->status, 200, 'one operation');
    is($t->post('/fixed?id=2')->status, 409, 'at a time');
};

subtest 'in the log' => sub {
    $t->delete('/lock/' . escaped(qq(a"b\\c\nd\x7fe\xc3\xa9)));
    $t->post('/exec/' . escaped(qq(a"b\\c\nd\x7fe\xc3\xa9)));
    ok($t->log_like(qr/key "a\\x22b\\x5Cc\\x0Ad\\x7Fe\xc3\xa9", operation/),
       'quotes, backslashes and control characters are escaped');
};

$t->done;

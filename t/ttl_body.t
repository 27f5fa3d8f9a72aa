#!/usr/bin/perl

# vibelock_ttl json=: which bodies are JSON objects, and how they may come.

use strict;
use warnings;

use Test::More;

use Vibelock::Ttl qw(ttl body_is);

my $exec = 'vibelock_ttl json=timeout default=60s add=90s max=1h;';
my ($t, $up) = Vibelock::Ttl::gateway(
    'file'         => "$exec client_body_in_file_only clean;",
    'small-buffer' => "$exec client_body_buffer_size 16;",
    'unbuffered'   => "$exec proxy_request_buffering off;",
    'after'        => "$exec post_action /exec/echo;",
);

subtest 'no JSON object' => sub {
    for my $body ('[]', '5', '"timeout"', 'null', 'true', ' ', "\n", '{', '}',
                  '{"timeout":5', '{"timeout":5}}', '{"timeout":5} {}',
                  '{"timeout":5},', '{timeout:5}', "{'timeout':5}",
                  '{"timeout":5,}', '{,"timeout":5}', '{"timeout" 5}',
                  '{"timeout":}', '{"timeout":05}', '{"timeout":+5}',
                  '{"timeout":.5}', '{"timeout":5.}', '{"timeout":5e}',
                  '{"timeout":0x5}', '{"timeout":NaN}', '{"timeout":Infinity}',
                  '{"timeout":-}', '{"timeout":--5}', '{"timeout":5 5}',
                  '{"timeout":nul}', '{"timeout":True}', '{"timeout":"5}',
                  '{"a":"\x","timeout":5}', '{"a":"\u12","timeout":5}',
                  '{"a":"\ud83d","timeout":5}', '{"a":[},"timeout":5}',
                  '{"a":[1,],"timeout":5}', '{"timeout":5}/* */',
                  '// x', 'timeout=5')
    {
        body_is($body, 'object');
    }

    body_is("\xef\xbb\xbf{\"timeout\":5}", 'object', 'a byte order mark');
    body_is("{\"timeout\":5}\0", 'object', 'a NUL behind it');
    body_is("{\"timeout\0\":5}", 'object', 'a NUL in the name');
    body_is("{\"timeout\":5\0}", 'object', 'a NUL behind the number');
    body_is("\0{\"timeout\":5}", 'object', 'a NUL before it');
    body_is("{\"a\":\"\n\",\"timeout\":5}", 'object', 'a line break in a string');
    body_is("{\"a\":\"\xff\",\"timeout\":5}", 'object', 'not UTF-8');
    body_is("{\"a\":\"\xed\xa0\x80\",\"timeout\":5}", 'object',
            'a surrogate in UTF-8');
    body_is("{\"\xc0\xaf\":1,\"timeout\":5}", 'object', 'overlong UTF-8');
    body_is("\x0b{\"timeout\":5}", 'object', 'a vertical tab');
    body_is("{\"timeout\":5\xc2\xa0}", 'object', 'a no-break space');
};

subtest 'duplicate members' => sub {
    body_is('{"timeout":5,"timeout":5}', 'object', 'the field, equal');
    body_is('{"timeout":5,"timeout":6}', 'object', 'the field');
    body_is('{"timeout":null,"timeout":6}', 'object', 'the field, once null');
    body_is('{"timeout":5,"t\u0069meout":6}', 'object', 'the field, escaped');
    body_is('{"timeout":"x","timeout":6}', 'object', 'the field, once a string');
    body_is('{"a":1,"timeout":5,"a":2}', 'object', 'another member');
    body_is('{"a":{"b":1,"b":2},"timeout":5}', 'object', 'a deeper member');
    body_is('{"a":[{"b":1,"b":2}],"timeout":5}', 'object', 'in a list');
    body_is('{"a":{"timeout":1},"b":{"timeout":2},"timeout":5}', 95_000,
            'of different objects they are no duplicates');
};

subtest 'many members' => sub {
    for my $n (1, 15, 16, 17, 40, 1000) {
        my $members = join ',', map { "\"m$_\":\"x\"" } 1 .. $n;

        body_is("{$members,\"timeout\":5}", 95_000, "behind $n others");
        body_is("{\"timeout\":5,$members}", 95_000, "before $n others");
        body_is("{\"timeout\":5,$members,\"timeout\":5}", 'object',
                "twice, around $n others");
        body_is("{$members,\"m1\":1,\"timeout\":5}", 'object',
                "another twice, of $n");
        body_is("{$members}", 150_000, "none, of $n");
    }
};

subtest 'how the body comes' => sub {
    my $large = '{"timeout":5,"a":"' . 'x' x 300_000 . '"}';

    is(ttl('exec', body => $large), 95_000, 'in a temporary file');
    is(ttl('file', body => '{"timeout":5}'), 95_000, 'in a file only');
    is(ttl('file', body => ''), 150_000, 'in a file only, empty');
    is(ttl('small-buffer', body => '{"a":"' . 'x' x 90 . '","timeout":5}'),
       95_000, 'in a buffer of 16 bytes');
    is(ttl('unbuffered', body => $large), 95_000, 'with proxy_request_buffering off');
    is(ttl('exec', body => '{"timeout":5}', slowly => 1), 95_000,
       'byte by byte');
    is(ttl('exec', chunks => [split //, '{"timeout":5}']), 95_000,
       'in chunks of a byte');
    is(ttl('exec', chunks => [$large =~ /(.{1,7000})/g]), 95_000,
       'in many chunks');
    is(ttl('exec', body => '{"timeout":5}', expect => 1), 95_000,
       'with Expect: 100-continue');
    is(ttl('exec', json => { timeout => 5 },
           headers => { 'Content-Type' => 'text/plain' }), 95_000,
       'whatever its Content-Type');
    is(ttl('exec', body => '{"timeout":5}', version => '1.0'), 95_000,
       'in HTTP/1.0');

    is($t->get('/exec/ok?id=get')->status, 200, 'GET');
    is($t->request(PUT => '/exec/ok?id=put', body => '{"timeout":0}')->status,
       400, 'PUT is asked as well');
};

subtest 'what the upstream gets of it' => sub {
    my $n = 0;

    for my $where ('exec', 'file', 'small-buffer', 'unbuffered') {
        for my $size (1, 100, 30_000, 300_000) {
            my $body = '{"timeout":5,"a":"'
                . substr(join(' ', 1 .. $size), 0, $size) . '"}';
            my $gets = sub {
                my ($how, @body) = @_;

                my $r = $t->post("/$where/echo?id=gets" . ++$n, @body);

                # Too long to be shown where it is another.
                ok($r->status == 200 && $r->json->{body} eq $body,
                   "$where: $size bytes, $how");
            };

            $gets->('in one piece', body => $body);
            $gets->('in chunks', chunks => [$body =~ /(.{1,7000})/g]);
            $gets->('byte by byte', body => $body, slowly => 1)
                if $size < 1000;
        }
    }

    # It is still there after the answer.

    for my $body ('{"timeout":5}', '{"timeout":5,"a":"' . 'x' x 300_000 . '"}')
    {
        my $before = () = $up->requests;
        my $size = length $body;

        is($t->post('/after/ok?id=after' . ++$n, body => $body)->status, 200,
           "$size bytes, with a post_action");
        ok($up->wait_requests($before + 2), 'which follows');
        is_deeply([map { $_->{body_length} } ($up->requests)[-2, -1]],
                  [$size, $size], 'and gets them as well');
    }
};

subtest 'a megabyte' => sub {
    my $json = '{"timeout":5,"a":"' . 'x' x (1_048_576 - 20) . '"}';

    is(length $json, 1_048_576, 'exactly');
    is(ttl('exec', body => $json), 95_000, 'is fine, with Content-Length');
    is(ttl('exec', chunks => [$json =~ /(.{1,60000})/g]), 95_000,
       'is fine, chunked');
    is(ttl('unbuffered', body => $json), 95_000, 'is fine, unbuffered');
    is(ttl('exec', body => "$json "), 'size', 'a byte more, with Content-Length');
    is(ttl('exec', chunks => ["$json "]), 'size', 'a byte more, chunked');
    is(ttl('file', chunks => ["$json "]), 'size', 'a byte more, in a file');

    my $c = $t->connect;
    $c->send_raw("POST /exec/ok?id=big HTTP/1.1\r\nHost: x\r\n"
                 . "Content-Length: 1048577\r\n\r\n");
    is($c->read_response->status, 400, 'is known before the body comes');
    $c->close;
};

$t->done;

#!/usr/bin/perl

# vibelock_ttl: how long a lock lasts, and what a JSON body may say about it.
#
# vibelock_keep leaves every lock here, and what DELETE says of its age and its
# rest makes the TTL, to the millisecond.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_owner me;
    vibelock_keep 1;

    client_max_body_size 0;
    proxy_http_version 1.1;
EOC
$t->server(<<'EOC');
    location /unset/ {
        vibelock exec zone=ops;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /fixed/ {
        vibelock exec zone=ops;
        vibelock_ttl 1h30m;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /long/ {
        vibelock exec zone=ops;
        vibelock_ttl 30d;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /exec/ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /plain/ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /max/ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout max=30d;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /small/ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout max=1500ms add=1ms;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /field/ {
        vibelock exec zone=ops;
        vibelock_ttl json=a.b-ц default=1s;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /file/ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        client_body_in_file_only clean;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /small-buffer/ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        client_body_buffer_size 16;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location /unbuffered/ {
        vibelock exec zone=ops;
        vibelock_ttl json=timeout default=60s add=90s max=1h;
        proxy_request_buffering off;
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
    location = /lock {
        vibelock_release zone=ops;
    }
EOC
$t->start;

my $n = 0;

# The TTL in ms that the request gave, or what it was refused with.

sub ttl {
    my ($path, %how) = @_;

    my $id = ++$n;
    my $r = $t->post("/$path/ok?id=$id", %how);
    my $lock = $t->delete("/lock?id=$id")->json->{data};

    if ($r->status == 400) {
        return 'locked all the same' if $lock->{released};
        return $r->json->{error}{message} =~ /^(\w+ must be a number)/ ? 'number'
            : $r->json->{error}{message} =~ /JSON object/ ? 'object'
            : $r->json->{error}{message} =~ /1 MB/ ? 'size' : $r->describe;
    }

    return $r->describe if $r->status != 200 || !$lock->{released};

    return $lock->{ageMs} + $lock->{expiresInMs};
}

sub body_is {
    my ($body, $expected, $name) = @_;

    return is(ttl('exec', body => $body), $expected,
              'body: ' . ($name // $body));
}

subtest 'fixed' => sub {
    is(ttl('unset'), 900_000, '15 minutes when nothing is said');
    is(ttl('fixed'), 5_400_000, '1h30m');
    is(ttl('long'), 30 * 86_400_000, '30 days, past 32 bits of ms');
    is(ttl('fixed', body => '{"timeout":5}'), 5_400_000,
       'whatever the body says');
    is(ttl('fixed', body => 'no JSON'), 5_400_000, 'whatever the body is');
};

subtest 'numbers' => sub {
    body_is('{"timeout":5}', 95_000);
    body_is('{"timeout":1}', 91_000);
    body_is('{"timeout":3600}', 3_690_000, 'max itself');
    body_is('{"timeout":1.5}', 91_500);
    body_is('{"timeout":0.001}', 90_001);
    body_is('{"timeout":0.0001}', 90_001, '0.0001, rounded up');
    body_is('{"timeout":1e-300}', 90_001);
    body_is('{"timeout":1.0}', 91_000);
    body_is('{"timeout":1e3}', 1_090_000);
    body_is('{"timeout":1E+3}', 1_090_000);
    body_is('{"timeout":36000e-1}', 3_690_000);
    body_is('{"timeout":3600.000}', 3_690_000);
    body_is('{"timeout":5.0000000000000000000000000001}', 95_000,
            'more digits than a double has');
    body_is('{"timeout":4.035}', 94_035, '4.035, which times 1000 is more');
    body_is('{"timeout":0.' . '0' x 400 . '1}', 'number', 'too small to be one');
};

subtest 'no positive number, or over the limit' => sub {
    for my $value ('0', '-0', '0.0', '-0.0', '0e5', '-1', '-1.5', '-1e308',
                   '3600.001', '3601', '1e4', '1e308', '1e309', '-1e309',
                   '99999999999999999999', '-99999999999999999999',
                   '999999999', '9999999999', '4294967301',
                   '9223372036854775807', '9223372036854775808',
                   '18446744073709551616', '4294967297',
                   '1' . '0' x 400,
                   '"60"', '""', 'true', 'false', '[]', '[60]', '{}',
                   '{"timeout":60}')
    {
        my $name = length $value > 40 ? '400 zeros' : $value;
        body_is("{\"timeout\":$value}", 'number', "timeout $name");
    }
};

subtest 'no number there' => sub {
    is(ttl('exec'), 150_000, 'no body');
    body_is('', 150_000, 'an empty body');
    is(ttl('exec', chunks => []), 150_000, 'an empty chunked body');
    body_is('{}', 150_000);
    body_is('{"timeout":null}', 150_000);
    body_is('{"command":"ls"}', 150_000);
    body_is('{"Timeout":5}', 150_000, 'names match exactly: Timeout');
    body_is('{"timeout ":5}', 150_000, 'names match exactly: "timeout "');
    body_is('{"":5}', 150_000, 'a member without a name');
    body_is('{"a":{"timeout":5}}', 150_000, 'a deeper member');
    body_is('{"a":"\"timeout\":5"}', 150_000, 'the name in a string');
    body_is('{"a":"}","timeout":5}', 95_000, 'a brace in a string');
    body_is('{"a":"\\\\","timeout":5}', 95_000, 'a backslash before a quote');
    body_is('{"a":[{"timeout":1},[2,{}]],"timeout":5,"b":{}}', 95_000,
            'between others');
    body_is("\x20\t\r\n{ \"timeout\" :\n5 }\r\n\t", 95_000, 'white space');
    body_is('{"t\u0069meout":5}', 95_000, 'an escape in the name');
    body_is('{"\u0074\u0069\u006d\u0065\u006f\u0075\u0074":5}', 95_000,
            'a name of nothing but escapes');
    body_is('{"a":123456789012345678901234567890,"timeout":5}', 95_000,
            'a large number beside it');
    body_is('{"a":"\u0000","timeout":5}', 95_000, 'an escaped NUL beside it');
    body_is("{\"a\":\"\xd0\xb9\",\"timeout\":5}", 95_000, 'UTF-8 beside it');
    body_is('{"a":"\ud83d\ude00","timeout":5}', 95_000,
            'a pair of surrogates beside it');
    body_is('{"a":' . '[' x 100 . ']' x 100 . ',"timeout":5}', 95_000,
            'a hundred lists in each other');
};

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

subtest 'default, add and max' => sub {
    is(ttl('plain'), 900_000, 'default is 15 minutes');
    is(ttl('plain', json => { timeout => 7 }), 7000, 'add is 0');
    is(ttl('plain', json => { timeout => 2_592_000 }), 2_592_000_000,
       'max is 30 days');
    is(ttl('plain', json => { timeout => 2_592_001 }), 'number', 'and no more');
    is(ttl('max', json => { timeout => 2_592_000 }), 2_592_000_000,
       'max may be 30 days');
    is(ttl('small', json => { timeout => 1.5 }), 1501, 'max in ms');
    is(ttl('small', body => '{"timeout":1.5001}'), 'number', 'just over it');
    is(ttl('small'), 1501, 'the default is max, where that is shorter');
    is(ttl('field', body => '{"a.b-ц":3}'), 3000, 'an odd name of a field');
    is(ttl('field', body => '{"a":{"b-ц":3}}'), 1000, 'a dot is no path');
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

    my $before = () = $up->requests;
    $t->post('/exec/echo?id=whole', body => $large);
    is(($up->requests)[-1]{body_length}, length $large,
       'the upstream gets all of it');

    $before = () = $up->requests;
    is($t->get('/exec/ok?id=get')->status, 200, 'GET');
    is($t->request(PUT => '/exec/ok?id=put', body => '{"timeout":0}')->status,
       400, 'PUT is asked as well');
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

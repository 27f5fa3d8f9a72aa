#!/usr/bin/perl

# vibelock_ttl: how long a lock lasts, and what a JSON body may say about it.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Ttl qw(ttl body_is);

Vibelock::Ttl::gateway(
    unset => '',
    fixed => 'vibelock_ttl 1h30m;',
    long  => 'vibelock_ttl 30d;',
    plain => 'vibelock_ttl json=timeout;',
    max   => 'vibelock_ttl json=timeout max=30d;',
    small => 'vibelock_ttl json=timeout max=1500ms add=1ms;',
    exact => 'vibelock_ttl json=timeout max=2007ms;',
    field => 'vibelock_ttl json=a.b-ц default=1s;',
);

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
    body_is('{"timeout":4.035}', 94_035);
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
    is(ttl('exact', body => '{"timeout":2.007}'), 2007,
       'max itself, which times 1000 is over 2007');
    is(ttl('small'), 1501, 'the default is max, where that is shorter');
    is(ttl('field', body => '{"a.b-ц":3}'), 3000, 'an odd name of a field');
    is(ttl('field', body => '{"a":{"b-ц":3}}'), 1000, 'a dot is no path');
};

Vibelock::Test->done;

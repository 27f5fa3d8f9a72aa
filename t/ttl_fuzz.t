#!/usr/bin/perl

# The scanner of plain bodies takes any bytes, and what it says of them is what
# jansson says.

use strict;
use warnings;

use Test::More;

use Vibelock::Fuzz;

my $body = '{"command":"cd /srv && ./bin/migrate --all","timeout":60,'
    . '"shell":true}';

# What a string may not have, and what comes next to it, where many bytes are
# looked at together.

my %bytes = map {
    sprintf('byte%02x', $_) => '{"timeout":5,"command":"' . 'x' x 20
                               . chr($_) . 'x' x 20 . '"}'
} 0x00, 0x01, 0x1f .. 0x23, 0x5b .. 0x5d, 0x7f, 0x80, 0x9f, 0xff;

Vibelock::Fuzz::run_test(
    target    => 'scan',
    sources   => [qw(scan plain)],
    libraries => ['-ljansson'],
    max       => 400,
    seeds     => {
        %bytes,
        body    => $body,
        spaces  => $body =~ s/([,:])/ $1\t\r\n/gr,
        long    => $body =~ s/all/'x' x 100/er,
        twice   => $body =~ s/shell/timeout/r,
        null    => $body =~ s/60/null/r,
        escapes => $body =~ s/srv/\\"\\\\\\\/\\b\\f\\n\\r\\t\\u0041/r,
        nested  => '{"env":{"timeout":1},"timeout":[]}',
        levels  => '{"a":[{"b":[{},[]],"c":{"d":1,"e":[2,null]}},3],"b":{}}',
        deeper  => '{"a":[[[[[1]]]]],"timeout":5}',
        double  => '{"a":{"b":1,"c":{"b":1},"b":2},"timeout":5}',
        texts   => '{"a":"\u0000","b":"\ud83d\ude00","c":"\uDFFF\u20aC"}',
        utf8    => "{\"a\":\"\xd1\x8f \xe2\x82\xac \xf0\x9f\x98\x80\","
                   . "\"b\":\"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\","
                   . "\"c\":\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"}",
        overlong => "{\"a\":\"\xe0\x9f\xbf \xc1\xbf \xf0\x8f\xbf\xbf\"}",
        beyond  => "{\"a\":\"\xed\xa0\x80 \xf4\x90\x80\x80\"}",
        real    => '{"timeout":1.5e3}',
        big     => '{"timeout":999999999}',
        bigger  => '{"timeout":999999999999999999,"a":1000000000000000000}',
        numbers => '{"a":-0,"b":-5.0,"c":0.50,"timeout":5}',
        point   => '{"a":1.,"timeout":5}',
        minus   => '{"a":-.5,"timeout":5}',
        sign    => '{"timeout":-5}',
        pairs   => '{"a":"\ud83d\ude00 \uDBFF\uDFFF \ud800\u0041"}',
        members => '{' . join(',', map { "\"m$_\":$_" } 1 .. 33) . '}',
        empty   => '{}',
    },
    words     => [split ' ', '"timeout" : , { } [ ] 0 60 null true \" \u0041'
                             . ' \ud83d'],
);

done_testing();

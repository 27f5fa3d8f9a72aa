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
        real    => '{"timeout":1.5e3}',
        big     => '{"timeout":999999999}',
        bigger  => '{"timeout":1000000000}',
        members => '{' . join(',', map { "\"m$_\":$_" } 1 .. 17) . '}',
        empty   => '{}',
    },
    words     => [split ' ', '"timeout" : , { } [ ] 0 60 null true \" \u0041'],
);

done_testing();

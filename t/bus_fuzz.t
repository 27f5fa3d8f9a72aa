#!/usr/bin/perl

# The decoder of entries takes any bytes.

use strict;
use warnings;

use Test::More;

use Vibelock::Fleet qw(entry);
use Vibelock::Fuzz;

my $whole = entry(key => 'web-1', at => 1_790_000_000_000);

Vibelock::Fuzz::run_test(
    target    => 'entry',
    sources   => [qw(entry digest hash plain)],
    libraries => [qw(-ljansson -lcrypto)],
    max       => 5000,
    seeds     => {
        whole   => $whole,
        version => entry(key => 'web-1', v => 2),
        unknown => $whole =~ s/\{/{"new":[1,{"a":null}],/r,
        escapes => $whole =~ s/web-1/\\u0000\\ud83d\\udd12\\n/r,
        limit   => $whole . ' ' x (4096 - length $whole),
        large   => $whole . ' ' x (4097 - length $whole),
    },
    words     => [qw("v" "key" "owner" "at" "from" :1 null true [ ] { })],
);

done_testing();

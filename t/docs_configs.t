#!/usr/bin/perl

# Every configuration in the documents is one that nginx takes.

use strict;
use warnings;

use Test::More;

use Vibelock::Docs qw(blocks documents unmarked);
use Vibelock::Test;
use Vibelock::Util qw(read_file);

my %levels = map { $_ => 1 } qw(file http server location);

for my $file (documents()) {
    is_deeply([unmarked($file)], [], "$file: configurations are marked");

    for my $block (blocks($file, lang => 'nginx')) {
        my $where = "$file:$block->{line}";

        if (!$levels{ $block->{level} }) {
            fail("$where says where it belongs: file, http, server, location");
            next;
        }

        my $t = Vibelock::Test->new(workers => 1);
        Vibelock::Docs::apply($t, $block);

        my ($code, $output) = $t->config_test;
        is($code, 0, "$where is a configuration")
            or diag $output, $t->read_file('test.conf');
        unlike($output, qr/\[warn\]/, 'without a warning');

        $t->finish;
    }
}

done_testing;

#!/usr/bin/perl

# vibelock, vibelock_release and vibelock_unstick in one location, and what the
# latter two need.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Verdict qw(verdict);

my $t = Vibelock::Test->new;

$t->write_file('registry.json', '{"version":1,"keys":[],"servers":[]}');

sub said {
    my ($http, $server) = @_;

    $t->http("vibelock_zone \$arg_id zone=ops:1m;\n$http");
    $t->server($server);

    return verdict($t);
}

my $registry = 'vibelock_registry %%DIR%%/registry.json;';

subtest 'what cannot stand together' => sub {
    my $beside = '1: "vibelock" cannot stand in location "/" with'
        . ' "vibelock_release" or "vibelock_unstick", which would wait for the'
        . ' lock they are to break';

    for my $other ('vibelock_release', 'vibelock_unstick') {
        is(said($registry, "location / {
                vibelock exec zone=ops; $other zone=ops;
            }"), $beside, "vibelock and $other");
        is(said($registry, "location / { vibelock off; $other zone=ops; }"),
           '0: ', "vibelock off and $other");
        is(said("$registry vibelock exec zone=ops;",
                "location / { $other zone=ops; }"),
           '0: ', "vibelock in http and $other");

        for my $value ('ops', 'zone=', 'zone=ops:1m', 'off') {
            is(said($registry, "location / { $other $value; }"),
               "1: invalid parameter \"$value\" in \"$other\", it must be"
               . ' "zone=<name>" with the name of a "vibelock_zone"',
               "$other $value");
        }

        is(said($registry, "location / { $other zone=none; }"),
           '1: no "vibelock_zone" defines the zone "none" that is used'
           . ' (defined: "ops"); add "vibelock_zone <key> zone=none:<size>;" to'
           . ' http, or correct the name',
           "$other of an undefined zone");
        is(said($registry, "location / { $other zone=ops; $other zone=ops; }"),
           "1: \"$other\" directive is duplicate", "$other twice");
        is(said($registry, "$other zone=ops;"),
           "1: \"$other\" directive is not allowed here",
           "$other is for locations only");
        is(said('', "location / {
                $other zone=ops; vibelock_server_kind STANDALONE;
            }"),
           "1: \"$other\" in location \"/\" needs \"vibelock_registry\" or"
           . ' "vibelock_owner", or anybody could break any lock',
           "$other without registry and owner");
        is(said('vibelock_server_found 1;', "location / {
                $other zone=ops; vibelock_server_kind STANDALONE;
            }"),
           "1: \"$other\" in location \"/\" needs \"vibelock_registry\" or"
           . ' "vibelock_owner", or anybody could break any lock',
           "$other with vibelock_server_found alone");
        is(said('', "vibelock_owner me; location / {
                $other zone=ops; vibelock_server_kind STANDALONE;
            }"), '0: ', "$other with an owner from the server");
    }

    is(said($registry, 'location / { vibelock_release zone=ops; }'), '0: ',
       'vibelock_release with a registry');

    my $content = '1: "vibelock_release" answers its location "/" itself and'
        . ' cannot stand beside "proxy_pass" or the like; give it a location'
        . ' of its own';

    for my $handler ('proxy_pass http://127.0.0.1:1;',
                     'fastcgi_pass 127.0.0.1:1;', 'empty_gif;', 'stub_status;')
    {
        is(said($registry, "location / { vibelock_release zone=ops; $handler }"),
           $content, "vibelock_release before $handler");
        is(said($registry, "location / { $handler vibelock_release zone=ops; }"),
           $content, "vibelock_release after $handler");
        is(said($registry, "location / { vibelock_unstick zone=ops; $handler }"),
           '0: ', "vibelock_unstick beside $handler");
    }

    for my $two ('vibelock_release zone=ops; vibelock_unstick zone=ops;',
                 'vibelock_unstick zone=ops; vibelock_release zone=ops;')
    {
        is(said($registry, "location / { $two }"),
           '1: "vibelock_release" cannot stand in location "/" with'
           . ' "vibelock_unstick": the one takes DELETE, the other POST alone;'
           . ' give each a location of its own', $two);
    }

    is(said('vibelock_owner me;', 'location / { vibelock_unstick zone=ops; }'),
       '1: "vibelock_unstick" with "vibelock_owner" needs'
       . ' "vibelock_server_kind" in location "/": only a server of kind'
       . ' STANDALONE can be unstuck', 'vibelock_unstick without a kind');
    is(said("$registry vibelock_owner me;",
            'location / { vibelock_unstick zone=ops; }'),
       '1: "vibelock_unstick" with "vibelock_owner" needs'
       . ' "vibelock_server_kind" in location "/": only a server of kind'
       . ' STANDALONE can be unstuck', 'an owner replaces the registry');
    is(said($registry, 'location / { vibelock_unstick zone=ops; }'), '0: ',
       'the kind of the registry');
    is(said('', 'location / { vibelock exec zone=ops; }'), '0: ',
       'a guard needs neither');
    is(said('', 'location / { return 200; }'), '0: ',
       'a zone that nothing uses');
};

$t->done;

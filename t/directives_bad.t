#!/usr/bin/perl

# What nginx -t says to a wrong directive: one sentence that names the
# directive, the value, and what would be right.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Verdict qw(refuses accepts warns);

my $t = Vibelock::Test->new;

$t->write_file('registry.json', '{"version":1,"keys":[],"servers":[]}');

my $zone = 'vibelock_zone $arg_id zone=ops:1m;';

# In http, and in a location.

sub http_refuses {
    my ($lines, $expected, $name) = @_;

    return refuses($t, $name // $lines, $expected, $lines);
}

sub location_refuses {
    my ($lines, $expected, $name) = @_;

    return refuses($t, $name // $lines, $expected, $zone,
                   "location / { $lines }");
}

my $size = 'it must be "zone=<name>:<size>" with a size in "k" or "m", as in'
    . ' "zone=ops:10m"';
my $takes = 'it takes "zone=<name>:<size>" and "sweep=<time>"';

subtest 'vibelock_zone' => sub {
    for my $bad ('zone=ops', 'zone=ops:', 'zone=:1m', 'zone=', 'zone=ops:x',
                 'zone=ops:-1', 'zone=ops:1q', 'zone=ops:1g', 'zone=ops:1m:2m',
                 'zone=ops:99999999999999999999')
    {
        http_refuses("vibelock_zone \$arg_id $bad;",
            "invalid parameter \"$bad\" in \"vibelock_zone\", $size");
    }

    for my $bad ('zone=ops:0', 'zone=ops:1k', 'zone=ops:28k', 'zone=ops:32767')
    {
        http_refuses("vibelock_zone \$arg_id $bad;",
            "\"vibelock_zone\" with \"$bad\" is too small, it must be 32768"
            . ' bytes at least');
    }

    for my $bad ('sweep=', 'sweep=0', 'sweep=-1', 'sweep=x', 'sweep=1 x')
    {
        http_refuses("vibelock_zone \$arg_id zone=ops:1m '$bad';",
            "invalid parameter \"$bad\" in \"vibelock_zone\", it must be a"
            . ' time above 0, as in "sweep=60s"');
    }

    for my $bad ('off', 'Zone=ops:1m', 'size=1m', 'zones=ops:1m') {
        http_refuses("vibelock_zone \$arg_id $bad;",
            "invalid parameter \"$bad\" in \"vibelock_zone\", $takes");
    }

    http_refuses('vibelock_zone $arg_id sweep=1s;',
        '"vibelock_zone" must have a parameter "zone=<name>:<size>", as in'
        . ' "zone=ops:10m"');
    http_refuses('vibelock_zone $arg_id zone=a:1m zone=b:1m;',
        '"vibelock_zone" has one parameter twice, the second time as'
        . ' "zone=b:1m": it must be given once');
    http_refuses('vibelock_zone $arg_id sweep=1s sweep=2s;',
        '"vibelock_zone" has one parameter twice, the second time as'
        . ' "sweep=2s": it must be given once');
    http_refuses('vibelock_zone $nothing zone=ops:1m;',
        'unknown "nothing" variable');
    http_refuses('vibelock_zone $arg_id;',
        'invalid number of arguments in "vibelock_zone" directive');
    http_refuses('vibelock_zone $arg_id zone=ops:1m sweep=1s x;',
        'invalid number of arguments in "vibelock_zone" directive');
    http_refuses("$zone vibelock_zone \$arg_x zone=ops:1m;",
        '"vibelock_zone" "ops" is defined twice, first with the key'
        . ' "$arg_id"; give the second one another name', 'one name twice');
    http_refuses("$zone vibelock_zone \$arg_id zone=ops:1m;",
        '"vibelock_zone" "ops" is defined twice, first with the key'
        . ' "$arg_id"; give the second one another name', 'the same twice');
    http_refuses('vibelock_zone "" zone=ops:1m;',
        '"vibelock_zone" "ops" has an empty key, with which nothing is locked;'
        . ' it must name what is locked, as in "$server_id"');
    refuses($t, 'not in server',
        '"vibelock_zone" directive is not allowed here', '', $zone);

    accepts($t, 'good values', join "\n",
        'vibelock_zone $arg_id zone=a:32k;',
        'vibelock_zone id-$arg_id-${arg_x} zone=b:1M sweep=1ms;',
        'vibelock_zone fixed sweep=1d zone=c:40000;',
        'vibelock_zone $remote_addr zone=with-a_name.9:1m;');
    warns($t, 'a key with a variable', '', join "\n",
        'vibelock_zone $arg_id zone=a:32k;',
        'vibelock_zone id-${arg_id} zone=b:32k;');
    warns($t, 'a key whose "$" was forgotten', 'the key "server_id" of'
        . ' "vibelock_zone" "ops" has no variable, so all its requests share one'
        . ' lock; write "$server_id" if a variable is meant',
        'vibelock_zone server_id zone=ops:1m;');
};

subtest 'vibelock' => sub {
    my $letters = 'it must be 1 to 32 letters, digits, "_" or "-"';

    for my $bad ('', 'a b', 'a"b', 'a\'b', 'a/b', 'a.b', 'a:b', '$x', 'é',
                 'x' x 33, 'a\\b', "a\tb")
    {
        my $quoted = $bad =~ s/(["\\])/\\$1/gr;
        location_refuses("vibelock \"$quoted\" zone=ops;",
            "invalid operation \"$bad\" in \"vibelock\", $letters");
    }

    my $named = 'it must be "zone=<name>" with the name of a "vibelock_zone"';

    for my $bad ('ops', 'zone=', 'zone=ops:1m', 'Zone=ops', 'zones=ops') {
        location_refuses("vibelock exec $bad;",
            "invalid parameter \"$bad\" in \"vibelock\", $named");
    }

    location_refuses('vibelock exec;',
        '"vibelock exec" must name a zone, as in "vibelock exec zone=ops", or'
        . ' be "vibelock off"');
    location_refuses('vibelock OFF;',
        '"vibelock OFF" must name a zone, as in "vibelock OFF zone=ops", or be'
        . ' "vibelock off"');
    location_refuses('vibelock zone=ops;',
        '"vibelock zone=ops" must name an operation and a zone, as in'
        . ' "vibelock exec zone=ops", or be "vibelock off"');
    location_refuses('vibelock on;',
        '"vibelock on" must name an operation and a zone, as in'
        . ' "vibelock exec zone=ops", or be "vibelock off"');
    location_refuses('vibelock zone=ops exec;',
        '"vibelock zone=ops exec" must name the operation first, as in'
        . ' "vibelock exec zone=ops"');
    location_refuses('vibelock off zone=ops;',
        '"vibelock off zone=ops" must be "vibelock off", or name an operation'
        . ' that is not called "off"');
    location_refuses('vibelock exec zone=none;',
        'no "vibelock_zone" defines the zone "none" that is used (defined:'
        . ' "ops"); add "vibelock_zone <key> zone=none:<size>;" to http, or'
        . ' correct the name');
    refuses($t, 'with others', 'no "vibelock_zone" defines the zone "opp"'
        . ' that is used (defined: "ops", "b"); add "vibelock_zone <key>'
        . ' zone=opp:<size>;" to http, or correct the name',
        "$zone vibelock_zone \$arg_id zone=b:1m;",
        'location / { vibelock exec zone=opp; }');
    refuses($t, 'with none', 'no "vibelock_zone" defines the zone "ops"'
        . ' that is used (defined: none); add "vibelock_zone <key>'
        . ' zone=ops:<size>;" to http, or correct the name',
        '', 'location / { vibelock exec zone=ops; }');
    location_refuses('vibelock exec zone=ops; vibelock exec zone=ops;',
        '"vibelock" directive is duplicate');
    location_refuses('vibelock exec zone=ops; vibelock off;',
        '"vibelock" directive is duplicate');
    location_refuses('vibelock off; vibelock off;',
        '"vibelock" directive is duplicate');
    location_refuses('vibelock;',
        'invalid number of arguments in "vibelock" directive');
    location_refuses('vibelock exec zone=ops x;',
        'invalid number of arguments in "vibelock" directive');
    location_refuses('if ($arg_x) { vibelock exec zone=ops; }',
        '"vibelock" directive is not allowed here', 'not in if');

    accepts($t, 'good names', $zone, join "\n", map {
        "location /$_ { vibelock $_ zone=ops; }"
    } 'e', 'EXEC-2_b', '-', '_', '0', 'x' x 32, 'offline', 'on');
    accepts($t, 'a zone that is defined further down',
        "server { listen 127.0.0.1:%%PORT_0%%; vibelock exec zone=ops; } $zone");
};

subtest 'times' => sub {
    my $bad_time = sub {
        my ($directive, $value, $must) = @_;
        location_refuses("$directive \"$value\";",
            "invalid value \"$value\" in \"$directive\" directive, $must");
    };

    for my $bad ('', 'x', '-1', '1 x', '1.5s', '99999999999999999999s', '5q')
    {
        $bad_time->('vibelock_retry_after', $bad,
                    'it must be a time, such as "5s"');
    }

    location_refuses('vibelock_retry_after 1s; vibelock_retry_after 2s;',
        '"vibelock_retry_after" directive is duplicate');

    accepts($t, 'good values of vibelock_retry_after', $zone, join "\n", map {
        "location /$_ { vibelock_retry_after $_; }"
    } '0', '1', '1s', '1500ms', '1m30s', '1h');
};

subtest 'on and off' => sub {
    for my $directive ('vibelock_overrun', 'vibelock_dry_run') {
        for my $bad ('yes', '1', 'true', '') {
            location_refuses("$directive \"$bad\";",
                "invalid value \"$bad\" in \"$directive\" directive, it must"
                . ' be "on" or "off"');
        }

        location_refuses("$directive on; $directive on;",
            "\"$directive\" directive is duplicate");
        location_refuses("$directive;",
            "invalid number of arguments in \"$directive\" directive");
        accepts($t, "$directive, good values", $zone,
            "location /a { $directive on; } location /b { $directive OFF; }");
    }
};

subtest 'vibelock_log_level' => sub {
    for my $bad ('debug', 'crit', 'emerg', 'warning', '', '3') {
        location_refuses("vibelock_log_level \"$bad\";",
            "invalid value \"$bad\" in \"vibelock_log_level\" directive, it"
            . ' must be "info", "notice", "warn" or "error"');
    }

    location_refuses('vibelock_log_level warn; vibelock_log_level warn;',
        '"vibelock_log_level" directive is duplicate');
    accepts($t, 'good values', $zone, join "\n", map {
        "location /$_ { vibelock_log_level $_; }"
    } qw(info notice warn error));
};

subtest 'values with variables' => sub {
    for my $directive (qw(vibelock_owner vibelock_server_found
                          vibelock_server_kind))
    {
        location_refuses("$directive a; $directive b;",
            "\"$directive\" directive is duplicate");
        location_refuses("$directive;",
            "invalid number of arguments in \"$directive\" directive");
        location_refuses("$directive a b;",
            "invalid number of arguments in \"$directive\" directive");
        location_refuses("$directive \$nothing;",
            'unknown "nothing" variable');
        accepts($t, "$directive, good values", $zone,
            "location / { $directive \$arg_a\${arg_b}c; }");
    }

    my %says = (
        vibelock_server_found =>
            'so no server is found; it must be "1", or have a variable',
        vibelock_server_kind => 'so no server can be unstuck; it must be'
            . ' "STANDALONE", "GALAXY_HOST" or "GALAXY_APP", or have a'
            . ' variable',
    );

    for (['vibelock_server_found', 'yes', 'on', 'true', '2', '01', '1 '],
         ['vibelock_server_kind', 'standalone', 'VM', '1', ' STANDALONE'])
    {
        my ($directive, @odd) = @$_;

        for my $odd (@odd) {
            warns($t, "$directive '$odd'", "\"$directive\" has the value"
                . " \"$odd\", $says{$directive}", $zone,
                "location / { $directive '$odd'; }");
        }
    }

    for ('found 1', 'found 0', 'found ""', 'found $arg_f', 'found y$arg_f',
         'kind STANDALONE', 'kind GALAXY_HOST', 'kind GALAXY_APP', 'kind ""',
         'kind $arg_k')
    {
        warns($t, $_, '', $zone, "location / { vibelock_server_$_; }");
    }

    location_refuses('vibelock_keep 1; vibelock_keep 1;',
        '"vibelock_keep" directive is duplicate');
    location_refuses('vibelock_keep;',
        'invalid number of arguments in "vibelock_keep" directive');
    location_refuses('vibelock_keep a $nothing;', 'unknown "nothing" variable');
    accepts($t, 'vibelock_keep, good values', $zone,
        'location / { vibelock_keep "" 0 $arg_a x$arg_b ' . 'y ' x 20 . '; }');
};

subtest 'vibelock_registry' => sub {
    my $check = 'it must be "check=<time>" with a time above 0, as in'
        . ' "check=5s"';

    for my $bad ('check=', 'check=0', 'check=x', 'check=-1', 'once', '5s',
                 'Check=5s')
    {
        http_refuses("vibelock_registry %%DIR%%/registry.json $bad;",
            "invalid parameter \"$bad\" in \"vibelock_registry\", $check");
    }

    my $file = 'vibelock_registry %%DIR%%/registry.json;';

    http_refuses("$file $file", '"vibelock_registry" directive is duplicate');
    http_refuses('vibelock_registry;',
        'invalid number of arguments in "vibelock_registry" directive');
    http_refuses('vibelock_registry a check=1s b;',
        'invalid number of arguments in "vibelock_registry" directive');
    refuses($t, 'not in server',
        '"vibelock_registry" directive is not allowed here', '', $file);

    my $dir = $t->dir;
    http_refuses('vibelock_registry none.json;',
        "vibelock_registry \"$dir/none.json\": open() failed (2: No such file"
        . ' or directory)', 'a file that is not there');
    http_refuses('vibelock_registry %%DIR%%;',
        "vibelock_registry \"$dir\": it must be a regular file",
        'a directory');

    accepts($t, 'a path relative to nginx.conf',
            'vibelock_registry registry.json check=1ms;');
    accepts($t, 'the check', 'vibelock_registry registry.json check=1d;');
};

$t->done;

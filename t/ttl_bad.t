#!/usr/bin/perl

# What nginx -t says to a wrong vibelock_ttl.

use strict;
use warnings;

use Test::More;

use Vibelock::Test;
use Vibelock::Verdict qw(refuses accepts warns);

my $t = Vibelock::Test->new;

my $zone = 'vibelock_zone $arg_id zone=ops:1m;';

sub location_refuses {
    my ($lines, $expected, $name) = @_;

    return refuses($t, $name // $lines, $expected, $zone,
                   "location / { $lines }");
}

my $wrong = sub {
    my ($value, $least) = @_;
    return "\"vibelock_ttl\" has a wrong time in \"$value\": it must be"
        . " from ${least}ms to 30d, such as \"90s\" or \"15m\"";
};

for my $bad ('', 'x', '0', '0s', '-1', '1.5', '31d', '30d1s', '5q',
             '99999999999999999999')
{
    location_refuses("vibelock_ttl \"$bad\";", $wrong->($bad, 1));

    location_refuses("vibelock_ttl json=timeout \"default=$bad\";",
                     $wrong->("default=$bad", 1));
    location_refuses("vibelock_ttl json=timeout \"max=$bad\";",
                     $wrong->("max=$bad", 1));
    location_refuses("vibelock_ttl json=timeout \"add=$bad\";",
                     $wrong->("add=$bad", 0)) unless $bad =~ /^0/;
}

my $once = sub {
    return '"vibelock_ttl" has one parameter twice, the second time as'
        . " \"$_[0]\": it must be given once";
};

location_refuses('vibelock_ttl json=a json=b;', $once->('json=b'));
location_refuses('vibelock_ttl json=a add=1 add=2;', $once->('add=2'));
location_refuses('vibelock_ttl json=a max=1 max=1;', $once->('max=1'));
location_refuses('vibelock_ttl default=1 json=a default=2;',
                 $once->('default=2'));

for my $bad ('x', 'field=x', 'min=1s', 'Add=1s', '90s') {
    location_refuses("vibelock_ttl json=a $bad;",
        "\"vibelock_ttl\" has an unknown parameter \"$bad\": it takes"
        . ' "json=", "default=", "add=" and "max="');
}

for my $bad ('default=60s', '60s 90s', '60s add=1s', 'Json=timeout') {
    my ($last) = $bad =~ /(\S+)$/;
    location_refuses("vibelock_ttl $bad;",
        "\"vibelock_ttl\" has \"$last\": it must be one time, such as"
        . ' "15m", or "json=<field>" and its parameters');
}

location_refuses('vibelock_ttl json=;',
    '"vibelock_ttl" has an empty "json=": it must name a field of the'
    . ' body, such as "json=timeout"');
location_refuses("vibelock_ttl json=\xff;",
    "\"vibelock_ttl\" has a field \"\xff\" that is not UTF-8: no JSON can"
    . ' have it');
location_refuses('vibelock_ttl json=a default=2s max=1s;',
    '"vibelock_ttl" has a "default=" of 2s: it must not be over'
    . ' "max=", which is 1s');
location_refuses('vibelock_ttl json=a default=2h max=90m;',
    '"vibelock_ttl" has a "default=" of 2h: it must not be over'
    . ' "max=", which is 90m');
location_refuses('vibelock_ttl json=a max=30d add=1ms;',
    '"vibelock_ttl" has a "max=" of 30d and an "add=" of 1ms:'
    . ' together they must not be over 30d');
location_refuses('vibelock_ttl json=a add=30d;',
    '"vibelock_ttl" has an "add=" of 30d: it must be less, since a lock'
    . ' lasts 30d at most');
location_refuses('vibelock_ttl 1s; vibelock_ttl 2s;',
    '"vibelock_ttl" directive is duplicate');
location_refuses('vibelock_ttl json=a; vibelock_ttl 2s;',
    '"vibelock_ttl" directive is duplicate');
location_refuses('vibelock_ttl;',
    'invalid number of arguments in "vibelock_ttl" directive');

for my $param ('json=$arg_t', 'json=${arg_t}', 'json=a$') {
    my ($field) = $param =~ /=(.*)/;
    warns($t, "$param: no variable, but a name that JSON may have",
        "\"vibelock_ttl\" has \"$param\", where \"\$\" makes no variable: the"
        . " TTL is read from a field \"$field\" of the body; if that is not"
        . ' meant, name another one, such as "json=timeout"',
        $zone, "location / { vibelock_ttl max=1h $param; }");
}

warns($t, 'a name without "$"', '', $zone,
      'location / { vibelock_ttl json=timeout default=60s; }');

my $n = 0;
accepts($t, 'good values', $zone, join "\n", map {
    'location /' . ++$n . " { vibelock_ttl $_; }"
} '1ms', '1', '15m', '1h30m', '30d', '2592000s', 'json=timeout',
  'json=timeout default=60s add=90s max=1h', 'max=1h add=0 json=x',
  'json=a add=29d max=1d', 'json=a default=1h max=1h', '"json=a b"');

$t->done;

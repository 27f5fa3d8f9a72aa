#!/usr/bin/perl

# A registry file that is wrong: the start fails, and says which member.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use JSON::PP ();
use POSIX qw(mkfifo);
use Test::More;

use Vibelock::Test;
use Vibelock::Verdict qw(verdict);

my $t = Vibelock::Test->new;

$t->http('vibelock_registry %%DIR%%/registry.json;');
$t->server('location / { return 200; }');

my $file = $t->path('registry.json');
my $json = JSON::PP->new->canonical;

sub said {
    my ($text) = @_;

    $t->write_file('registry.json', $text);

    return verdict($t);
}

sub refused {
    my ($text, $expected, $name) = @_;

    return is(said($text), "1: vibelock_registry \"$file\": $expected",
              $name // $text);
}

sub accepted {
    my ($text, $name) = @_;

    return is(said($text), '0: ', $name);
}

# A good registry, with one thing changed.

my $hex = sha256_hex('a key');
my $other = sha256_hex('another key');

sub registry {
    my (%how) = @_;

    return $json->encode({
        version => 1,
        keys => $how{keys} // [
            { id => 'k0', type => 'api', sha256 => $other },
            { id => 'k1', type => 'app', sha256 => $hex,
              sessions => $how{sessions} // [{ sha256 => $hex }],
              %{ $how{key} || {} } },
        ],
        servers => $how{servers} // [
            { id => 's0', key => 'k0', kind => 'STANDALONE' },
            { id => 's1', key => 'k1', kind => 'GALAXY_APP',
              %{ $how{server} || {} } },
        ],
        %{ $how{top} || {} },
    });
}

# The same without one member.

sub without {
    my ($member, $kind) = @_;

    my $value = $json->decode(registry());

    delete(($kind eq 'top' ? $value
            : $kind eq 'session' ? $value->{keys}[1]{sessions}[0]
            : $value->{$kind}[1])->{$member});

    return $json->encode($value);
}

my @odd = ([undef, 'null'], [5, '5'], [1.5, 'a number with a fraction'],
           [JSON::PP::true, 'true'], [[], 'a list'], [{}, 'an object']);

accepted(registry(), 'the good one this begins with');
accepted('{"version":1,"keys":[],"servers":[]}', 'an empty one');
accepted(" \n" . registry() . "\r\n", 'in white space');

subtest 'a FIFO' => sub {
    unlink $file;
    mkfifo($file, 0666) or die "$file: $!";
    is(verdict($t), "1: vibelock_registry \"$file\": it must be a regular file",
       'is not waited for');
    unlink $file;
};

subtest 'no JSON' => sub {
    refused('', 'it must be JSON, but is empty', 'an empty file');

    for my $mark ("\xef\xbb\xbf", "\xff\xfe", "\xfe\xff") {
        refused($mark . registry(), 'it must be JSON in UTF-8 without a byte'
                . ' order mark, but begins with one',
                'the mark ' . unpack 'H*', $mark);
    }

    refused("\xef\xbb", 'it must be JSON, but has in line 1, column 0: unable'
            . ' to decode byte 0xef', 'a part of a mark');
    refused('{', 'it must be JSON, but has in line 1, column 1: string or'
            . ' \'}\' expected near end of file');
    refused("{\"version\":1,\n\"keys\":[],}",
            'it must be JSON, but has in line 2, column 11: string or \'}\''
            . ' expected', 'a comma too many');
    refused('{"version":1,"keys":[],"servers":[]} x',
            'it must be JSON, but has in line 1, column 38: end of file'
            . ' expected', 'something behind it');
    refused('{"version":1,"version":1,"keys":[],"servers":[]}',
            'it must be JSON, but has in line 1, column 22: duplicate object'
            . ' key near \'"version"\'', 'a member twice');
    refused('[]', 'must be an object');
    like(said("{\"version\":1,\"keys\":[\"\xff\"],\"servers\":[]}"),
         qr/^1: .*unable to decode byte 0xff$/, 'not UTF-8');
    unlike(said('{"keys":[{"sha256":"a secret" "x"'), qr/secret/,
           'what is near an error may be a key, and is not shown');
};

subtest 'the top' => sub {
    for (@odd) {
        my ($value, $shown) = @$_;
        next if defined $value && $value eq '1';
        refused(registry(top => { version => $value }),
                "version is $shown, but must be 1", "version: $shown");
        next if ref $value eq 'ARRAY';
        refused(registry(top => { keys => $value }),
                "keys is $shown, but must be a list", "keys: $shown");
        refused(registry(top => { servers => $value }),
                "servers is $shown, but must be a list", "servers: $shown");
    }

    refused(registry(top => { version => 2, more => 1 }),
            'version is 2, but must be 1', 'another version, first of all');
    refused(registry(top => { version => '1' }),
            'version is a string, but must be 1', 'a version in quotes');
    refused(registry(top => { more => 1 }),
            'has an unknown member "more", but must have only "version",'
            . ' "keys", "servers"', 'an unknown member');
    refused(without('version', 'top'), 'version is missing, it must be 1',
            'no version');
    refused(without('keys', 'top'), 'keys is missing, it must be a list',
            'no keys');
    refused(without('servers', 'top'), 'servers is missing, it must be a list',
            'no servers');
};

subtest 'a key' => sub {
    refused(registry(keys => [1]), 'keys[0] must be an object', 'no object');
    refused(registry(key => { note => 'x' }),
            'keys[1] has an unknown member "note", but must have only "id",'
            . ' "type", "sha256", "sessions"', 'an unknown member');
    refused(without('sha256', 'keys') =~ s/("id":"k1")/$1,"sha265":"$hex"/r,
            'keys[1] has an unknown member "sha265", but must have only "id",'
            . ' "type", "sha256", "sessions"', 'a slip in the name of one');

    for (@odd) {
        my ($value, $shown) = @$_;
        refused(registry(key => { id => $value }),
                "keys[1].id is $shown, but must be a string that is not empty",
                "id: $shown");
        refused(registry(key => { type => $value }),
                "keys[1].type is $shown, but must be \"api\" or \"app\"",
                "type: $shown");
        next if ref $value eq 'ARRAY';
        refused(registry(key => { sessions => $value }),
                "keys[1].sessions is $shown, but must be a list",
                "sessions: $shown");
    }

    refused(registry(key => { id => '' }),
            'keys[1].id is "", but must be a string that is not empty',
            'an empty id');
    refused(registry(key => { id => 'k0' }),
            'keys[1].id is "k0", but must be another than that of keys[0]',
            'an id twice');
    refused(registry(key => { type => 'API' }),
            'keys[1].type is "API", but must be "api" or "app"', 'type API');
    refused(registry(key => { type => 'api' }),
            'keys[1].sessions is for type "app", but this is type "api",'
            . ' where it must be left out', 'sessions of an api key');

    refused(without($_, 'keys'), $_ eq 'id'
            ? 'keys[1].id is missing, it must be a string that is not empty'
            : $_ eq 'type'
            ? 'keys[1].type is missing, it must be "api" or "app"'
            : 'keys[1].sha256 is missing, it must be 64 hex digits, or a list'
              . ' of such strings', "no $_")
        for qw(id type sha256);

    accepted(without('sessions', 'keys'), 'no sessions');
    accepted(registry(sessions => []), 'an empty list of sessions');
};

subtest 'sha256' => sub {
    my $must = 'must be a SHA-256, a string of 64 hex digits';

    for my $bad ('', 'a key', substr($hex, 1), "${hex}0", "g$hex" =~ s/.$//r,
                 "0x$hex", " $hex", undef, 5, {}, JSON::PP::true)
    {
        my $name = defined $bad ? ref $bad ? $json->allow_nonref->encode($bad)
                                           : "\"$bad\"" : 'null';
        refused(registry(key => { sha256 => $bad }),
                "keys[1].sha256 $must", $name);
        refused(registry(key => { sha256 => [$other =~ tr/0-9a-f/1-9a-f0/r,
                                             $bad] }),
                "keys[1].sha256[1] $must", "$name, in a list");
        refused(registry(sessions => [{ sha256 => $bad }]),
                "keys[1].sessions[0].sha256 $must", "$name, of a session");
    }

    refused(registry(key => { sha256 => [] }),
            'keys[1].sha256 is an empty list, but must be 64 hex digits, or a'
            . ' list of such strings', 'an empty list');
    refused(registry(key => { sha256 => $other }),
            'keys[1].sha256 is in keys[0] already, but must be there once: a'
            . ' key has one owner', 'of two keys');
    refused(registry(key => { sha256 => uc $other }),
            'keys[1].sha256 is in keys[0] already, but must be there once: a'
            . ' key has one owner', 'of two keys, in another case');
    refused(registry(key => { sha256 => [$hex, $hex] }),
            'keys[1].sha256[1] is in keys[1] already, but must be there once:'
            . ' a key has one owner', 'twice in a list');
    accepted(registry(key => { sha256 => uc $hex }), 'upper case');
    accepted(registry(key => { sha256 => [$hex] }), 'a list of one');
};

subtest 'a session' => sub {
    my $must = 'whole seconds since 1970, 253402300799 at most';

    refused(registry(sessions => ['x']),
            'keys[1].sessions[0] must be an object', 'no object');
    refused(registry(sessions => [{ sha256 => $hex, user => 1 }]),
            'keys[1].sessions[0] has an unknown member "user", but must have'
            . ' only "sha256", "expires"', 'an unknown member');
    refused(registry(sessions => [{}]),
            'keys[1].sessions[0].sha256 is missing, it must be 64 hex digits',
            'no sha256');
    refused(registry(sessions => [{ sha256 => $hex }, { sha256 => $hex }]),
            'keys[1].sessions[1].sha256 is in sessions[0] already, but must be'
            . ' there once: a session has one end', 'twice');

    for ([0, '0'], [-1, '-1'], [253402300800, '253402300800'],
         [1790000000000, '1790000000000'], ['1790000000', 'a string'],
         grep { ($_->[0] // '') ne '5' } @odd)
    {
        my ($value, $shown) = @$_;
        refused(registry(sessions => [{ sha256 => $hex, expires => $value }]),
                "keys[1].sessions[0].expires is $shown, but must be $must",
                "expires: $shown");
    }

    accepted(registry(sessions => [{ sha256 => $hex, expires => 1 },
                                   { sha256 => $other,
                                     expires => 253402300799 }]),
             'the first and the last second');
};

subtest 'a server' => sub {
    my %must = (
        id      => 'a string of 1 to 255 bytes',
        key     => 'the id of one of "keys"',
        kind    => '"STANDALONE", "GALAXY_HOST" or "GALAXY_APP"',
        deleted => 'true or false',
    );

    refused(registry(servers => ['s']), 'servers[0] must be an object',
            'no object');
    refused(registry(server => { owner => 'k1' }),
            'servers[1] has an unknown member "owner", but must have only'
            . ' "id", "key", "kind", "deleted"', 'an unknown member');

    for my $member (sort keys %must) {
        for (@odd) {
            my ($value, $shown) = @$_;
            next if $member eq 'deleted' && $shown eq 'true';
            refused(registry(server => { $member => $value }),
                    "servers[1].$member is $shown, but must be $must{$member}",
                    "$member: $shown");
        }

        next if $member eq 'deleted';
        refused(without($member, 'servers'),
                "servers[1].$member is missing, it must be $must{$member}",
                "no $member");
    }

    refused(registry(server => { id => '' }),
            'servers[1].id is "", but must be a string of 1 to 255 bytes',
            'an empty id');
    refused(registry(server => { id => 'x' x 256 }),
            'servers[1].id is "' . 'x' x 64 . '...", but must be a string of 1'
            . ' to 255 bytes', 'an id of 256 bytes');
    refused(registry(server => { id => 'x' x 63 . "\xd1\x86" . 'x' x 256 }),
            'servers[1].id is "' . 'x' x 63 . '...", but must be a string of 1'
            . ' to 255 bytes', 'no half of a character is shown');
    refused(registry(server => { id => 's0' }),
            'servers[1].id is "s0", but must be another than that of'
            . ' servers[0]', 'an id twice');
    refused(registry(server => { key => 'k2' }),
            'servers[1].key is "k2", but must be the id of one of "keys"',
            'an unknown key');
    refused(registry(server => { key => 'K1' }),
            'servers[1].key is "K1", but must be the id of one of "keys"',
            'a key in another case');
    refused(registry(server => { key => 'a key' }),
            'servers[1].key is a key, but must be the id of one of "keys"',
            'a key itself, which is not shown');
    refused(registry(server => { kind => 'standalone' }),
            'servers[1].kind is "standalone", but must be "STANDALONE",'
            . ' "GALAXY_HOST" or "GALAXY_APP"', 'a kind in another case');
    refused(registry(server => { deleted => 'true' }),
            'servers[1].deleted is a string, but must be true or false',
            'deleted in quotes');
    refused(registry(server => { key => "k\n\x7f" }),
            'servers[1].key is "k??", but must be the id of one of "keys"',
            'control characters are not shown');

    accepted(registry(server => { id => 'x' x 255 }), 'an id of 255 bytes');

    # Of accounts the ids may be longer; what differs at the end is not one.

    my @long = map { 'x' x 300 . $_ } 0 .. 2;
    my @keys = map {
        { id => $long[$_], type => 'api', sha256 => sha256_hex("key $_") }
    } 0 .. 1;

    accepted(registry(keys => \@keys, servers => [
        map { { id => "s$_", key => $long[$_], kind => 'STANDALONE' } } 0 .. 1
    ]), 'accounts with ids of 301 bytes');
    refused(registry(keys => \@keys, servers => [
        { id => 's', key => $long[2], kind => 'STANDALONE' }
    ]), 'servers[0].key is "' . 'x' x 64 . '...", but must be the id of one of'
        . ' "keys"', 'a server of another such');
    refused(registry(keys => [@keys, { %{ $keys[1] }, sha256 => $hex }],
                     servers => []),
        'keys[2].id is "' . 'x' x 64 . '...", but must be another than that of'
        . ' keys[1]', 'such an id twice');
    accepted(registry(server => { deleted => JSON::PP::false }),
             'deleted: false');
};

$t->done;

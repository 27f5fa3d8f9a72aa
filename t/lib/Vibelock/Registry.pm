package Vibelock::Registry;

# The text of a registry file.
#
#   use Vibelock::Registry qw(registry account server);
#
#   $t->write_file('registry.json', registry(
#       keys    => [account('me', 'my key'),
#                   account('shop', ['app key', 'next key'], type => 'app',
#                           sessions => { 'session' => time + 60, 'x' => undef })],
#       servers => [server('mine', 'me'),
#                   server('host', 'me', kind => 'GALAXY_HOST')],
#   ));
#
# Keys and sessions are given as clients send them; sessions with their end, or
# undef for none. What follows the name goes into the file as it is.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter qw(import);
use JSON::PP ();

our @EXPORT_OK = qw(registry account server);

sub registry {
    my (%members) = @_;

    return JSON::PP->new->canonical->encode({ version => 1, %members });
}

sub account {
    my ($id, $key, %members) = @_;

    my $sessions = $members{sessions};

    $members{sessions} = [map {
        { sha256 => sha256_hex($_),
          defined $sessions->{$_} ? (expires => $sessions->{$_}) : () }
    } sort keys %$sessions] if $sessions;

    return {
        id     => $id,
        type   => 'api',
        sha256 => ref $key ? [map { sha256_hex($_) } @$key] : sha256_hex($key),
        %members,
    };
}

sub server {
    my ($id, $account, %members) = @_;

    return { id => $id, key => $account, kind => 'STANDALONE', %members };
}

1;

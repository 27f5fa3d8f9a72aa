package Vibelock::Ends;

# How an operation ended: what its line in the access log says, and what has
# become of its lock.
#
#   use Vibelock::Ends qw(begins ends lock_of gate);
#
#   $t->http(gate . 'upstream …');           # a zone "z", locked by ?id=
#   $t->server(<<'EOF');
#       location /exec { vibelock exec zone=z; proxy_pass …; }
#   EOF
#
#   my ($x, $pending) = begins($t, $up, '/exec?id=1', body => 'b');
#   is(lock_of($t, 1), 'running');           # or 'stuck', 'free'
#   …
#   ends($t, '/exec?id=1', 'RELEASED', 'answered in full');
#
# begins() posts, or what method => says, and passes when the lock is held once
# the upstream, a Vibelock::Upstream, has the request. It gives what the upstream
# has of it, and what the client has.
#
# ends() waits for the line of that URI and passes when its result is that one,
# its age and token are there, and the lock is free, or stuck where it was
# KEPT.  It gives the line.  A LOST lock says nothing of what is there now.
#
#   gate(sweep => '1s')                      another interval
#   lock_at($t, 1)                           all that GET says of a lock
#   lock_at($t, 1, 'DELETE')                 and what DELETE says
#   zone_of($t)->{memory}{cellsUsed}         the status of the zone: asking for
#                                            it frees nothing

use strict;
use warnings;

use Exporter qw(import);
use Test::More ();

use Vibelock::Http qw(http_request);

our @EXPORT_OK = qw(begins ends lock_of lock_at zone_of gate);

my %left = (RELEASED => 'free', KEPT => 'stuck');

# The port that tells of locks is the ninth.

sub gate {
    my (%how) = @_;

    my $sweep = $how{sweep} ? "sweep=$how{sweep}" : '';

    return <<"END";
        vibelock_zone \$arg_id zone=z:1m $sweep;
        vibelock_owner tester;
        server {
            listen 127.0.0.1:%%PORT_9%%;
            location = /lock {
                vibelock_release zone=z;
                access_log off;
            }
            location = /status {
                vibelock_status json;
                access_log off;
            }
        }
END
}

sub lock_at {
    my ($t, $id, $method) = @_;

    return http_request(port => $t->port(9), method => $method // 'GET',
                        uri => "/lock?id=$id")->json->{data};
}

sub zone_of {
    my ($t) = @_;

    return http_request(port => $t->port(9), uri => '/status')
           ->json->{data}{zones}[0];
}

sub lock_of {
    my ($t, $id) = @_;

    my $lock = lock_at($t, $id);

    return $lock->{locked} ? $lock->{state} : 'free';
}

sub begins {
    my ($t, $up, $uri, %how) = @_;

    my ($id) = $uri =~ /\bid=([^&]+)/;
    my $pending = $t->async(delete $how{method} // 'POST', $uri, %how);
    my $x = $up->accept_request;

    local $Test::Builder::Level = $Test::Builder::Level + 2;

    Test::More::is(lock_of($t, $id), 'running', "$uri runs");

    return ($x, $pending);
}

sub ends {
    my ($t, $uri, $result, $name) = @_;

    my ($id) = $uri =~ /\bid=([^&]+)/;
    my $line = $t->logged($uri);

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    Test::More::subtest($name => sub {
        Test::More::is($line->{result}, $result, $result);
        Test::More::like($line->{age}, qr/^\d+$/, 'an age');
        Test::More::like($line->{token}, qr/^\d{16}$/, 'a token');
        Test::More::is(lock_of($t, $id), $left{$result}, $left{$result})
            if $left{$result};
    });

    return $line;
}

1;

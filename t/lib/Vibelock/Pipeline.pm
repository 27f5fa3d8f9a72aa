package Vibelock::Pipeline;

# Many small requests, one behind the other on one connection, for tests that
# need thousands of locks.
#
#   use Vibelock::Pipeline qw(pipeline);
#
#   my %count = pipeline($t->port, map { "/kept?id=$_" } 1 .. 10_000);
#   is($count{200}, 10_000);

use strict;
use warnings;

use Exporter qw(import);
use Carp qw(croak);

use Vibelock::Socket;

our @EXPORT_OK = qw(pipeline);

use constant BATCH => 200;

sub pipeline {
    my ($port, @uris) = @_;

    my %count;

    # nginx closes a connection after a thousand requests: one for each batch

    while (my @batch = splice @uris, 0, BATCH) {
        my $socket = Vibelock::Socket->connect(port => $port);

        $socket->write(join '', map {
            "GET $_ HTTP/1.1\r\nHost: localhost\r\n\r\n"
        } @batch);

        for (@batch) {
            my $head = $socket->read_until("\r\n\r\n")
                // croak 'no response: ' . $socket->error;

            $head =~ m{^HTTP/1\.1 (\d+).*^content-length: (\d+)}msi
                or croak "no length: $head";

            $count{$1}++;
            $socket->read_exactly($2);
        }

        $socket->close;
    }

    return %count;
}

1;

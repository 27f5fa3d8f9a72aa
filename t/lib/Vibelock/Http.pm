package Vibelock::Http;

# HTTP/1 requests.
#
#   use Vibelock::Http qw(http_request http_async http_connect);
#
#   my $r = http_request(method => 'POST', uri => '/x', port => $port,
#                        headers => { 'X-Api-Key' => 'k' }, body => 'text');
#   is($r->status, 200);  $r->header('Retry-After');  $r->json->{success};
#
#   my $pending = http_async(method => 'POST', uri => '/x', port => $port);
#   …
#   my $r = $pending->response;         # or: $pending->abort, ->reset
#
#   my $c = http_connect(port => $port);
#   my $r = http_request(uri => '/x', connection => $c);     # kept alive
#
# Options:
#
#   method, uri         GET and / if not given
#   host, port, path    where to connect (path: a Unix socket)
#   headers             { name => value or [values] } or [[name, value], …];
#                       Host, Content-Length and Connection are added
#   body                bytes
#   json                a value that becomes the body, with its Content-Type
#   chunks              [bytes, …]: a chunked body
#   expect => 1         sends the body once "100 Continue" came
#   slowly => 1         a byte at a time
#   version             '1.1', or '1.0'
#   keepalive => 1      no "Connection: close"
#   connection          a Vibelock::Http::Connection to use, and to leave open
#   rcvbuf              a small receive buffer, for a slow reader
#   limit               seconds to wait for the response
#
# The result is a Vibelock::Http::Response always: where no response came, its
# status is 0 and its error says why ('refused', 'closed', 'reset', 'timeout',
# 'malformed').  http_async gives a Vibelock::Http::Connection; it and
# http_connect die where the connection is refused.

use strict;
use warnings;

use Exporter qw(import);

use Vibelock::Http::Connection;
use Vibelock::Http::Response;

our @EXPORT_OK = qw(http_request http_async http_connect);

sub http_connect {
    my (%how) = @_;

    return Vibelock::Http::Connection->connect(
        map { $_ => $how{$_} } grep { defined $how{$_} }
        qw(host port path rcvbuf));
}

sub http_request {
    my (%how) = @_;

    my $connection = $how{connection} || eval { http_connect(%how) }
        || return Vibelock::Http::Response->new(error => 'refused');

    my $r = start($connection, %how)->read_response(limit => $how{limit});

    $connection->close unless $how{connection};

    return $r;
}

sub http_async {
    my (%how) = @_;

    my $connection = $how{connection} || http_connect(%how);

    $connection->{keep} = 1 if $how{connection};

    return start($connection, %how, background => 1);
}

sub start {
    my ($connection, %how) = @_;

    $connection->send_request($how{method} // 'GET', $how{uri} // '/', %how,
        keepalive => $how{keepalive} || $how{connection} ? 1 : 0);

    return $connection;
}

1;

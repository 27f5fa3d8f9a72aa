package Vibelock::Http::Response;

# A response as a client got it (see Vibelock::Http::Message for headers,
# body, json, complete, error).
#
#   $r->status       200; 0 where no response came, and then error says why
#   $r->reason       "OK"
#   $r->version      "1.1"
#   $r->continued    true if "100 Continue" came first
#   $r->describe     one line for a diagnostic

use strict;
use warnings;

use parent qw(-norequire Vibelock::Http::Message);

use Vibelock::Http::Message;

sub new {
    my ($class, %fields) = @_;

    return bless {
        status    => 0,
        reason    => '',
        version   => '',
        headers   => {},
        body      => '',
        complete  => 0,
        error     => '',
        continued => 0,
        %fields,
    }, $class;
}

sub status    { $_[0]{status} }
sub reason    { $_[0]{reason} }
sub version   { $_[0]{version} }
sub continued { $_[0]{continued} }

# The head alone; 100 Continue is noted and passed over.

sub read_head {
    my ($class, $socket, $seconds) = @_;

    my $continued = 0;

    while (1) {
        my $head = $socket->read_until("\r\n\r\n", $seconds)
            // return $class->new(error => $socket->error);

        my ($first, $headers) = Vibelock::Http::Message::parse_head($head);

        $first =~ m{^HTTP/(\d\.\d) (\d{3})(?: (.*))?$}
            or return $class->new(error => 'malformed', body => $head);

        if ($2 == 100) {
            $continued = 1;
            next;
        }

        return $class->new(
            version   => $1,
            status    => $2,
            reason    => $3 // '',
            headers   => $headers,
            continued => $continued,
        );
    }
}

sub has_body {
    my ($self, $method) = @_;

    return $method ne 'HEAD' && $self->{status} !~ /^(?:1..|204|304)$/;
}

sub describe {
    my ($self) = @_;

    return $self->{status}
        . ($self->{error} ? " ($self->{error})" : '')
        . ' ' . substr($self->{body}, 0, 300);
}

1;

package Vibelock::Port;

# Free ports that stay ours.
#
#   use Vibelock::Port qw(free_port);
#
#   my $port = free_port();      # nobody listens there, nobody else gets it
#
# A port is one that a server may bind now, later, and again after a restart;
# one that nobody has bound yet refuses connections, which a test may want.
# Binding port 0 gives no such promise once the socket is closed, so ports come
# from below the kernel's own ephemeral range (no outgoing connection takes
# one), and each is reserved by a lock on a file named after it, which lasts as
# long as the process does.  Tests that run in parallel thus never share one.

use strict;
use warnings;

use Exporter qw(import);
use Carp qw(croak);
use Fcntl qw(:flock O_RDWR O_CREAT);
use IO::Socket::INET;

our @EXPORT_OK = qw(free_port);

use constant FIRST => 12000;
use constant LAST  => 31999;

my $directory = ($ENV{TMPDIR} || '/tmp') . "/vibelock-ports-$<";
my %reserved;
my $next;

sub free_port {

    mkdir $directory, 0700;

    my $count = LAST - FIRST + 1;
    $next //= ($$ * 97) % $count;

    for (1 .. $count) {
        my $port = FIRST + $next;
        $next = ($next + 1) % $count;

        next if $reserved{$port};

        sysopen my $lock, "$directory/$port", O_RDWR | O_CREAT
            or croak "cannot open $directory/$port: $!";
        flock $lock, LOCK_EX | LOCK_NB or next;
        can_bind($port) or next;

        $reserved{$port} = $lock;
        return $port;
    }

    croak 'no free port between ' . FIRST . ' and ' . LAST;
}

sub can_bind {
    my ($port) = @_;

    my $socket = IO::Socket::INET->new(
        LocalAddr => '0.0.0.0',
        LocalPort => $port,
        Proto     => 'tcp',
        ReuseAddr => 1,
        Listen    => 1,
    ) or return 0;

    close $socket;
    return 1;
}

1;

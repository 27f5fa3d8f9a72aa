package Vibelock::Ttl;

# How long the lock of a request lasts, to the millisecond.
#
#   use Vibelock::Ttl qw(ttl body_is);
#
#   my ($t, $up) = Vibelock::Ttl::gateway(fixed => 'vibelock_ttl 1h30m;');
#
#       starts a gateway with a location /fixed/ that has these lines, and with
#       /exec/, whose TTL is that of the examples; and its upstream
#
#   is(ttl('fixed', body => 'x'), 5_400_000);
#
#       posts to that location, options as in Vibelock::Http, and gives the TTL
#       in ms; or what was refused: 'number', 'object' or 'size' for the 400 of
#       a field that is no such number, of a body that is no JSON object, and of
#       one that is too large
#
#   body_is('{"timeout":5}', 95_000, $name);    # the same of a body, at /exec/
#
# vibelock_keep leaves every lock here, and what DELETE says of its age and its
# rest makes the TTL.

use strict;
use warnings;

use Exporter qw(import);
use Test::More ();

use Vibelock::Test;
use Vibelock::Upstream::Auto;

our @EXPORT_OK = qw(ttl body_is);

my ($t, $up);
my $n = 0;

sub gateway {
    my (%locations) = @_;

    $up = Vibelock::Upstream::Auto->start;

    $t = Vibelock::Test->new;
    $t->set(UPSTREAM => $up->port);
    $t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_owner me;
    vibelock_keep 1;

    client_max_body_size 0;
    proxy_http_version 1.1;
EOC

    $locations{exec} = 'vibelock_ttl json=timeout default=60s add=90s max=1h;';

    $t->server(join '', 'location = /lock { vibelock_release zone=ops; }',
        map { <<"EOC" } sort keys %locations);

    location /$_/ {
        vibelock exec zone=ops;
        $locations{$_}
        proxy_pass http://127.0.0.1:%%UPSTREAM%%;
    }
EOC
    $t->start;

    return ($t, $up);
}

sub ttl {
    my ($path, %how) = @_;

    my $id = ++$n;
    my $r = $t->post("/$path/ok?id=$id", %how);
    my $lock = $t->delete("/lock?id=$id")->json->{data};

    if ($r->status == 400) {
        return 'locked all the same' if $lock->{released};

        my $message = $r->json->{error}{message};

        return $message =~ /^\w+ must be a number/ ? 'number'
             : $message =~ /JSON object/           ? 'object'
             : $message =~ /1 MB/                  ? 'size'
             :                                       $r->describe;
    }

    return $r->describe if $r->status != 200 || !$lock->{released};

    return $lock->{ageMs} + $lock->{expiresInMs};
}

sub body_is {
    my ($body, $expected, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return Test::More::is(ttl('exec', body => $body), $expected,
                          'body: ' . ($name // $body));
}

1;

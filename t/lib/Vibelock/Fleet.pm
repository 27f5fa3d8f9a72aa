package Vibelock::Fleet;

# Several gateways, each an nginx of its own, that share a Redis.
#
#   my $fleet = Vibelock::Fleet->new(redis => 'redis://127.0.0.1:6379');
#   $fleet->start;
#
#   $fleet->take(0, 'web-1', owner => 'ann');    # a stuck lock on gateway 0
#   ok($fleet->held(0, 'web-1'));
#   $fleet->release(1, 'web-1', owner => 'ann'); # DELETE on gateway 1
#   ok($fleet->freed(0, 'web-1'));               # waits for it
#   is($fleet->exec(0, 'web-1'), 200);           # runs and ends; 409: locked
#
# Options of new:
#
#   redis      the URL, or a list of them, one for each gateway
#   gateways   3
#   more       what follows the URL in vibelock_redis ("timeout=1s"), or a list
#   http       further lines of http; server: of the server
#   nginx      { options of Vibelock::Test->new }; each: a list of those
#   size       1m, of a zone
#   zones      2 for another zone, "two", beside "ops" (zone => 'two' below)
#
#   $fleet->gateway($n)      its Vibelock::Test;  $fleet->gateways: all
#   $fleet->old              waits until a lock taken before is older than what
#                            a release has to leave alone
#   $fleet->bus($n)          what the status tells of its bus
#   $fleet->working          waits until all of them read and publish
#
#   entry(key => 'web-1', owner => 'ann', at => $ms, from => 'elsewhere')
#                            an entry as JSON; every member may be replaced, or
#                            left out (undef), and others added
#   stream('ops')            the name of a stream
#   redis_ms($redis)         the time there
#
# An id is what stands in the URI.  The owner is what ?owner= says (ann, where
# nothing does), and everybody owns every server.

use strict;
use warnings;

use Digest::SHA qw(sha256_hex);
use Exporter qw(import);
use JSON::PP ();
use Time::HiRes ();

use Vibelock::Test;
use Vibelock::Util qw(wait_for);

our @EXPORT_OK = qw(entry stream redis_ms);

sub new {
    my ($class, %how) = @_;

    my @redis = ref $how{redis} ? @{ $how{redis} } : $how{redis};
    my @more = ref $how{more} ? @{ $how{more} } : $how{more} // '';
    my $size = $how{size} // '1m';
    my @zones = ('ops', ($how{zones} // 1) > 1 ? 'two' : ());

    my $self = bless { gateways => [] }, $class;

    for my $n (0 .. ($how{gateways} // 3) - 1) {
        my $t = Vibelock::Test->new(workers => 2, %{ $how{nginx} || {} },
                                    %{ $how{each} ? $how{each}[$n] : {} });

        $t->write_file('ok', "ok\n");
        $t->http(join "\n",
            (map { "vibelock_zone \$id zone=$_:$size;" } @zones),
            "vibelock_redis $redis[$n % @redis] $more[$n % @more];",
            'map $arg_owner $owner { "" ann; default $arg_owner; }',
            $how{http} // '');
        $t->server(join "\n",
            'vibelock_owner $owner;',
            'vibelock_server_found 1;',
            'location = /status { vibelock_status json; }',
            (map { locations($_) } @zones),
            $how{server} // '');

        push @{ $self->{gateways} }, $t;
    }

    return $self;
}

sub locations {
    my ($zone) = @_;

    return <<"CONF";
        location ~ (?s)^/$zone/take/(?<id>.+)\$ {
            vibelock exec zone=$zone;
            vibelock_ttl 1h;
            vibelock_keep 1;
            alias %%DIR%%/ok;
        }
        location ~ (?s)^/$zone/exec/(?<id>.+)\$ {
            vibelock exec zone=$zone;
            alias %%DIR%%/ok;
        }
        location ~ (?s)^/$zone/lock/(?<id>.+)\$ {
            vibelock_release zone=$zone;
        }
CONF
}

sub gateways { @{ $_[0]{gateways} } }
sub gateway  { $_[0]{gateways}[$_[1]] }

sub start {
    my ($self) = @_;

    $_->start for $self->gateways;

    return $self;
}

sub uri {
    my ($what, $id, %how) = @_;

    my $zone = $how{zone} // 'ops';

    return "/$zone/$what/$id"
        . (defined $how{owner} ? "?owner=$how{owner}" : '');
}

sub take {
    my ($self, $n, $id, %how) = @_;

    my $status = $self->gateway($n)->get(uri('take', $id, %how))->status;

    die "not locked: $status" if $status != 200;

    return;
}

sub exec {
    my ($self, $n, $id, %how) = @_;

    return $self->gateway($n)->get(uri('exec', $id, %how))->status;
}

sub release {
    my ($self, $n, $id, %how) = @_;

    return $self->gateway($n)->delete(uri('lock', $id, %how));
}

sub held {
    my ($self, $n, $id, %how) = @_;

    my $r = $self->gateway($n)->get(uri('lock', $id, %how));

    # To whom a lock does not belong, it is not told of.
    return 1 if $r->status == 404;

    die 'no state: ' . $r->status if $r->status != 200;

    return $r->json->{data}{locked} ? 1 : 0;
}

sub freed {
    my ($self, $n, $id, %how) = @_;

    return wait_for { !$self->held($n, $id, %how) } $how{limit};
}

# A release leaves locks alone that are up to 50 ms older than it.

sub old {
    Time::HiRes::sleep(0.12);

    return;
}

sub stream { ($_[1] // 'vibelock:') . "$_[0]:releases" }

sub entry {
    my (%has) = @_;

    $has{owner} = sha256_hex($has{owner} // 'ann')
        unless exists $has{owner} && !defined $has{owner};

    my %entry = (v => 1, at => int Time::HiRes::time() * 1000,
                 from => 'elsewhere-0123456789abcdef', %has);

    delete @entry{ grep { !defined $entry{$_} } keys %entry };

    return JSON::PP->new->utf8->canonical->encode(\%entry);
}

sub redis_ms {
    my ($seconds, $us) = @{ $_[0]->cmd('TIME') };

    return $seconds * 1000 + int($us / 1000);
}

sub bus {
    my ($self, $n, $zone) = @_;

    my $status = $self->gateway($n)->get("/status")->json->{data};

    for my $of (@{ $status->{zones} }) {
        return $of->{bus} if $of->{name} eq ($zone // 'ops');
    }

    return undef;
}

sub working {
    my ($self) = @_;

    return wait_for {
        !grep {
            my $bus = $self->bus($_);
            $bus->{reading} ne "works" || $bus->{publishing} ne "works"
        } 0 .. $self->gateways - 1;
    };
}

1;

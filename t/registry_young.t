#!/usr/bin/perl

# A registry that changes twice within a moment of its file system's, and has
# the same size: the second change is not missed.

use strict;
use warnings;

use Test::More;
use Time::HiRes ();

use Vibelock::Preload qw(preload);
use Vibelock::Registry qw(registry account server);
use Vibelock::Test qw(wait_for);

plan skip_all => 'it does not go with sanitizers or valgrind'
    if $ENV{VIBELOCK_PRELOAD} || $ENV{VIBELOCK_VALGRIND};

my $t = Vibelock::Test->new(workers => 1,
                            env => { preload('seconds') });

$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry.json check=10ms;
EOC
$t->server(<<'EOC');
    location ~ ^/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
EOC

sub text {
    my (@servers) = @_;

    return registry(
        keys    => [account('me', 'key')],
        servers => [map { server($_, 'me') } @servers],
    );
}

# Into the file that is there: another one would be told from it.

sub change {
    my ($text) = @_;

    open my $fh, '+<', $t->path('registry.json') or die $!;
    syswrite $fh, $text or die $!;
    close $fh;
}

sub known {
    my ($server) = @_;

    return $t->get("/$server/lock", headers => { 'X-Api-Key' => 'key' })
        ->status == 200;
}

# Changes the file, and again when the first change is in force, within one
# second; 0: that took longer.

sub changed_twice {
    my ($first, $second, $known) = @_;

    wait_for { Time::HiRes::time() - time < 0.2 };

    my $since = time;

    change($first);
    wait_for { $known->() } 0.7 or return 0;
    change($second);

    return time == $since;
}

sub twice {
    my (@changes) = @_;

    return wait_for { changed_twice(@changes) } 30;
}

$t->write_file('registry.json', text('one'));
$t->start;

ok(twice(text('two'), text('six'), sub { known('two') }),
   'a change, and another one of the same second and size');
ok(wait_for { known('six') && !known('two') }, 'the second one is in force');

my $wrong = text('six') =~ s/STANDALONE/STANDALOME/r;
my $failed = sub { $t->error_log =~ /stays as it was/ };

$t->log_mark;
ok(twice($wrong, text('ten'), $failed), 'a bad file, and a good one');
ok(wait_for { known('ten') }, 'which is in force');

$t->log_mark;
change($wrong);
ok(wait_for { $failed->() }, 'a bad file that stays');
wait_for { 0 } 3;
is(() = $t->error_log =~ /stays as it was/g, 1, 'is logged once');
unlike($t->error_log, qr/read \d+ keys/, 'and nothing else is');

$t->done;

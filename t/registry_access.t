#!/usr/bin/perl

# A registry that the workers may not read, though the master may: it is told
# at once, not when a key that was taken away is still good.

use strict;
use warnings;

use Test::More;

use Vibelock::Registry qw(registry account server);
use Vibelock::Test qw(wait_for);

plan skip_all => 'workers have another user only where root starts them'
    if $> != 0;

my $t = Vibelock::Test->new(workers => 2, user => 'nobody nogroup');

$t->http(<<'EOC');
    vibelock_zone $server_id zone=ops:1m;
    vibelock_registry %%DIR%%/registry/file.json check=50ms;
EOC
$t->server(<<'EOC');
    location ~ ^/(?<server_id>[^/]+)/lock$ {
        vibelock_release zone=ops;
    }
    location = /status {
        vibelock_status json;
    }
EOC

my $file = $t->path('registry/file.json');

mkdir $t->path('registry'), 0755;

sub text {
    my (@servers) = @_;

    return registry(
        keys    => [account('me', 'key')],
        servers => [map { server($_, 'me') } @servers],
    );
}

sub status {
    my ($server) = @_;

    return $t->get("/$server/lock", headers => { 'X-Api-Key' => 'key' })
        ->status;
}

sub failing { return $t->get('/status')->json->{data}{registry}{failing} }

# Each of the two workers says so, and says that it may not read the file.

sub both_say {
    my ($line) = @_;

    return wait_for { (() = $t->error_log =~ /$line/g) == 2 };
}

sub told {
    return both_say(
        qr/\[error\].*"\Q$file\E" stays .*open.* \(13: Permission denied/);
}

$t->write_file('registry/file.json', text('one'));
chmod 0600, $file;
$t->start;

ok(told(), 'each worker says so at its start');
is(status('one'), 200, 'what the master read is in force');
ok(failing(), 'the status tells it');

$t->log_mark;
chmod 0644, $file;
ok(wait_for { !grep { failing() } 1 .. 20 }, 'until they may');
ok(both_say(qr/\[notice\].*"\Q$file\E": read 1 keys/), 'which each says');

$t->log_mark;
chmod 0700, $t->path('registry');
ok(told(), 'a directory that the workers may not enter');

$t->log_mark;
chmod 0755, $t->path('registry');
ok(both_say(qr/\[notice\].*"\Q$file\E" can be read again, and is as it was/),
   'and may again');
ok(!failing(), 'which the status tells');

$t->log_mark;
chmod 0600, $file;
ok(told(), 'each worker says so when it changes');

$t->log_mark;
$t->reload;
ok(told(), 'and after a reload');
is(status('one'), 200, 'and the one of the reload is in force');

$t->done;

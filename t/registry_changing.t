#!/usr/bin/perl

# A registry that is changed while it is read: what is added to it is not part
# of that reading, what is cut off makes it a bad file, and either is seen as
# the change that it is.

use strict;
use warnings;

use Test::More;

use Vibelock::Preload qw(preload);
use Vibelock::Registry qw(registry account server);
use Vibelock::Test qw(wait_for);

sub text {
    my (@servers) = @_;

    return registry(
        keys    => [account('me', 'key')],
        servers => [map { server($_, 'me') } @servers],
    ) . "\n";
}

sub gateway {
    my ($how) = @_;

    my %env;
    my $t = Vibelock::Test->new(workers => 1, env => \%env);

    %env = (
        DO   => $how,
        FILE => $t->path('registry.json'),
        preload('file'),
    );

    $t->http(<<'EOC');
        vibelock_zone $server_id zone=ops:1m;
        vibelock_registry %%DIR%%/registry.json check=50ms;
EOC
    $t->server(<<'EOC');
        location ~ ^/(?<server_id>[^/]+)/lock$ {
            vibelock_release zone=ops;
        }
EOC

    return $t;
}

sub status {
    my ($t, $server) = @_;

    return $t->get("/$server/lock", headers => { 'X-Api-Key' => 'key' })
        ->status;
}

# The next reading is the one that finds the file changed.

sub arm { $_[0]->write_file('registry.json.armed', '') }

my $good = qr/"[^"]+": read 1 keys/;
my $bad = qr/\[error\].* stays as it was read before: it must be JSON/;

subtest 'it grows' => sub {
    my $t = gateway('grow');

    arm($t);
    $t->write_file('registry.json', text('one'));
    $t->start;
    is(status($t, 'one'), 200, 'at the start: it is read as it was');
    is($t->read_file('registry.json'), text('one') . "more\n", 'it has grown');
    ok($t->log_like($bad), 'what it is now is read, and bad');
    is(status($t, 'one'), 200, 'and what was read is in force');

    $t->log_mark;
    arm($t);
    $t->write_file('registry.json', text('two'));
    ok($t->log_like($good), 'later: it is read as it was');
    ok($t->log_like($bad), 'what it is now is read, and bad');
    is(status($t, 'two'), 200, 'and what was read is in force');

    $t->log_mark;
    $t->write_file('registry.json', text('three'));
    ok($t->log_like($good), 'a whole one is taken up');
    is(status($t, 'three'), 200, 'and in force');
    $t->finish;
};

subtest 'it shrinks' => sub {
    my $t = gateway('shrink');

    arm($t);
    $t->write_file('registry.json', text('one'));
    like($t->start_fails, qr/\[emerg\].* it must be JSON/,
         'at the start: it is bad');

    $t->write_file('registry.json', text('one'));
    $t->start;

    $t->log_mark;
    arm($t);
    $t->write_file('registry.json', text('two'));
    ok($t->log_like($bad), 'later: it is bad');
    is(status($t, 'one'), 200, 'what was read before is in force');

    # The half that is left is another file than the one that was opened.

    ok(wait_for { 2 == (() = $t->error_log =~ /$bad/g) },
       'what it is now is read, and bad');

    # All that is left of this one is good.

    $t->log_mark;
    arm($t);
    $t->write_file('registry.json', text('three') . ' ' x length text('three'));
    ok(wait_for { 2 == (() = $t->error_log =~ /$good/g) },
       'what is good by itself is read, and read again');
    is(status($t, 'three'), 200, 'and in force');

    $t->log_mark;
    $t->write_file('registry.json', text('four'));
    ok($t->log_like($good), 'a whole one is taken up');
    is(status($t, 'four'), 200, 'and in force');
    $t->finish;
};

done_testing();

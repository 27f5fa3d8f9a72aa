#!/usr/bin/perl

# A worker that stands still for a minute in the middle of a report, as in a
# container that is paused, answers it once.

use strict;
use warnings;

use Test::More;

use Vibelock::Pipeline qw(pipeline);
use Vibelock::Preload qw(later preload_clock);
use Vibelock::Test;

use constant REPORTS => 100;
use constant MINUTE  => 61;
use constant DAYS    => 20 * 86400;

plan skip_all => 'valgrind makes calls of the system its own'
    if $ENV{VIBELOCK_VALGRIND};

my $t = Vibelock::Test->new(
    workers => 1,
    env     => { preload_clock() },
);

# The request is not over with its answer.

$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:8m;
    vibelock_ttl 30d;
    keepalive_timeout 24d;
    client_header_timeout 24d;
    send_timeout 24d;
    lingering_time 24d;
    lingering_timeout 24d;
EOC
$t->server(<<'EOC');
    location /kept { vibelock deploy zone=ops; vibelock_keep 1; empty_gif; }
    location /status { vibelock_status; lingering_close always; }
EOC
$t->start;

pipeline($t->port, map { "/kept?id=$_" } 1 .. 20_000);

# A minute goes by in nearly every step.

my $clock = fork // die "fork: $!";

if ($clock == 0) {
    for (my $seconds = 0; $seconds < DAYS; $seconds += MINUTE) {
        later($seconds);
        select undef, undef, undef, 0.00001;
    }

    require POSIX;
    POSIX::_exit(0);
}

my @reports = map { $t->get('/status') } 1 .. REPORTS;

kill 'KILL', $clock;
waitpid $clock, 0;

is((grep { $_->status == 200 } @reports), REPORTS, 'all are answered');

$t->done;

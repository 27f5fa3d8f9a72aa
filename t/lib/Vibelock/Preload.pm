package Vibelock::Preload;

# A library of t/preload/ that stands between a program and the system.
#
#   use Vibelock::Preload qw(preload library);
#
#   Vibelock::Test->new(env => { preload('file'), FILE => … });   # for nginx
#   Vibelock::Redis->start(env => { LD_PRELOAD => library('clock') });
#
# Where something has to be loaded before all else, as the sanitizers have to,
# it still is.
#
#   Vibelock::Test->new(env => { preload_clock() });
#   later(60);              # its monotonic clock is so many seconds ahead

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Temp ();
use Test::More;

our @EXPORT_OK = qw(later library preload preload_clock);

my $root = abs_path(dirname(__FILE__) . '/../..');
my $dir = File::Temp->newdir;
my $later = File::Temp->new;

# nginx's workers may be of another user.

chmod 0755, $dir;
chmod 0644, $later;

sub preload {
    my ($name) = @_;

    return (LD_PRELOAD => join(':', $ENV{VIBELOCK_PRELOAD} || (),
                               library($name)));
}

sub preload_clock {
    later(0);

    return (preload('monotonic'), LATER => "$later");
}

sub later {
    my ($seconds) = @_;

    sysseek $later, 0, 0;
    syswrite $later, pack('i', $seconds) or die "later: $!";

    return;
}

sub library {
    my ($name) = @_;

    my $library = "$dir/$name.so";

    return $library if -e $library;

    system(split(' ', $ENV{CC} || 'cc'), qw(-shared -fPIC -Wall -Werror),
           "$root/preload/$name.c", '-o', $library, '-ldl') == 0
        or BAIL_OUT("t/preload/$name.c does not compile");

    return $library;
}

1;

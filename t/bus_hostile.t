#!/usr/bin/perl

# Answers that no Redis gives, or that something between here and Redis makes
# of them: no worker dies of them or is kept busy, and the bus is away until
# there are better ones.

use strict;
use warnings;

use File::Temp ();
use IO::Select;
use IO::Socket::IP;
use Test::More;
use Time::HiRes qw(sleep time);

use Vibelock::Fleet qw(entry stream);
use Vibelock::Preload qw(preload);
use Vibelock::Process qw(end_group fork_child);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Util qw(read_file write_file);

# A Redis whose answers can be replaced: "name" => text, or a code that makes
# it of what follows the name.  It counts the commands, for whoever asks for
# COUNTS, and says +LATE to all others, for whoever asks for that.  What stands
# for the command that ENDLESS names is followed by dots, until nobody reads any
# more; "most" counts them.

my %good = (
    TIME      => sub { time_of(0) },
    XREVRANGE => "*0\r\n",
    XADD      => "\$3\r\n1-1\r\n",
    XREAD     => '',
    LATE      => "+LATE\r\n",
);

sub time_of {
    my ($ahead) = @_;

    my ($s, $us) = split /\./, sprintf '%.6f', time + $ahead;

    return list($s, $us);
}

# A list of texts and of lists, in Redis's protocol.

sub list {
    return '*' . @_ . "\r\n" . join '', map {
        ref $_ ? list(@$_) : '$' . length($_) . "\r\n$_\r\n"
    } @_;
}

sub serve {
    my ($listen, $answers) = @_;

    my $select = IO::Select->new($listen);
    my (%buffers, %counts);

    local $SIG{PIPE} = 'IGNORE';

    while (my @ready = $select->can_read) {
        for my $handle (@ready) {
            if ($handle == $listen) {
                $select->add($listen->accept // ());
                next;
            }

            unless (sysread $handle, $buffers{$handle}, 65536,
                            length($buffers{$handle} // ''))
            {
                $select->remove($handle);
                delete $buffers{$handle};
                next;
            }

            while (my ($name, @args) = command(\$buffers{$handle})) {
                my $answer = $name eq 'COUNTS' ? list(%counts)
                                               : $answers->{$name};
                $counts{$name}++;
                syswrite $_, $answer
                    for grep { $name eq 'LATE' && $_ != $listen }
                        $select->handles;
                next if $name eq 'LATE';
                $answer = $answer->(@args) if ref $answer;
                syswrite $handle, $answer;

                if ($name eq ($answers->{ENDLESS} // '')) {
                    my $n = dots($handle);
                    $counts{most} = $n if $n > ($counts{most} // 0);
                }
            }
        }
    }
}

# A reader that stays and does not read would be one that has to be waited for.

sub dots {
    my ($handle) = @_;

    my $dots = '.' x 65536;
    my $sent = 0;

    while ($sent < 200_000_000) {
        $sent += syswrite($handle, $dots) // last;
    }

    return $sent;
}

sub command {
    my ($buffer) = @_;

    my ($words) = $$buffer =~ /^\*(\d+)\r\n/ or return;

    $$buffer =~ s/^\*\d+\r\n((?:\$\d+\r\n.*?\r\n){$words})//s or return;

    return grep { !/^\$/ } split /\r\n/, $1;
}

sub with_answers {
    my ($name, $bad, $check, %nginx) = @_;

    subtest $name => sub {
        my $listen = IO::Socket::IP->new(LocalHost => '127.0.0.1',
                                         Listen => 50) or die $!;
        my $pid = fork_child(sub { serve($listen, { %good, %$bad }) },
                             $listen);

        my $fleet = Vibelock::Fleet->new(
            redis    => 'redis://127.0.0.1:' . $listen->sockport,
            gateways => 1,
            nginx    => \%nginx,
        );

        $fleet->start;
        $check->($fleet, $listen->sockport);
        is($fleet->exec(0, 'web'), 200, 'it serves');
        $fleet->gateway(0)->finish;
        end_group($pid);
    };
}

# hiredis ends the process for an answer to nothing. Who reads asks at once,
# when it has the time: what was there before that does not answer it.

for my $extra ("+OK\r\n", ":1\r\n", "\$-1\r\n", "-ERR what\r\n", "*0\r\n",
               "*2\r\n\$1\r\na\r\n", '$')
{
    my $name = $extra =~ s/\r\n/ /gr;

    with_answers("\"$name\" behind an answer", {
        TIME => sub { $good{TIME}->() . $extra },
    }, sub {
        my ($fleet) = @_;
        ok(wait_for { $fleet->bus(0)->{publishing} eq 'unexpected' }, 'away');
        ok(wait_for { $fleet->bus(0)->{reading} eq 'unexpected' },
           'to read as well');
    });
}

with_answers('an answer to nothing, later', {
    TIME  => $good{TIME},
    XADD  => "\$3\r\n1-1\r\n\$3\r\n1-1\r\n",
}, sub {
    my ($fleet) = @_;

    $fleet->working;
    $fleet->release(0, 'web');
    ok(wait_for { $fleet->bus(0)->{reconnects} > 0 }, 'ends the connection');
});

# One that comes while it is looked for.

with_answers('an answer to nothing, between two reads', {
    XREAD => "*-1\r\n",
}, sub {
    my ($fleet, $port) = @_;

    ok($fleet->working, 'it works');
    $fleet->release(0, 'web');
    ok(wait_for { $fleet->bus(0)->{queued} == 0 }, 'nothing is asked');

    Vibelock::Redis::Client->connect(port => $port)->cmd('LATE');
    ok(wait_for { $fleet->bus(0)->{reconnects} >= 3 },
       'ends the connections of two who publish and one who reads');
}, env => { preload('late') });

# A clock that takes its time may have any.

with_answers('a slow clock', {
    TIME => sub { Time::HiRes::sleep(0.07); return time_of(0) },
}, sub {
    my ($fleet) = @_;

    $fleet->release(0, 'web');

    for my $side (qw(publishing reading)) {
        ok(wait_for { $fleet->bus(0)->{$side} eq 'clock' }, "is none, $side");
    }

    is($fleet->bus(0)->{queued}, 1, 'and a release waits for a better one');
});

with_answers('no list of entries', { XREAD => "+OK\r\n" }, sub {
    my ($fleet) = @_;
    ok(wait_for { $fleet->bus(0)->{reading} eq 'unexpected' }, 'away');
});

# More than was asked for, which would be a lot of work at once.

for my $many ([[stream('ops'), [map { ["1-$_", ['release', '?']] } 1 .. 33]]],
              [map { [stream('ops'), [["1-$_", ['release', '?']]]] } 1 .. 2])
{
    with_answers('too many of ' . @$many, { XREAD => list(@$many) }, sub {
        my ($fleet) = @_;
        ok(wait_for { $fleet->bus(0)->{reading} eq 'unexpected' }, 'away');
        is($fleet->bus(0)->{received}, 0, 'nothing is done');
    });
}

# What was read already, which would be asked for and read without end.

for my $again (['an entry'], ['one of two', '5-0']) {
    my ($name, @before) = @$again;

    with_answers("$name that was read already", {
        XREAD => list([stream('ops'), [map { [$_, ['release', '?']] }
                                           '5-1', @before]]),
    }, sub {
        my ($fleet) = @_;
        ok(wait_for { $fleet->bus(0)->{reading} eq 'unexpected' }, 'away');
        is($fleet->bus(0)->{lastId}, @before ? '0-0' : '5-1', 'it is no more');
    });
}

# What was not asked for: protocol 3.

for my $answer (",1.5\r\n", "#t\r\n", "(12345678901234567890\r\n",
                "=7\r\ntxt:abc\r\n", "%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n",
                ">2\r\n+a\r\n:1\r\n", "*2\r\n:1\r\n#t\r\n",
                "*1\r\n*2\r\n+a\r\n,1.5\r\n")
{
    my $name = $answer =~ s/\r\n/ /gr;

    with_answers("$name is of another protocol", { XREAD => $answer }, sub {
        my ($fleet) = @_;
        ok(wait_for { $fleet->bus(0)->{reading} eq 'unexpected' }, 'away');
    });
}

# A server that is of no use is left, for it may be another one next time; an
# error of the stream's own is none of the server's.

for my $case (['LOADING', 'loading'], ['MASTERDOWN', 'loading'],
              ['READONLY', 'readonly'], ['NOAUTH', 'noauth'],
              ['NOPERM', 'noperm', 'stays'], ['WRONGTYPE', 'wrongtype', 'stays'],
              ['OOM', 'error', 'stays'])
{
    my ($error, $why, $stays) = @$case;

    with_answers("$error to an entry", {
        XADD  => "-$error of it\r\n",
        XREAD => "*-1\r\n",
    }, sub {
        my ($fleet, $port) = @_;

        ok($fleet->working, 'it works');
        $fleet->release(0, 'web');
        ok(wait_for { $fleet->bus(0)->{publishing} eq $why }, $why);

        if ($stays) {
            my $client = Vibelock::Redis::Client->connect(port => $port);

            ok(wait_for { my %n = @{ $client->cmd('COUNTS') }; $n{XADD} > 2 },
               'is tried again');
            is($fleet->bus(0)->{reconnects}, 0, 'on the same connection');

        } else {
            ok(wait_for { $fleet->bus(0)->{reconnects} > 1 },
               'is tried again, on another connection');
        }
    });
}

# What Redis said is in the log.

with_answers('an error that a terminal would heed', {
    XREVRANGE => "-ERR one\e[2J\x9b2J\r\n",
}, sub {
    my ($fleet) = @_;

    ok(wait_for { $fleet->bus(0)->{reading} eq 'error' }, 'away');
    ok($fleet->gateway(0)->log_like(qr/\(ERR one\?\[2J\?2J\)$/m),
       'is only text there');
});

# To hiredis since 1.1 it is no error of Redis.

with_answers('an error of two lines', {
    XREVRANGE => "-ERR one\ntwo\r\n",
}, sub {
    my ($fleet) = @_;

    ok(wait_for { $fleet->bus(0)->{reading} =~ /^(?:error|unexpected)$/ },
       'away');
    ok($fleet->gateway(0)->log_like(qr/cannot read: .*(?:"|one\?two\))$/m),
       'is one line there');
});

# hiredis would make room for 400 MB, and take seconds to free it.

for my $name (qw(TIME XREAD)) {
    with_answers("a very long list to $name", {
        $name => "*50000000\r\n:1\r\n",
    }, sub {
        my ($fleet) = @_;

        ok(wait_for { $fleet->bus(0)->{reading} eq 'large' }, 'away');

        my ($worker) = $fleet->gateway(0)->workers;
        my ($most) = read_file("/proc/$worker/status") =~ /^VmHWM:\s+(\d+)/m;

        cmp_ok($most, '<', 300_000, 'no room is made for it');
    });
}

# Each would be 8 MB, and hiredis 1.x reads a thousand of them and more.

with_answers('long lists in long lists', {
    XREAD => "*1000000\r\n" x 5,
}, sub {
    my ($fleet) = @_;
    ok(wait_for { $fleet->bus(0)->{reading} eq 'large' }, 'away');
});

# One that never ends. What is sent of it, until the connection is closed, has
# to go through the sockets as well.

for my $endless (['a text', "\$1000000000\r\n", 'large'],
                 ['a text in a list', "*1\r\n\$1000000000\r\n", 'large'],
                 ['a line', "+a\rb\nc", 'unexpected'])
{
    my ($name, $begin, $why) = @$endless;

    for my $to (qw(TIME XREVRANGE XREAD)) {
        with_answers("$name without end to $to", {
            $to     => $begin,
            ENDLESS => $to,
        }, sub {
            my ($fleet, $port) = @_;

            ok(wait_for { $fleet->bus(0)->{reading} eq $why }, 'away');

            my $client = Vibelock::Redis::Client->connect(port => $port);
            my %n = @{ $client->cmd('COUNTS') };

            cmp_ok($n{most}, '<', 40_000_000, 'no more is read of it');
        });
    }
}

# Entries that Redis cannot bring in time, but for one by one.

{
    my $n = 0;

    with_answers('answers that come too late', {
        XREAD => sub {
            my (undef, $count) = @_;

            return '' if $count > 1;

            $n++;
            return list([stream('ops'), [["$n-0", ['release', '?']]]]);
        },
    }, sub {
        my ($fleet) = @_;

        ok(wait_for { $fleet->bus(0)->{received} >= 3 }, 'fewer are asked for');
    });
}

# Nothing new, and without a wait.

for my $nothing ("*-1\r\n", "*0\r\n") {
    my $name = $nothing =~ s/\r\n//r;

    with_answers("$name at once", { XREAD => $nothing }, sub {
        my ($fleet, $port) = @_;

        my $client = Vibelock::Redis::Client->connect(port => $port);
        my $reads = sub { my %n = @{ $client->cmd('COUNTS') }; $n{XREAD} // 0 };

        ok(wait_for { $reads->() > 2 }, 'it asks again');

        my $before = $reads->();
        my $start = time;
        wait_for { time - $start > 1 };
        my $n = $reads->() - $before;

        cmp_ok($n, '<', 20 * (time - $start), 'but not without end');
        is($fleet->bus(0)->{reading}, 'works', 'and it works');
    });
}

# The clock of Redis is set forward after the last sample. What it gives an entry
# then is a moment still to come, until the clock is asked again.

{
    my $ahead = File::Temp->new;
    my $given = 0;
    my $ms;

    my $entries = sub {
        return () unless -s "$ahead";

        $ms //= int((time + 5) * 1000);
        return ["$ms-0", ['release', entry(key => 'ahead', at => $ms)]];
    };

    with_answers('a clock that was set forward', {
        TIME  => sub { time_of(-s "$ahead" ? 5 : 0) },
        XREAD => sub {
            my @new = $given < 2 ? $entries->() : ();

            $given += @new;
            return @new ? list([stream('ops'), [@new]]) : "*-1\r\n";
        },
    }, sub {
        my ($fleet) = @_;

        ok($fleet->working, 'it works');
        $fleet->take(0, 'ahead');

        my $start = time;
        wait_for { time - $start > 1.5 };

        write_file("$ahead", 'is set');
        ok($fleet->freed(0, 'ahead'), 'a release of then frees its lock');
    });
}

# The clock is asked once for each such entry: an answer may take longer than
# what the clock said is good for, and the entry an hour to be of now.

{
    my $id = int((time + 3600) * 1000) . '-0';

    with_answers('a moment still to come, in answers that take a second', {
        XREAD => sub {
            my ($after) = $_[-1];

            sleep 1.1;
            return $after eq $id ? "*-1\r\n"
                : list([stream('ops'), [[$id, ['release', '?']]]]);
        },
    }, sub {
        my ($fleet) = @_;

        ok(wait_for { $fleet->bus(0)->{lastId} eq $id }, 'is read');
        is($fleet->bus(0)->{reading}, 'works', 'and it works');
    }, workers => 1);
}

done_testing();

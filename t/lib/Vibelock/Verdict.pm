package Vibelock::Verdict;

# What nginx -t says of a configuration.
#
#   use Vibelock::Verdict qw(verdict refuses accepts warns);
#
#   refuses($t, $name, $sentence, $http, $server);
#   accepts($t, $name, $http, $server);
#   warns($t, $name, $sentence, $http, $server);
#
#       puts these lines into $t, a Vibelock::Test, and passes when nginx says
#       that sentence at [emerg] and refuses, says nothing there and takes it,
#       or takes it with that [warn]
#
#   verdict($t)          '1: invalid value …', '0: ': the exit code of nginx -t
#                        and what it says at [emerg], without file and line
#   verdict($t, 'warn')  what it says at another level

use strict;
use warnings;

use Exporter qw(import);
use Test::More ();

our @EXPORT_OK = qw(verdict refuses accepts warns);

sub verdict {
    my ($t, $level) = @_;

    $level //= 'emerg';

    my ($code, $output) = $t->config_test;

    return "$code: " . join ' ', map { s/ in \S+test\.conf:\d+$//r }
        $output =~ /^nginx: \[$level\] (.*)/mg;
}

sub refuses {
    my ($t, $name, $sentence, @config) = @_;

    return says($t, 'emerg', $name, "1: $sentence", @config);
}

sub accepts {
    my ($t, $name, @config) = @_;

    return says($t, 'emerg', $name, '0: ', @config);
}

sub warns {
    my ($t, $name, $sentence, @config) = @_;

    return says($t, 'warn', $name, "0: $sentence", @config);
}

sub says {
    my ($t, $level, $name, $expected, $http, $server) = @_;

    $t->http($http);
    $t->server($server // '');

    local $Test::Builder::Level = $Test::Builder::Level + 2;

    return Test::More::is(verdict($t, $level), $expected, $name);
}

1;

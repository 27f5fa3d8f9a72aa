#!/usr/bin/perl

# The status as Prometheus reads it, and the examples for it.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use JSON::PP ();
use Test::More;

use Vibelock::Process qw(run);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;
use Vibelock::Util qw(read_file);

my $root = abs_path(dirname(__FILE__) . '/..');

my $up = Vibelock::Upstream->new;
my $redis = Vibelock::Redis->start;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port, REDIS => $redis->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id zone=ops:1m;
    vibelock_zone $arg_id 'zone=a "b\\c
d:1m';
    vibelock_registry %%DIR%%/registry.json check=50ms;
    vibelock_redis redis://127.0.0.1:%%REDIS%%;
EOC
$t->server(<<'EOC');
    location /exec { vibelock exec zone=ops; vibelock_owner me;
                     proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /kept { vibelock deploy zone=ops; vibelock_owner me;
                     vibelock_keep 1; empty_gif; }
    location /lock { vibelock_release zone=ops; vibelock_owner me;
                     vibelock_server_found 1; }
    location /status { vibelock_status prometheus; }
EOC
$t->write_file('registry.json', '{"version":1,"keys":[],"servers":[]}');
$t->start;

sub metrics {
    my %value;

    for (split /\n/, $t->get('/status')->body) {
        next if /^#/;
        /^([a-z_]+(?:\{.*\})?) ([0-9.]+)$/ or die "no sample: $_";
        die "twice: $1" if exists $value{$1};
        $value{$1} = $2;
    }

    return \%value;
}

my $r = $t->get('/status');

is($r->status, 200, 'metrics');
is($r->header('Content-Type'), 'text/plain; version=0.0.4; charset=utf-8',
   'of the type that a scraper knows');

my ($code, $output) = run(['promtool', 'check', 'metrics'],
                          input => $r->body);

is($code, 0, 'promtool takes them');
is($output, '', 'and has nothing to say');

my $before = metrics();

is($before->{'vibelock_locks{zone="ops",operation="exec",state="stuck"}'}, 0,
   'a sample is there before its first lock');
ok(exists $before->{'vibelock_acquired_total{zone="a \"b\\\\c\nd"}'},
   'the name of a zone is escaped');
is($before->{vibelock_registry_keys}, 0, 'the registry');
cmp_ok(abs($before->{vibelock_registry_last_success_timestamp_seconds}
           - time), '<', 60, 'and when it was read well');

my $pending = $t->async(POST => '/exec?id=secret-key');
my $x = $up->accept_request;

$t->get('/exec?id=secret-key');
$t->get('/kept?id=secret-other');

my $now = metrics();

is($now->{'vibelock_locks{zone="ops",operation="exec",state="running"}'}, 1,
   'running');
is($now->{'vibelock_locks{zone="ops",operation="deploy",state="stuck"}'}, 1,
   'stuck');
is($now->{'vibelock_acquired_total{zone="ops"}'}, 2, 'acquired');
is($now->{'vibelock_refused_total{zone="ops",reason="busy"}'}, 1, 'busy');
is($now->{'vibelock_kept_total{zone="ops"}'}, 1, 'kept');
is($now->{'vibelock_zone_memory_bytes{zone="ops",state="used"}'}
   - $before->{'vibelock_zone_memory_bytes{zone="ops",state="used"}'}, 256,
   'memory');
is($now->{'vibelock_zone_size_bytes{zone="ops"}'}, 1 << 20, 'size');
ok(wait_for {
    my $age = metrics()->{'vibelock_oldest_lock_age_seconds{zone="ops",'
                          . 'state="stuck"}'};
    $age >= 0.05 && $age < 60;
}, 'ages are seconds');
unlike($t->get('/status')->body, qr/secret/, 'no key is in a metric');

# The bus

my $bus = 'vibelock_bus_up{zone="ops",direction';

ok(wait_for { metrics()->{"$bus=\"reading\"}"} }, 'the bus reads');
is($now->{"$bus=\"publishing\"}"}, 1, 'and could publish');
is($t->delete('/lock?id=secret-other')->json->{data}{released},
   JSON::PP::true(), 'a release');
ok(wait_for {
    my $now = metrics();
    $now->{'vibelock_bus_published_total{zone="ops"}'} == 1
        && $now->{'vibelock_bus_received_total{zone="ops"}'} == 1
        && $now->{'vibelock_bus_skipped_total{zone="ops",reason="own"}'} == 1;
}, 'goes out, and comes back');
$now = metrics();
is($now->{'vibelock_broken_total{zone="ops",reason="request"}'}, 1, 'broken');
is($now->{'vibelock_broken_total{zone="ops",reason="bus"}'}, 0,
   'and not by the bus');
$redis->stop;
ok(wait_for { !metrics()->{"$bus=\"reading\"}"} }, 'the bus is away');

# The registry

$t->write_file('registry.json', 'nothing');
ok(wait_for {
    metrics()->{vibelock_registry_failures_total} == 2;
}, 'a registry that is wrong is counted, by both workers');
is(metrics()->{vibelock_registry_last_reading_successful}, 0,
   'and is not what answers come from');
$t->write_file('registry.json',
               '{"version":1,"keys":[],"servers":[] }');
ok(wait_for {
    (grep { metrics()->{vibelock_registry_last_reading_successful} }
     1 .. 20) == 20;
}, 'until it is right');
is(metrics()->{vibelock_registry_failures_total}, 2, 'the count stays');

is_deeply([sort keys %$now], [sort keys %$before],
          'nothing that happens makes a new series');

$x->respond(200);
$pending->response;

# More than one buffer of text

$t->http(join "\n", map { 'vibelock_zone $arg_id zone=zone'
                          . sprintf('%080d', $_) . ':32k;' } 1 .. 20);
$t->server('location /status { vibelock_status prometheus; }');
$t->reload;

$r = $t->get('/status');

cmp_ok(length $r->body, '>', 60_000, 'twenty zones');
unlike($r->body, qr/vibelock_(?:bus|registry)/, 'no bus, no registry');
($code, $output) = run(['promtool', 'check', 'metrics'], input => $r->body);
is("$code$output", '0', 'promtool takes them too');

# What there is to be read of it

my $doc = read_file("$root/docs/operations.md");
my %documented = map { $_ => 1 } $doc =~ /`(vibelock_[a-z_]+)[`{]/g;

ok($documented{$_}, "docs/operations.md has $_")
    for sort keys %{{ map { /^(\w+)/ => 1 } keys %$before }};

($code, $output) = run(['promtool', 'check', 'rules',
                        "$root/docs/examples/prometheus-rules.yml"]);
is($code, 0, 'promtool takes the rules') or diag $output;

my @rules = read_file("$root/docs/examples/prometheus-rules.yml")
    =~ /\b(vibelock_[a-z_]+)/g;
my %known = map { /^(\w+)/ => 1 } keys %$before;

is(join(' ', grep { !$known{$_} } @rules), '', 'which use what there is');

$t->write_file('prometheus.yml',
               read_file("$root/docs/examples/prometheus.yml"));
$t->write_file('prometheus-rules.yml',
               read_file("$root/docs/examples/prometheus-rules.yml"));
($code, $output) = run(['promtool', 'check', 'config',
                        $t->path('prometheus.yml')]);
is($code, 0, 'promtool takes the scrape') or diag $output;

($code, $output) = run(['promtool', 'test', 'rules',
                        "$root/docs/examples/prometheus-rules-test.yml"]);
is($code, 0, 'the rules fire when they should') or diag $output;

$t->done;

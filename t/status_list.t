#!/usr/bin/perl

# The list of locks: pages, filters, cursors that hold, and odd keys.

use strict;
use warnings;

use Test::More;

use Vibelock::Pipeline qw(pipeline);
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream;

my $up = Vibelock::Upstream->new;
my $t = Vibelock::Test->new;

$t->set(UPSTREAM => $up->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id$http_x_key zone=ops:8m;
    vibelock_zone $arg_id zone=other:1m;
EOC
$t->server(<<'EOC');
    location /exec { vibelock exec zone=ops;
                     proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /kept { vibelock deploy zone=ops; vibelock_keep 1; empty_gif; }
    location /owned { vibelock deploy zone=ops; vibelock_keep 1;
                      vibelock_owner me; empty_gif; }
    location /over { vibelock run zone=ops; vibelock_ttl 50ms;
                     vibelock_overrun on;
                     proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /once { vibelock exec zone=ops; empty_gif; }
    location /gone { vibelock exec zone=ops; vibelock_ttl 1ms;
                     vibelock_keep 1; empty_gif; }
    location /other { vibelock exec zone=other; vibelock_keep 1; empty_gif; }
    location /status { vibelock_status break=on; }
EOC
$t->start;

sub list {
    my (%arguments) = (zone => 'ops', @_);

    my $r = $t->get('/status?' . join '&', map {
        (my $value = $arguments{$_}) =~ s/([^\w.-])/sprintf '%%%02X', ord $1/ge;
        "$_=$value";
    } sort keys %arguments);

    is($r->status, 200, 'a list') or diag $r->describe;

    return $r->json->{data}{list};
}

sub keys_of { return map { $_->{key} } @{ $_[0]{locks} } }

sub fails {
    my ($query, $status, $code) = @_;

    my $r = $t->get("/status?$query");

    is($r->status, $status, $query);
    is($r->json->{error}{code}, $code, "$query: $code");
}

is_deeply(list(), { zone => 'ops', matched => 0, cursor => undef, locks => [] },
          'an empty list');

# A lock

my $pending = $t->async(POST => '/exec?id=first');
my $x = $up->accept_request;

$t->get('/owned?id=second');

my $over = $t->async(POST => '/over?id=third');
my $y = $up->accept_request;

my $list = list();
my ($first, $second, $third) = @{ $list->{locks} };

is_deeply([keys_of($list)], [qw(first second third)], 'oldest first');
is_deeply([sort keys %$first], [sort qw(key token operation state ageMs
          expiresInMs overrun owner)], 'what is told of each');
is($first->{operation}, 'exec', 'operation');
is($first->{state}, 'running', 'running');
is($first->{owner}, undef, 'of nobody');
ok(!$first->{overrun}, 'no overrun');
cmp_ok($first->{token}, '<', 2 ** 53, 'a token that JavaScript can hold');
cmp_ok($first->{ageMs} + $first->{expiresInMs}, '==', 900_000,
       'age and rest are the TTL');
is($second->{state}, 'stuck', 'stuck');
is($second->{owner}, '2744ccd1',
   'the owner, by the beginning of its digest');
ok($third->{overrun}, 'overrun');

ok(wait_for { my $list = list(); $list->{locks}[2]{expiresInMs} == 0 },
   'an overrun lock stays past its TTL');

# Filters

is_deeply([keys_of(list(operation => 'deploy'))], ['second'], 'operation');
is_deeply([keys_of(list(state => 'running'))], [qw(first third)], 'running');
is_deeply([keys_of(list(state => 'stuck'))], ['second'], 'stuck');
is_deeply([keys_of(list(state => 'running', operation => 'run'))], ['third'],
          'both');
is_deeply([keys_of(list(operation => $_))], [], "the whole operation: $_")
    for 'dep', 'deployed';
is_deeply([keys_of(list(key => 'ir'))], [qw(first third)], 'part of a key');
is_deeply([keys_of(list(key => 'second'))], ['second'], 'all of it');
is_deeply([keys_of(list(key => 'second '))], [], 'more than it');

$y->respond(200);
$over->response;
$x->respond(200);
$pending->response;

# Odd keys

my @odd = (
    '<script>alert(1)</script>', q{"'\\`}, 'a/b', 'a//b', '.', '..', '../..',
    '%2e%2e', '%', '?', '#', '&x=y', 'a b', "\x01\x1b[31m\x7f", "tab\there",
    "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xe2\x80\xae\xe2\x80\xa8",
    'x' x 255, '</textarea>',
);

$t->get('/kept', headers => { 'X-Key' => $_ })->status == 200
    or fail "a lock for $_" for @odd;

my @shown = @odd;

utf8::decode($_) for @shown;

is_deeply([keys_of(list(limit => 250))], ['second', @shown],
          'odd keys are what they were');
is_deeply([keys_of(list(key => $odd[0]))], [$odd[0]], 'and are found');
is_deeply([keys_of(list(key => "\xe2\x82\xac"))], [$shown[15]],
          'by any part of them');

for my $bad ("\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80") {
    is($t->get('/kept', headers => { 'X-Key' => $bad })->status, 400,
       'not UTF-8: ' . unpack 'H*', $bad);
}

# Pages

my @many = map { sprintf 'many-%05d', $_ } 1 .. 3000;

pipeline($t->port, map { "/kept?id=$_" } @many);

sub pages {
    my ($each, %filter) = @_;

    my ($cursor, @keys);

    do {
        my $list = list(%filter, defined $cursor ? (cursor => $cursor) : ());

        push @keys, keys_of($list);
        $cursor = $list->{cursor};
        $each->(scalar @keys) if $each;

    } while defined $cursor;

    return @keys;
}

is_deeply([pages(undef, key => 'many', limit => 250)], \@many,
          'page by page, all in their order');
is(list(key => 'many', limit => 7)->{matched}, 3000, 'how many there are');
is(scalar @{ list()->{locks} }, 100, 'a page is 100 locks');

# Locks that come and go meanwhile move nobody to another page.

my %gone;

my @seen = pages(sub {
    my ($n) = @_;

    # the last that was seen, one to come, and a new one
    for my $key ($many[$n - 1], $many[$n + 100] // ()) {
        $gone{$key} = $n;
        $t->delete("/status/locks/ops/$key",
                   headers => { 'X-Vibelock-Break' => 1 });
    }
    $t->get("/kept?id=many-new-$n");
}, key => 'many-', limit => 250);

my %times;
$times{$_}++ for @seen;

is((grep { $_ > 1 } values %times), 0, 'no lock comes twice');
is((grep { !$gone{$_} && !$times{$_} } @many), 0, 'none is left out');
is_deeply([grep { !/new/ } @seen], [sort grep { !/new/ } @seen],
          'in their order');

# An end that is exactly the end of a page

is(list(key => 'many-00', limit => 250)->{cursor} // 'none',
   list(key => 'many-00', limit => 250)->{locks}[-1]{token},
   'a full page has a cursor when there is more');
is(list(key => 'many-0005', limit => 10)->{cursor}, undef,
   'and none when there is not');
is_deeply(list(key => 'many-0005', cursor => '9007199254740992')->{locks}, [],
          'nothing is beyond the last');

# Expired ones are not there

$t->get('/gone?id=expired');
ok(wait_for { my $list = list(key => 'expired'); !@{ $list->{locks} } },
   'none that is expired');

# Zones, and arguments that are wrong

$t->get('/other?id=there');

is_deeply([keys_of(list(zone => 'other'))], ['there'], 'another zone');

fails('zone=none', 404, 'NOT_FOUND');
fails('limit=10', 400, 'VALIDATION_ERROR');
fails("zone=ops&$_", 400, 'VALIDATION_ERROR')
    for qw(limit=0 limit=251 limit=-1 limit=x limit=1e2 cursor=x cursor=-1
           cursor=99999999999999999999999 state=both state=runnin);

$t->http('vibelock_zone $arg_id zone=other:1m;');
$t->server('location /status { vibelock_status; }');
$t->reload;

is($t->get('/status?limit=10')->json->{data}{list}{zone}, 'other',
   'a zone that is alone need not be named');

$t->done;

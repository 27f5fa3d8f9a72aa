#!/usr/bin/perl

# The status page, in a real Chromium.

use strict;
use warnings;

use Digest::SHA qw(sha256_base64);
use Test::More;

use Vibelock::Chromium;
use Vibelock::Fleet qw(entry);
use Vibelock::Pipeline qw(pipeline);
use Vibelock::Redis;
use Vibelock::Test qw(wait_for);
use Vibelock::Upstream::Auto;

my $up = Vibelock::Upstream::Auto->start;
my $redis = Vibelock::Redis->start;
my $t = Vibelock::Test->new(shutdown_timeout => '1s');

$t->set(UPSTREAM => $up->port, REDIS => $redis->port);
$t->http(<<'EOC');
    vibelock_zone $arg_id$http_x_key zone=ops:4m;
    vibelock_zone $arg_id zone=builds:1m;
    vibelock_redis redis://127.0.0.1:%%REDIS%% timeout=250ms;
EOC
$t->server(<<'EOC');
    location /exec { vibelock exec zone=ops; vibelock_owner me;
                     proxy_pass http://127.0.0.1:%%UPSTREAM%%; }
    location /short { vibelock exec zone=ops; vibelock_ttl 3m;
                      vibelock_keep 1; empty_gif; }
    location /kept { vibelock deploy zone=ops; vibelock_keep 1; empty_gif; }
    location /build { vibelock build zone=builds; vibelock_owner me;
                      vibelock_keep 1; empty_gif; }
    location /status { vibelock_status html break=on; }
    location /look { vibelock_status html; }
EOC
$t->start;

my $browser = Vibelock::Chromium->start;

sub count_of {
    return $browser->run(
        'return document.querySelectorAll(arguments[0]).length', $_[0]);
}

sub rows { return count_of('#rows > [role=row]') }

sub held {
    my ($id) = @_;

    my $list = $t->get("/status?format=json&zone=ops&key=$id")
        ->json->{data}{list};

    return $list->{matched};
}

# 2000 ms are between two questions.

sub becomes {
    my ($selector, $pattern, $what) = @_;

    ok(wait_for { ($browser->text($selector) // '') =~ $pattern }, $what)
        or diag "$selector: ", $browser->text($selector) // 'is not there';
}

# The response

my $page = $t->get('/status');
my $policy = $page->header('Content-Security-Policy');

for my $tag (qw(style script)) {
    my ($text) = $page->body =~ m{<$tag>(.*?)</$tag>}s;
    like($policy, qr/\b$tag-src 'sha256-\Q${\ sha256_base64($text)}\E='/,
         "the policy knows the $tag");
}

like($policy, qr/^default-src 'none';/, 'and nothing else');
like($policy, qr/connect-src 'self'/, 'but asks the gateway');
is($page->header('X-Content-Type-Options'), 'nosniff', 'nosniff');
unlike($page->body, qr{(?:https?:)?//\w+\.|\@import|url\(}, 'nothing outside');
cmp_ok(length $page->body, '<', 50_000, 'small');

# No locks

$browser->size(1280, 900);
$browser->open($t->url('/status'));

becomes('#held', qr/^0$/, 'nothing is held');
becomes('#none', qr/^No lock is held\.$/, 'and it says so');
becomes('#asof', qr/^live, /, 'live');
becomes('#bus-health', qr/hear of each other/, 'the bus works');
$browser->shown('nothing');

# A lock appears and grows old

$t->get('/short?id=old');
becomes('#rows .key', qr/^old$/, 'a lock appears');
is($browser->text('#rows .operation'), 'exec', 'its operation');
is($browser->text('#rows .state'), 'stuck', 'its state');

my $part = sub {
    $browser->run('return Number(document.querySelector("#rows .bar")'
                  . '.style.getPropertyValue("--part"))');
};
my ($age, $rest) = ($browser->text('#rows .age'), $part->());

ok(wait_for { $browser->text('#rows .age') ne $age }, 'it grows old');
ok(wait_for { $part->() < $rest - 0.01 }, 'its bar gets shorter');
like($browser->run('return document.title'), qr/^1 held, 1 stuck/,
     'the title tells of it');

my $pending = $t->async(POST => '/exec?id=running',
                        headers => { 'X-Upstream' => 'park/run' });

ok(wait_for { rows() == 2 }, 'another one comes');
is($browser->text('#rows .running .state'), 'running', 'which runs');
is($browser->text('#rows .running .owner'), '2744ccd1', 'of an owner');
is($t->post('/exec?id=running')->status, 409, 'busy');
becomes('#sum-busy', qr/^1$/, 'the chart counts it');

# Whatever bytes

my $xss = q{<img src=x onerror="window.hit=1">'"\\};

$t->get('/kept', headers => { 'X-Key' => $_ })
    for $xss, "<script>hit=1</script>", '..', 'a/b', 'x' x 255,
        "\xe2\x80\xae\xf0\x9f\x98\x80";

ok(wait_for { rows() == 8 }, 'odd keys are there');
is($browser->text('#rows [role=row]:nth-child(3) .key'), $xss,
   'a key is text');
is(count_of('#rows img, #rows script'), 0, 'and nothing else');
is($browser->run('return window.hit ?? null'), undef, 'nothing was run');

# It fits, in every width and both colours

for my $width (320, 390, 800, 1280) {
    $browser->size($width, 900);
    cmp_ok($browser->run('return document.documentElement.scrollWidth'), '<=',
           $width, "it fits in $width pixels");
}

my %ground;

for my $scheme (qw(light dark)) {
    $browser->colours($scheme);

    my ($ground, $contrast) = @{ $browser->run(<<'JS') };
        const rgb = (c) => c.match(/[\d.]+/g).slice(0, 3).map(Number);
        const light = (c) => rgb(c).map((v) => v / 255)
            .map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
            .reduce((n, v, i) => n + v * [.2126, .7152, .0722][i], 0);
        const ground = (e) => {
            for (; e; e = e.parentElement) {
                const c = getComputedStyle(e).backgroundColor;
                if (!/, 0\)$/.test(c)) { return c; }
            }
        };
        let least = 21;
        for (const e of document.querySelectorAll('main *, header *')) {
            if (!e.checkVisibility() || !e.innerText || e.children.length
                || e.disabled || e.tagName === 'OPTION')
            {
                continue;
            }
            const [a, b] = [light(getComputedStyle(e).color),
                            light(ground(e))].sort((x, y) => y - x);
            least = Math.min(least, (a + .05) / (b + .05));
        }
        return [getComputedStyle(document.body).backgroundColor, least];
JS

    $ground{$scheme} = $ground;
    cmp_ok($contrast, '>=', 4.5, "$scheme: every text can be read");
    $browser->size(1280, 900);
    $browser->shown("locks-$scheme");
    $browser->size(390, 844);
    $browser->shown("locks-$scheme-phone");
}

isnt($ground{light}, $ground{dark}, 'light is not dark');
$browser->colours('light');
$browser->size(1280, 900);

# What a screen reader gets

$browser->devtools('Accessibility.enable');

my @nodes = grep { !$_->{ignored} }
    @{ $browser->devtools('Accessibility.getFullAXTree')->{nodes} };

sub named {
    my ($role) = @_;

    return map { $_->{name}{value} // '' }
           grep { $_->{role}{value} eq $role } @nodes;
}

is(scalar(grep { $_ eq '' } map { named($_) }
          qw(button searchbox combobox table columnheader heading)), 0,
   'all that has a role has a name');
is((named('table'))[0], 'Locks, oldest first', 'the table');
is(scalar(named('row')), 9, 'its rows');
is(scalar(named('columnheader')), 7, 'its columns');
ok((grep { $_ eq 'Break the lock of old' } named('button')),
   'a button says whose lock it breaks');

# Breaking one: after a question

$browser->click('#rows .running button');
ok($browser->visible('#ask'), 'a question');
is($browser->text('#ask-key'), 'running', 'of this lock');
$browser->shown('question');
$browser->click('#ask-no');
ok(!$browser->visible('#ask'), 'no');
is(held('running'), 1, 'leaves it');
$browser->click('#rows .running button');
$browser->press('Escape');
ok(!$browser->visible('#ask'), 'Escape');
is(held('running'), 1, 'leaves it too');

$browser->click('#rows .running button');
$browser->click('#ask-yes');
becomes('#said', qr/^The lock of \W?running\W? is broken\.$/,
        'yes breaks it');
is(held('running'), 0, 'it is gone');
ok(wait_for { count_of('#rows .running') == 0 }, 'from the page too');
ok($t->access_like(
    qr{DELETE /status/locks/ops/running\?token=\d+ 200 result=BROKEN}),
   'by DELETE');
$up->release('run');
$pending->response;

# With the keyboard alone

sub focused {
    return $browser->run('return document.activeElement.getAttribute'
                         . '("aria-label") ?? document.activeElement.id');
}

$browser->run('document.querySelector("#f-state").focus()');
$browser->press('Tab');
is(focused(), 'Break the lock of old', 'from the filters to the first button');
$browser->press('Enter');
is(focused(), 'ask-no', 'the question begins with no');
$browser->press('Tab');
$browser->press('Enter');
becomes('#said', qr/^The lock of \W?old\W? is broken\.$/,
        'broken with the keyboard');
ok(wait_for { focused() eq 'locks' }, 'and one is still at the list');

# Odd keys, all the rest of them

for my $n (reverse 0 .. 5) {
    ok(wait_for { rows() == $n + 1 }, 'so many locks: ' . ($n + 1));
    $browser->click('#rows button');
    $browser->click('#ask-yes');
    becomes('#said', qr/ is broken\.$/, 'an odd key is broken');
    $browser->run('document.querySelector("#said").textContent = ""');
}

becomes('#none', qr/^No lock is held/, 'all are broken');

# A younger lock is not broken in place of the one that was shown

$t->get('/kept?id=again');
ok(wait_for { rows() == 1 }, 'a lock');
$browser->click('#rows button');
$t->delete('/status/locks/ops/again', headers => { 'X-Vibelock-Break' => 1 });
$t->get('/kept?id=again');
$browser->click('#ask-yes');
becomes('#said', qr/was gone already/, 'it was gone');
is(held('again'), 1, 'and the younger one stays');

# Pause

$browser->click('#pause');
becomes('#asof', qr/^paused/, 'paused');
$t->get('/kept?id=unseen');
ok($t->access_like(qr/id=unseen/), 'what happens now');
sleep 3;           # longer than from one question to the next
is(rows(), 1, 'is not shown');
$browser->click('#pause');
ok(wait_for { rows() == 2 }, 'until it goes on');

# Ten thousand

pipeline($t->port, map { "/kept?id=many-$_" } 1 .. 9998);

becomes('#held', qr/^10,000$/, '10,000 are held');
is(rows(), 50, 'of which a page is shown');
becomes('#range', qr/^1 to 50 of 10,000$/, 'the first one');
$browser->shown('many');
$browser->click('#next');
becomes('#range', qr/^51 to 100 of 10,000$/, 'the next one');
is($browser->text('#rows .key'), 'many-49', 'goes on where the first ended');
$browser->click('#next');
becomes('#range', qr/^101 to 150 /, 'and the next');
$browser->click('#previous');
becomes('#range', qr/^51 to 100 /, 'and back');
$browser->click('#first');
becomes('#range', qr/^1 to 50 /, 'to the first');

$browser->type('#f-key', 'many-77');
becomes('#range', qr/^1 to 50 of 111$/, 'a part of a key');
$browser->type('#f-key', '77');
ok(wait_for { rows() == 1 }, 'all of it');
is($browser->text('#rows .key'), 'many-7777', 'finds it');
$browser->run('const s = document.querySelector("#f-state");'
              . 's.value = "running"; s.dispatchEvent(new Event("change"))');
becomes('#none', qr/^No lock is like that/, 'and the state');

# Another zone

$t->get('/build?id=b');
becomes('#zones button:nth-child(2)', qr/^builds 1 held, 1 stuck$/,
        'the other zone');
$browser->run('document.querySelector("#f-state").value = "";'
              . 'document.querySelector("#f-key").value = ""');
$browser->click('#zones button:nth-child(2)');
becomes('#rows .key', qr/^b$/, 'its lock');
$browser->run('history.back()');
becomes('#rows .key', qr/^again$/, 'back to the first one');
$browser->run('history.forward()');
becomes('#rows .key', qr/^b$/, 'and forward');

# A lock is broken in its own zone, whatever was turned to meanwhile

$browser->click('#rows button');
$browser->run('history.back()');
becomes('#rows .key', qr/^again$/, 'another zone behind the question');
$browser->click('#ask-yes');
becomes('#said', qr/^The lock of \W?b\W? is broken\.$/, 'the one it was about');

# Another address

$t->get('/build?id=b');
$browser->open($t->url('/look?odd#100%'));
becomes('#held', qr/^10,000$/, 'the first one, by an address that is none');
$browser->open($t->url('/look#builds'));
becomes('#rows .key', qr/^b$/, 'by its address');

# Without break=on

is(count_of('#rows button'), 0, 'no button without break=on');
ok(!$browser->visible('[role=columnheader].act'), 'and no column for it');

is_deeply([$browser->complaints], [], 'the browser had nothing to say');
is_deeply($browser->run(<<'JS'), [], 'and asked nobody else');
    return performance.getEntriesByType('resource').map((e) => e.name)
        .filter((name) => !name.startsWith(location.origin + '/look?'))
JS

# What another replica broke

sub counted {
    my ($name) = @_;

    return $browser->run(<<'JS', $name);
        const terms = [...document.querySelectorAll('#counters dt')];
        const term = terms.find((e) => e.textContent === arguments[0]);
        return term.nextElementSibling.textContent;
JS
}

my $broken = counted('broken');

$t->get('/build?id=elsewhere');
becomes('#held', qr/^2$/, 'another lock');
$redis->cmd('XADD', 'vibelock:builds:releases', '*', 'release',
            entry(key => 'elsewhere', owner => 'me', at => time * 1000 + 60_000));
becomes('#held', qr/^1$/, 'is broken by the bus');
ok((wait_for { counted('broken') == $broken + 1 }),
   'and counted among those');

# A registry that was read on another day

sub registry_read {
    my ($ago) = @_;

    return $browser->run(<<'JS', $ago);
        const fetched = window.fetched ?? window.fetch;

        window.fetched = fetched;
        window.fetch = async (...question) => {
            const answer = await (await fetched(...question)).json();

            answer.data.registry = {
                keys: 1, servers: 1, failing: true, failed: 1,
                read: answer.data.time - 1000 * arguments[0],
            };

            return new Response(JSON.stringify(answer));
        };
JS
}

registry_read(0);
becomes('#registry-health', qr/^Unreadable since it was read at [\d:]{8}\.$/,
        'a registry that was read today');
registry_read(40 * 86400);
becomes('#registry-health', qr/read at [\d:]{8} on \d+ [A-Z][a-z]+ \d{4}\.$/,
        'or on another day');
$browser->run('window.fetch = window.fetched');

# The bus, and the gateway, are lost

$redis->stop;
becomes('#bus-health', qr/not heard \(Redis: /, 'Redis is away');
$redis->start;
becomes('#bus-health', qr/hear of each other/, 'and back');

$t->stop;
becomes('#alert', qr/^The gateway is lost: it cannot be reached\./,
        'the gateway is lost');
like($browser->text('#alert'), qr/ is from \d\d:\d\d:\d\d\./,
     'since when');
becomes('#asof', qr/^lost$/, 'not live');
is($browser->text('#rows .key'), 'b', 'what was there can be read still');
$browser->shown('lost');
$t->start;
becomes('#asof', qr/^live/, 'it is back');
is($browser->text('#alert'), '', 'without an alarm');

$t->done;

#!/usr/bin/perl

# docs/directives.md has all directives, variables and results of the module, and
# what it promises of its own configurations is true.

use strict;
use warnings;

use MIME::Base64 qw(encode_base64);
use Test::More;

use Vibelock::Docs qw(blocks documents);
use Vibelock::Test;
use Vibelock::Upstream::Auto;
use Vibelock::Util qw(read_file);

my $text = read_file('docs/directives.md');

# Every directive with where it may stand, which other documents repeat as it is.

my %place = (NGX_HTTP_MAIN_CONF => 'http', NGX_HTTP_SRV_CONF => 'server',
             NGX_HTTP_LOC_CONF => 'location');
my ($commands) = read_file('ngx_http_vibelock_module.c')
    =~ /vibelock_commands\[\] = \{(.*?)ngx_null_command/s;
my %context = $commands =~ /ngx_string\("(\w+)"\),\s+(\S.*?),\n/sg;

$_ = join ', ', map { $place{$_} // () } /NGX_HTTP_\w+_CONF\b/g
    for values %context;

sub syntax {
    my ($file) = @_;

    return read_file($file) =~ /^( {4}Syntax: .*?Context:  .*?\n)/msg;
}

my (%told, %syntax);

for my $block (syntax('docs/directives.md')) {
    my ($where) = $block =~ /Context:  (.*)/;
    my ($lines) = $block =~ /(.*)^ {4}Default: /ms;

    for my $name ($lines =~ /(?:Syntax:|^) +(vibelock\w*)\b/mg) {
        $told{$name} = $where;
        $syntax{$name} //= $block;
    }
}

ok(scalar %context, 'the module has directives');
is_deeply(\%told, \%context, 'each directive, and where it may stand');

for my $file (grep { $_ ne 'docs/directives.md' } documents()) {
    for my $block (syntax($file)) {
        my ($name) = $block =~ /(vibelock\w*)/;
        is($block, $syntax{$name}, "$file: the same syntax of $name");
    }
}

my $record = read_file('src/ngx_http_vibelock_record.c');

like($text, qr/^\| `\$$_` \|/m, "the variable $_")
    for $record =~ /\{ ngx_string\("(vibelock_\w+)"\)/g;
like($text, qr/^\|[^|]*`$_`/m, "the result $_")
    for $record =~ /^ +ngx_string\("([A-Z_]+)"\)/mg;

my $up = Vibelock::Upstream::Auto->start;
my ($block) = grep { $_->{text} =~ /vibelock_server_found\s+1;/ }
              blocks('docs/directives.md', heading => 'vibelock_owner');

sub login {
    my ($user) = @_;

    return (Authorization => 'Basic ' . encode_base64("$user:secret", ''));
}

# Who may know of a lock of another owner's.

for my $case ([409, 'EXEC_BUSY', 'with vibelock_server_found 1'],
              [404, 'NOT_FOUND', 'without it'])
{
    my ($status, $code, $name) = @$case;
    my $t = Vibelock::Test->new;
    my $text = $block->{text};

    $text =~ s/^.*vibelock_server_found.*\n//m if $status == 404;
    Vibelock::Docs::apply($t, { %$block, text => $text }, 9000 => $up->port);
    $t->start;

    my $seen = () = $up->requests;
    my $held = $t->async(POST => '/servers/web-1/deploy', body => '{}',
        headers => { login('ci'), 'X-Upstream' => "park/$status" });
    $up->wait_requests($seen + 1);

    my $other = $t->post('/servers/web-1/deploy', headers => { login('ops') });
    is($other->status, $status, "$name, another owner: $status");
    is($other->json->{error}{code}, $code, "$name: $code");
    is($t->post('/servers/web-1/deploy', headers => { login('ci') })->status,
       409, "$name, the owner: 409");

    $up->release($status);
    is($held->response->status, 200, "$name: the first one ends");
    $t->finish;
}

Vibelock::Test->done;

#!/usr/bin/perl

# What docs/directives.md promises of its own configurations.

use strict;
use warnings;

use MIME::Base64 qw(encode_base64);
use Test::More;

use Vibelock::Docs qw(blocks);
use Vibelock::Test;
use Vibelock::Upstream::Auto;

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

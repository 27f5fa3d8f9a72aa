package Vibelock::Docs;

# The examples in the documents, found and made to run.
#
# Every configuration in a document is a fenced block that says where in
# nginx.conf it belongs:
#
#   ```nginx file          a whole nginx.conf
#   ```nginx http          what stands in http { … }, or in a file in conf.d
#   ```nginx server        … in a server { … }
#   ```nginx location      … in a location { … }
#
# and other examples are ```sh, ```js, ```json …
#
#   use Vibelock::Docs qw(blocks unmarked documents);
#
#   my @blocks = blocks('docs/recipes.md');
#   my ($block) = blocks('docs/recipes.md', heading => 'JWT', lang => 'nginx');
#
#       { file, line, heading, lang, level, text }, in order; heading is the
#       last one before it
#
#   Vibelock::Docs::apply($t, $block, 9000 => $up->port);
#
#       puts it into $t, a Vibelock::Test. What a reader would have around it is
#       added: a zone, $server_id, the registry of docs/examples, the upstream
#       "platform". Ports it listens on become %%PORT_0%%, %%PORT_1%% … in their
#       order; 127.0.0.1 with another port is replaced by the one that is given,
#       else nobody is there. /etc/nginx, /run and /var/log/nginx are in the
#       test's directory, where there are users (ci, ops: password "secret"),
#       and certificates where the block asks for them.
#
#   unmarked($file)        [line, text] of what looks like a configuration and
#                          is not in such a block

use strict;
use warnings;

use Carp qw(croak);
use Cwd ();
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Copy qw(copy);

use Vibelock::Port qw(free_port);
use Vibelock::Process qw(run);
use Vibelock::Util qw(read_file write_file);

our @EXPORT_OK = qw(blocks unmarked documents);

my $root = Cwd::abs_path(dirname(__FILE__) . '/../../..');

sub documents {
    return map { substr $_, 1 + length $root }
        grep { -f } "$root/README.md", "$root/CONTRIBUTING.md",
                    "$root/SECURITY.md", sort glob "$root/docs/*.md";
}

sub blocks {
    my ($file, %want) = @_;

    my (@blocks, $block, $fence, $heading);
    my $n = 0;

    for my $line (split /^/, read_file("$root/$file")) {
        $n++;

        if (defined $fence) {
            if ($line =~ /^\s*```\s*$/) {
                undef $fence;
                push @blocks, $block;
            } else {
                $line =~ s/^ {0,$fence}//;
                $block->{text} .= $line;
            }

        } elsif ($line =~ /^( *)```(\w*) ?(\w*)\s*$/) {
            $fence = length $1;
            $block = { file => $file, line => $n, heading => $heading,
                       lang => $2, level => $3, text => '' };

        } elsif ($line =~ /^#+ (.*?)\s*$/) {
            $heading = $1;
        }
    }

    croak "$file: a block is not closed" if defined $fence;

    for my $what (keys %want) {
        @blocks = grep { ($_->{$what} // '') eq $want{$what} } @blocks;
    }

    return @blocks;
}

sub unmarked {
    my ($file) = @_;

    my (@found, $fenced);
    my $n = 0;

    for my $line (split /^/, read_file("$root/$file")) {
        $n++;
        $fenced = !$fenced if $line =~ /^\s*```/;

        push @found, [$n, $line] if !$fenced
            && $line =~ /^\s{4,}(?:location|server|http|events|map|upstream)
                         \b.*\{\s*$
                       | ^\s{4,}(?:vibelock|proxy_)\w*\s.*;\s*$/x
            && $line !~ /Syntax:|Default:|^ {14}vibelock\w*/;
    }

    return @found;
}

sub apply {
    my ($t, $block, %ports) = @_;

    my $text = $block->{text};
    my $level = $block->{level};

    my $n = 0;
    my %listen;
    while ($text =~ /^\s*listen\s+(?:[\d.]+:)?(\d+)/mg) {
        $listen{$1} //= '%%PORT_' . $n++ . '%%';
    }

    $text =~ s/^(\s*listen\s+)(?:[\d.]+:)?(\d+)/${1}127.0.0.1:$listen{$2}/mg;
    $text =~ s{127\.0\.0\.1:(\d+)}{
        '127.0.0.1:' . ($listen{$1} // ($ports{$1} //= free_port()))
    }ge;
    $text =~ s{(?:redis\.example\.com|redis):6379}{
        '127.0.0.1:' . ($ports{6379} //= free_port())
    }ge;

    my $dir = $t->dir;
    $text =~ s{/etc/nginx/|/var/log/nginx/|/run/}{$dir/}g;
    provide($t, $text);

    if ($level eq 'file') {
        $text =~ s/^\s*load_module .*\n//mg;
        $text =~ s/^\s*(?:user|pid|error_log|worker_processes|access_log
                        |\w+_temp_path)\s.*\n//mgx;
        $text =~ s/^(http \{\n)/$1%%HTTP%%\n/m;
        return $t->conf("%%MAIN%%\n$text");
    }

    $text = "location /example {\n$text\n}" if $level eq 'location';

    my $around = surroundings($text, $ports{9000} // free_port());

    return $t->http("$around$text") if $level eq 'http';

    $t->http($around);

    return $t->server($text);
}

sub surroundings {
    my ($text, $port) = @_;

    my @lines;

    push @lines, 'map $uri $server_id {', 'default "";',
            '~^/v1/infra/servers/(?<id>[^/]+)/ $id;', '}'
        if $text =~ /\$server_id\b|zone=ops\b/
            && $text !~ /<server_id>|\s\$server_id\s*\{/;

    my %zone = map { $_ => 1 }
        $text =~ /^\s*vibelock(?:_\w+)?\s.*\bzone=(\w+)\s*;/mg;
    delete $zone{$1} while $text =~ /vibelock_zone\s+\S+\s+zone=(\w+):/g;
    push @lines, map { "vibelock_zone \$server_id zone=$_:1m;" }
                 sort keys %zone;

    push @lines, 'vibelock_registry %%DIR%%/registry.json;'
        if $text =~ /vibelock_(?:release|unstick)\s/
            && $text !~ /vibelock_(?:owner|registry)\s/;

    push @lines, "upstream platform { server 127.0.0.1:$port; }"
        if $text =~ m{http://platform\b} && $text !~ /upstream platform\b/;

    return join '', map { "$_\n" } @lines;
}

# The files that a block speaks of.

sub provide {
    my ($t, $text) = @_;

    copy("$root/docs/examples/registry.json", $t->path('registry.json'))
        or croak "registry.json: $!";
    chmod 0644, $t->path('registry.json');

    my $hash = '{PLAIN}secret';
    $t->write_file('users.htpasswd', "ci:$hash\nops:$hash\n")
        if $text =~ /users\.htpasswd/;

    $t->write_file('redis.password', "a-long-password\n")
        if $text =~ /redis\.password/;

    certificates($t) if $text =~ /gateway\.crt/;

    return;
}

# An authority, the gateway's certificate, and a client's.

sub certificates {
    my ($t) = @_;

    my @new = (qw(openssl req -x509 -newkey ec -pkeyopt
                  ec_paramgen_curve:prime256v1 -nodes -days 2));

    for ([clients => 'clients-ca', '/CN=clients'],
         [gateway => 'gateway', '/CN=localhost'],
         [client => 'client', '/O=ci/CN=deployer',
          '-CA', $t->path('clients-ca.crt'),
          '-CAkey', $t->path('clients-ca.key')])
    {
        my (undef, $name, $subject, @signed) = @$_;

        my ($code, $output) = run([@new, '-subj', $subject, @signed,
            '-keyout', $t->path("$name.key"), '-out', $t->path("$name.crt")]);
        croak $output if $code;
    }

    return;
}

1;

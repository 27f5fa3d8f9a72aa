#!/usr/bin/perl

# The tutorial's commands, one after the other in one shell, as its reader types
# them; what it shows as their output is what they print, "…" being anything.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Test::More;

use Vibelock::Docs qw(blocks);
use Vibelock::Process qw(run);
use Vibelock::Port qw(free_port);
use Vibelock::Test ();
use Vibelock::Util qw(read_file write_file);

my $root = abs_path(dirname(__FILE__) . '/..');
my $file = 'docs/tutorial.md';

my $t = Vibelock::Test->new;          # for a directory, and for nginx's place
my $dir = $t->dir;

chdir $dir or die;
mkdir 'build';
symlink "$root/docs", 'docs' or die;
symlink $ENV{VIBELOCK_MODULE} || "$root/build/ngx_http_vibelock_module.so",
    'build/ngx_http_vibelock_module.so' or die;

my %port = map { $_ => free_port() } qw(9000 8081 8082 6380);
my $nginx = join ' ', ($ENV{VIBELOCK_PRELOAD}
                       ? "LD_PRELOAD=$ENV{VIBELOCK_PRELOAD}" : ()), $t->nginx;
my $redis = $ENV{VIBELOCK_REDIS} || 'redis-server';

# What needs root, or takes minutes, is not for here: t/fresh.sh does it.

my @blocks = grep { $_->{text} !~ m{^\./build\.sh|^sudo }m }
             blocks($file);
my $script = "exec 2>&1\n";
my @expected;
my $n = 0;

for my $block (@blocks) {
    my $text = $block->{text};

    $text =~ s/\b(9000|8081|8082|6380)\b/$port{$1}/g;

    if ($block->{lang} eq 'nginx') {
        $text =~ s/^events/user root;\n$&/m if $> == 0;
        $text =~ s/^load_module.*\n//m
            if ($ENV{VIBELOCK_MODULE} // '') eq 'static';
        $script .= "cat > tutorial/a/nginx.conf <<'END_OF_FILE'\n"
                 . "${text}END_OF_FILE\n";

    } elsif ($block->{lang} eq 'sh') {
        $text =~ s/^nginx /$nginx /mg;
        $text =~ s/^redis=\S+/redis=$redis/mg;
        $script .= "echo '=== $block->{line}'\n$text";

    } elsif ($block->{lang} eq 'text') {
        push @expected, [$blocks[$n - 1]{line}, $text];
    }

    $n++;
}

# Empty lines are nobody's concern.

sub squeeze { $_[0] =~ s/\r//gr =~ s/\n{2,}/\n/gr =~ s/^\n//r }

write_file('script', $script);
my ($code, $output) = run(['bash', 'script'], limit => 120);

my (undef, %printed) = split /^=== (\d+)\n/m, $output, -1;

# Where it did not come to its end.

for my $pid (map { eval { read_file($_) } // () } glob 'tutorial/*/nginx.pid') {
    kill TERM => $pid;
}

for my $case (@expected) {
    my ($line, $text) = @$case;
    my $pattern = join '.*?', map { quotemeta =~ s/\\\n/\n/gr }
                              split /…/, squeeze($text), -1;

    like(squeeze($printed{$line} // 'nothing'), qr/^$pattern$/s,
         "$file:$line");
}

is($code, 0, 'all is cleaned up') or diag $output;
ok(!-e 'tutorial', 'and nothing is left');

chdir $root;
done_testing;

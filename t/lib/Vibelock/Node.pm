package Vibelock::Node;

# JavaScript of a user's, run by Node.
#
#   use Vibelock::Node qw(run_node have_node);
#
#   plan skip_all => 'no node' unless have_node();
#   my ($code, $output) = run_node(<<'JS', env => { URL => $t->url });
#       const res = await fetch(process.env.URL)
#       console.log(res.status)
#   JS
#
# The text is an ECMAScript module: await works at its top level.

use strict;
use warnings;

use Exporter qw(import);
use File::Temp ();

use Vibelock::Process qw(run);

our @EXPORT_OK = qw(run_node have_node);

sub have_node {
    return scalar grep { -x "$_/node" } split /:/, $ENV{PATH};
}

sub run_node {
    my ($script, %how) = @_;

    my $file = File::Temp->new(SUFFIX => '.mjs');

    binmode $file;
    print {$file} $script;
    $file->flush;

    return run(['node', "$file"], %how);
}

1;

#!/usr/bin/perl

# The benchmark works: every request that it measures is answered as it should
# be, and every row has its figures. They mean nothing here.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp ();
use Test::More;

use lib dirname(abs_path(__FILE__)) . '/bench/lib';

use Bench::Earlier;
use Bench::Million;
use Bench::Requests;
use Bench::Row;
use Bench::Setup;
use Vibelock::Process qw(run);

plan skip_all => 'it measures the module as it is built for use'
    if $ENV{VIBELOCK_ASAN} || $ENV{VIBELOCK_VALGRIND} || $ENV{VIBELOCK_NGINX};

my $bench = abs_path(dirname(__FILE__) . '/bench');

measures(11, qw(requests growth held bus));

subtest 'locks that expire' => sub {
    plan skip_all => 'takes twenty seconds: VIBELOCK_LONG=1'
        unless $ENV{VIBELOCK_LONG};

    measures(2, 'swept');
};

my ($usage) = run([$^X, "$bench/bench.pl", '--nonsense']);
isnt($usage, 0, 'an unknown option is refused');

my ($part, $parts) = run([$^X, "$bench/bench.pl", '--part=nonsense']);
isnt($part, 0, 'an unknown part is refused');
like($parts, qr/no part "nonsense".*\bheld\b/, 'and those are named that are');

my ($none, $missing) = run([$^X, "$bench/bench.pl", '--smoke'],
                           env => { VIBELOCK_MODULE => '/nowhere/it.so' });
isnt($none, 0, 'it needs a module');
like($missing, qr{no module /nowhere/it\.so; .*build}, 'and says what makes it');

# A valgrind that does not start.

my $path = File::Temp->newdir('vibelock-XXXXXXXX', TMPDIR => 1);
symlink '/bin/false', "$path/valgrind" or die "symlink: $!";

my ($broken, $before) = run(
    [$^X, "$bench/bench.pl", '--smoke', '--count', '--part=growth'],
    env => { PATH => "$path:$ENV{PATH}" }, limit => 60);
isnt($broken, 0, 'a part that fails ends it');
like($before, qr/did not start/, 'and says why');
like($before, qr/^\| memory of a worker /m, 'behind the figures that it had');

# What is answered and not done is no figure.

my $setup = setup();
ok(!eval { $setup->subject('checked')->{conf} = 'empty_gif;'; $setup->start },
   'a guard that looks at no key is refused');
like($@, qr/^checked does not ask for the key: /, 'and named');
$setup->stop;

$setup = setup();
$setup->subject('guarded')->{conf} = 'empty_gif;';
$setup->start;
$setup->subject('guarded')->{sent} = 100;
ok(!eval { $setup->check_done; 1 }, 'and one that takes no lock');
like($@, qr/^of 100 requests only 0 have acquired a lock /, 'and counted');
$setup->stop;

# The ratio of two differences.

my @differences = ([1, 10], [2, -1], [3, 10], [-1, -20], [2, 12]);
my @row = (what => 'one', alternative => 'it', unit => 'ns', bar => 0.1,
           near_zero => 1);

my $row = Bench::Row->new(@row, pairs => \@differences);
is(($row->cells)[3], '0.20 (-0.10 to 0.30)',
   'a difference below 0 is no small ratio');
is($row->met, 0, 'and meets no bar');

$row = Bench::Row->new(@row, pairs => [[1, -1], [1, -2]]);
is(($row->cells)[3], '', 'beside what costs nothing there is no ratio');
is($row->met, undef, 'and nothing is decided');

my %samples = (local => [10, 10], guarded => [12, 13], limited => [11, 12]);

is_deeply([map { ($_->cells)[3] } grep { !$_->{missing} }
           map { Bench::Requests::rows(\%samples, $_) } qw(ns instructions)],
          ['1.67 (1.33 to 2.00)', '1.75 (1.50 to 2.00)'],
          'of instructions, a difference is set beside that of its round');

# What a spread is, and what a machine does to two rounds of a hundred.

$row = Bench::Row->new(what => 'one', alternative => 'it', unit => 'ns',
                       pairs => [map { [$_, 1] } 1 .. 18, -1000, 1000]);
is(($row->cells)[3], '9.50 (2.00 to 17.00)',
   'a spread has all but the lowest and the highest tenth');

# The longest wait that no machine alone has made.

my @calm = (1) x 8;

is(Bench::Million::lasting(100, [9, @calm], [@calm, 9]), 1,
   'a wait that comes at another time in each round does not count');
is(Bench::Million::lasting(100, [1, 9, @calm], [(1) x 7, 7, @calm]), 7,
   'one that comes at about the same time does');
is(Bench::Million::lasting(100, [1, 9, @calm], [(1) x 8, 7, @calm]), 1,
   'where about is a quarter of a second more than sweeps are apart');

# In what order.

my @pairs = ([qw(exec post)], [qw(guarded local)], [qw(delete return200)]);
my %before;

for my $round (1 .. 12) {
    my $n = 0;
    my %place = map { $_ => $n++ }
                Bench::Requests::turned($round, bless {}, 'Everything');

    $before{"@$_"} += $place{ $_->[0] } < $place{ $_->[1] } for @pairs;
}

is_deeply(\%before, { map { ("@$_" => 6) } @pairs },
          'of two that are compared, each is as often the first');

# Whether two runs agree.

my $table = <<'END';
| what     | alternative | vibelock | ratio (spread)       | bar | met |
| -------- | ----------- | -------- | -------------------- | --- | --- |
| one      | it: 1 µs    | 2 µs     | 1.10 (1.00 to 1.20)  |     |     |
| the same | that: 3 µs  | 2 µs     | 0.50                 |     |     |
| bytes    | it: 4 bytes | 2 bytes  |                      |     |     |
| longest  | it: 5 ms    | 6 ms     | 1.00 ms              |     |     |
| waits    | it: 4 ms    | 2 ms     | 1,000 ms (-1 ms to 2,000 ms) | | |
END

my $earlier = Bench::Earlier->new("- taken on 2024-02-29, in 1 round\n"
    . "<!-- begin time -->\n$table<!-- end time -->\n", 'time');

is($earlier->date, '2024-02-29', 'an earlier run has its day');

is_deeply([$earlier->compare(time => $table)], [3],
          'a run agrees with itself');

is_deeply([$earlier->compare(time => $table =~ s/1\.00 ms /2.00 ms /r)], [3],
          'a time without a spread is left out');

is_deeply([$earlier->compare(time => $table =~ s/1\.10 \(/1.21 (/r)],
          [2, 'one, beside it: 1.10 (1.00 to 1.20) then, '
              . '1.21 (1.00 to 1.20) now'],
          'a median outside the earlier spread is told');

is_deeply([$earlier->compare(time => $table =~ s/1\.00 to/1.15 to/r)],
          [2, 'one, beside it: 1.10 (1.00 to 1.20) then, '
              . '1.10 (1.15 to 1.20) now'],
          'and an earlier median outside the new spread');

is_deeply([$earlier->compare(time => $table =~ s/0\.50 /0.51 /r)],
          [2, 'one, the same, beside that: 0.50 then, 0.51 now'],
          '"the same" is what stands above it');

done_testing();

# In so many rows at least.

sub measures {
    my ($least, @parts) = @_;

    my ($code, $output) = run(
        [$^X, "$bench/bench.pl", '--smoke', map { "--part=$_" } @parts],
        limit => 60,
    );

    is($code, 0, "@parts: it ends well") or diag $output;

    my @rows = grep { !/^\| (what |--)/ } $output =~ /^(\|.*\|)$/mg;

    cmp_ok(scalar @rows, '>=', $least, 'it has its rows') or diag $output;

    for my $row (@rows) {
        my ($what, $alternative, $vibelock) = split /\s*\|\s*/, substr $row, 2;

        like($vibelock, qr/^(-?[\d.,]+ |not measured: no )/, $what);
    }

    return;
}

sub setup {
    return Bench::Setup->new(
        dir    => File::Temp->newdir,
        module => $ENV{VIBELOCK_MODULE}
                  // "$bench/../../build/ngx_http_vibelock_module.so",
    );
}

sub Everything::subject { return 1 }

package Vibelock::Chromium;

# A real Chromium without a window, driven through chromedriver.
#
#   my $browser = Vibelock::Chromium->start;     # dies if there is none
#
#   $browser->open($t->url('/status'));
#   wait_for { $browser->text('#held') eq '1' };
#   $browser->click('#rows button');
#   $browser->type('#f-key', 'abc');
#   $browser->press('Tab');                      # the key of that name
#   is($browser->run('return document.title'), '1 held - vibelock');
#
#   $browser->size(390, 844);
#   $browser->colours('dark');                   # or light
#   $browser->screenshot($file);                 # PNG
#   $browser->complaints                         # what the console has said,
#                                                # since it was last asked
#
# Selectors are those of CSS.  text and visible speak of the first element that
# fits; text is undef where there is none.  With VIBELOCK_SCREENSHOTS=<dir> the
# method shown($name) keeps a screenshot there, else it does nothing.

use strict;
use warnings;

use parent qw(-norequire Vibelock::Child);

use Carp qw(croak);
use File::Temp ();
use JSON::PP ();
use MIME::Base64 qw(decode_base64);

use Vibelock::Child;
use Vibelock::Http qw(http_request);
use Vibelock::Port qw(free_port);
use Vibelock::Process qw(spawn alive end_group);
use Vibelock::Util qw(wait_for read_file write_file);

use constant LIMIT => 60;

my %keys = (
    Tab    => "\x{e004}",
    Enter  => "\x{e007}",
    Escape => "\x{e00c}",
    Space  => ' ',
);

sub start {
    my ($class) = @_;

    my $dir = File::Temp->newdir('vibelock-XXXXXXXX', TMPDIR => 1);
    my $self = bless { dir => $dir, port => free_port() }, $class;

    $self->{pid} = spawn(['chromedriver', "--port=$self->{port}"],
        stdout => "$dir/output.log",
        stderr => "$dir/output.log",
        env    => { HOME => "$dir", XDG_CONFIG_HOME => undef,
                    XDG_CACHE_HOME => undef },
    );

    my $ready = wait_for {
        !alive($self->{pid})
            || eval { $self->call(GET => '/status')->{ready} };
    } LIMIT;

    $ready && alive($self->{pid}) or croak "chromedriver did not start:\n"
        . read_file("$dir/output.log");

    $self->{session} = $self->call(POST => '/session', {
        capabilities => { alwaysMatch => {
            'goog:loggingPrefs'  => { browser => 'ALL' },
            'goog:chromeOptions' => { args => [
                qw(--headless --no-sandbox --disable-gpu --disable-quic
                   --no-first-run --disable-background-networking
                   --disable-component-update --disable-sync
                   --disable-dev-shm-usage --hide-scrollbars),
                "--user-data-dir=$dir/profile",
            ] },
        } },
    })->{sessionId};

    return $self;
}

# One command of the WebDriver protocol: its value, or death with its error.

sub call {
    my ($self, $method, $path, $body) = @_;

    my $r = http_request(
        port   => $self->{port},
        method => $method,
        uri    => $path,
        limit  => LIMIT,
        $body ? (json => $body) : (),
    );

    croak 'chromedriver: ' . $r->describe unless $r->status;

    my $value = $r->json->{value};

    croak "chromedriver: $value->{message}" if $r->status != 200;

    return $value;
}

sub session {
    my ($self, $method, $path, $body) = @_;

    return $self->call($method, "/session/$self->{session}$path",
                       $body // ($method eq 'POST' ? {} : undef));
}

sub devtools {
    my ($self, $command, %params) = @_;

    return $self->session(POST => '/goog/cdp/execute',
                          { cmd => $command, params => \%params });
}

sub open {
    my ($self, $url) = @_;

    $self->session(POST => '/url', { url => $url });

    return;
}

sub run {
    my ($self, $script, @arguments) = @_;

    return $self->session(POST => '/execute/sync',
                          { script => $script, args => \@arguments });
}

sub text {
    my ($self, $selector) = @_;

    return $self->run('return document.querySelector(arguments[0])'
                      . '?.innerText', $selector);
}

sub visible {
    my ($self, $selector) = @_;

    return $self->run('return document.querySelector(arguments[0])'
                      . '?.checkVisibility() ?? false', $selector) ? 1 : 0;
}

sub element {
    my ($self, $selector) = @_;

    my $element = $self->session(POST => '/element',
        { using => 'css selector', value => $selector });

    return (values %$element)[0];
}

sub click {
    my ($self, $selector) = @_;

    $self->session(POST => '/element/' . $self->element($selector)
                           . '/click');

    return;
}

sub type {
    my ($self, $selector, $text) = @_;

    $self->session(POST => '/element/' . $self->element($selector)
                           . '/value', { text => $text });

    return;
}

sub press {
    my ($self, $key) = @_;

    my $value = $keys{$key} // $key;

    $self->session(POST => '/actions', { actions => [{
        type    => 'key',
        id      => 'keyboard',
        actions => [{ type => 'keyDown', value => $value },
                    { type => 'keyUp', value => $value }],
    }] });

    return;
}

sub size {
    my ($self, $width, $height) = @_;

    $self->devtools('Emulation.setDeviceMetricsOverride',
        width => $width, height => $height, deviceScaleFactor => 1,
        mobile => JSON::PP::false);

    return;
}

sub colours {
    my ($self, $scheme) = @_;

    $self->devtools('Emulation.setEmulatedMedia',
        features => [{ name => 'prefers-color-scheme', value => $scheme }]);

    return;
}

sub screenshot {
    my ($self, $file) = @_;

    return write_file($file, decode_base64($self->session(
        GET => '/screenshot')));
}

sub shown {
    my ($self, $name) = @_;

    my $dir = $ENV{VIBELOCK_SCREENSHOTS} or return;

    return $self->screenshot("$dir/$name.png");
}

sub complaints {
    my ($self) = @_;

    my $log = $self->session(POST => '/se/log', { type => 'browser' });

    # The browser's own pages complain too, where the machine is slow.
    return map { "$_->{level}: $_->{message}" }
           grep { $_->{message} !~ m{^chrome://} } @$log;
}

sub stop {
    my ($self) = @_;

    my $pid = delete $self->{pid} or return;

    eval { $self->session('DELETE', '') };
    end_group($pid);

    return;
}

1;

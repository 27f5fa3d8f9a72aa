package Vibelock::OpenApi;

# docs/openapi.yaml, and whether an answer is as it says.
#
#   my $api = Vibelock::OpenApi->read('docs/openapi.yaml');
#
#   my @faults = $api->faults(DELETE => '/v1/infra/servers/x/lock', $response);
#
#       nothing where the path, the method, the status, the headers and the body
#       of a Vibelock::Http::Response are described like this; a status that is
#       not described is looked up as "default"
#
#   Vibelock::OpenApi->read($file, headers => ['Allow'])
#
#       and these headers are faults where they come and are not described
#
#   $api->unseen           'DELETE /…/lock 404', …: described, and not yet
#                          checked with an answer
#
# The YAML is read by a module of Perl's own, which knows blocks and no flow
# ({ a: 1 }); of JSON Schema it takes what the document uses, and dies of a
# keyword that it does not know.

use strict;
use warnings;

use Carp qw(croak);
use CPAN::Meta::YAML ();
use JSON::PP ();

my %annotation = map { $_ => 1 } qw(description example);

sub read {
    my ($class, $file, %how) = @_;

    my $documents = CPAN::Meta::YAML->read($file)
        or croak "$file: " . CPAN::Meta::YAML->errstr;

    return bless { document => $documents->[0], seen => {},
                   headers => $how{headers} || [] }, $class;
}

sub faults {
    my ($self, $method, $uri, $response) = @_;

    my ($path) = grep { my $re = s/\{\w+\}/[^\/]+/gr; $uri =~ m{^$re(?:\?|$)} }
                 keys %{ $self->{document}{paths} };

    return "no path for $uri" unless defined $path;

    my $operation = $self->{document}{paths}{$path}{ lc $method }
        or return "no $method of $path";
    my ($status) = grep { $operation->{responses}{$_} }
                   $response->status, 'default';

    return 'no ' . $response->status . " of $method $path" unless $status;

    my $described = $self->resolve($operation->{responses}{$status});

    $self->{seen}{"$method $path $status"}++;

    return $self->header_faults($described->{headers} || {}, $response),
           $self->body_faults($described->{content}, $response);
}

sub header_faults {
    my ($self, $described, $response) = @_;

    my @faults;

    for my $name (sort keys %$described) {
        my $header = $self->resolve($described->{$name});
        my $value = $response->header($name);

        if (defined $value) {
            push @faults, $self->check($header->{schema},
                $value =~ /^\d+$/ ? 0 + $value : $value, $name);

        } elsif (($header->{required} // '') eq 'true') {
            push @faults, "$name is not there";
        }
    }

    return @faults, map { "$_ is not described" }
        grep { defined $response->header($_) && !$described->{$_} }
        @{ $self->{headers} };
}

sub body_faults {
    my ($self, $content, $response) = @_;

    return unless $content;

    my $type = $response->header('Content-Type') // '';
    my $media = $content->{$type} or return "the type is \"$type\"";

    return if $type ne 'application/json';

    my $value = eval { $response->json };

    return 'the body is no JSON' if $@;
    return $self->check($media->{schema}, $value, 'body');
}

sub unseen {
    my ($self) = @_;

    my @unseen;

    for my $path (sort keys %{ $self->{document}{paths} }) {
        for my $method (qw(get head post put delete)) {
            my $operation = $self->{document}{paths}{$path}{$method} or next;

            push @unseen, grep { !$self->{seen}{$_} }
                map { uc($method) . " $path $_" }
                sort keys %{ $operation->{responses} };
        }
    }

    return @unseen;
}

sub resolve {
    my ($self, $node) = @_;

    my $reference = $node->{'$ref'} // return $node;
    my $found = $self->{document};

    $found = $found->{$_} // croak "$reference leads nowhere"
        for split m{/}, $reference =~ s{^#/}{}r;

    return $self->resolve($found);
}

# JSON Schema: the faults of a value, each with its place.

sub check {
    my ($self, $schema, $value, $at) = @_;

    $schema = $self->resolve($schema);

    my @faults;

    for my $keyword (sort keys %$schema) {
        next if $annotation{$keyword};

        my $method = $self->can("check_$keyword")
            or croak "the keyword \"$keyword\" is not known here";
        push @faults, $self->$method($schema->{$keyword}, $value, $at, $schema);
    }

    return @faults;
}

sub kind {
    my ($value) = @_;

    return 'null'    if !defined $value;
    return 'object'  if ref $value eq 'HASH';
    return 'array'   if ref $value eq 'ARRAY';
    return 'boolean' if JSON::PP::is_bool($value);

    my $text = JSON::PP->new->allow_nonref->encode($value);

    return $text =~ /^"/ ? 'string' : $text =~ /^-?\d+$/ ? 'integer' : 'number';
}

# A constant of the document, which are texts all.

sub is_constant {
    my ($constant, $value) = @_;

    my $kind = kind($value);

    return $kind eq 'boolean' ? $constant eq ($value ? 'true' : 'false')
         : $kind =~ /^(?:string|integer|number)$/ && $constant eq $value;
}

sub check_type {
    my ($self, $type, $value, $at) = @_;

    my $kind = kind($value);

    return if $kind eq $type || ($type eq 'number' && $kind eq 'integer');
    return "$at is of type $kind, not $type";
}

sub check_const {
    my ($self, $constant, $value, $at) = @_;

    return is_constant($constant, $value) ? () : "$at is not $constant";
}

sub check_enum {
    my ($self, $constants, $value, $at) = @_;

    return if grep { is_constant($_, $value) } @$constants;
    return "$at is none of @$constants";
}

sub check_required {
    my ($self, $names, $value, $at) = @_;

    return unless ref $value eq 'HASH';
    return map { "$at.$_ is not there" } grep { !exists $value->{$_} } @$names;
}

sub check_properties {
    my ($self, $properties, $value, $at) = @_;

    return unless ref $value eq 'HASH';
    return map { $self->check($properties->{$_}, $value->{$_}, "$at.$_") }
           grep { exists $value->{$_} } sort keys %$properties;
}

sub check_additionalProperties {
    my ($self, $allowed, $value, $at, $schema) = @_;

    croak 'additionalProperties: only false is known here'
        if $allowed ne 'false';

    return unless ref $value eq 'HASH';
    return map { "$at.$_ is not described" }
           grep { !exists $schema->{properties}{$_} } sort keys %$value;
}

sub check_allOf {
    my ($self, $schemas, $value, $at) = @_;

    return map { $self->check($_, $value, $at) } @$schemas;
}

sub check_anyOf {
    my ($self, $schemas, $value, $at) = @_;

    my @all = map { [$self->check($_, $value, $at)] } @$schemas;

    return if grep { !@$_ } @all;
    return map { @$_ } @all;
}

sub check_oneOf {
    my ($self, $schemas, $value, $at) = @_;

    my @all = map { [$self->check($_, $value, $at)] } @$schemas;
    my $fit = grep { !@$_ } @all;

    return if $fit == 1;
    return $fit ? "$at is described more than once" : map { @$_ } @all;
}

sub check_minimum {
    my ($self, $least, $value, $at) = @_;

    return kind($value) =~ /^(?:integer|number)$/ && $value < $least
        ? "$at is below $least" : ();
}

sub check_maximum {
    my ($self, $most, $value, $at) = @_;

    return kind($value) =~ /^(?:integer|number)$/ && $value > $most
        ? "$at is over $most" : ();
}

sub check_pattern {
    my ($self, $pattern, $value, $at) = @_;

    return kind($value) eq 'string' && $value !~ /$pattern/
        ? "$at does not match $pattern" : ();
}

1;

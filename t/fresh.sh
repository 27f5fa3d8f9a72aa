#!/usr/bin/env bash
# What a fresh Debian, with nothing but the package, is put through by
# "./build.sh test --matrix": as root, in a tree of its own.
#
#   t/fresh.sh <package.deb>
#
# Does what the README says: installs the package and its example, tries that
# out, removes and purges it.

set -eu -o pipefail

PACKAGE=libnginx-mod-http-vibelock
DOC=/usr/share/doc/$PACKAGE
SERVER=da76a437-284c-47fa-8462-e72f896487e2
URL=http://127.0.0.1:8080/v1/infra/servers/$SERVER
LOG=/var/log/nginx/error.log


main() {
    local deb

    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

    deb=$(realpath "$1")

    apt-get -q update
    apt-get -q -y install --no-install-recommends "$deb"

    enabled || die "the module is not enabled"
    nginx -t

    links

    # What the README installs is this package, from where it was built.
    cd "$(mktemp -d)"
    mkdir build
    cp "$deb" build/

    example

    # Nothing else has a line of ours, which the README wants to see.
    commands "Install it" "apt purge" \
        | sed 's/apt purge/apt remove/; s/^sudo grep /! &/' > removal
    run removal
    ! enabled || die "the module is removed and still enabled"

    apt-get -q -y purge "$PACKAGE"
    nginx -t
    [ -z "$(find /etc /usr/lib /usr/share -name '*vibelock*')" ] \
        || die "files are left"

    nginx -s stop

    echo "fresh.sh: all is well"
}


die() {
    echo "fresh.sh: $*" >&2
    exit 1
}


enabled() {
    [ -n "$(find -L /etc/nginx/modules-enabled -name '*vibelock*' -type f)" ]
}


# Links from one document in the package to another lead somewhere.

links() {
    local broken

    broken=$(find "$DOC" -name '*.md' -exec perl -ne '
        BEGIN { use File::Basename "dirname" }
        $fenced = !$fenced if /^\s*```/;
        next if $fenced;
        for (/\]\(([^)\s#]+)/g) {
            next if m{^https?://} || -e dirname($ARGV) . "/$_";
            print "$ARGV: $_\n";
        }' {} +)

    [ -z "$broken" ] || die "links that lead nowhere: $broken"
    [ -e "$DOC/README.md" ] || die "there is no README.md"
}


# The README's commands under a heading, of the block that has a text in it.

commands() {
    perl -0777 -ne '
        BEGIN { ($heading, $text) = splice @ARGV, 0, 2 }
        my ($part) = /^## \Q$heading\E\n(.*?)(?=^## |\z)/ms;
        print grep { /\Q$text/ } $part =~ /^```sh\n(.*?)^```$/msg;
        ' "$1" "$2" "$DOC/README.md"
}


# As they are typed, but here is neither a user nor systemd, and the sockets are
# nobody else's.

run() {
    [ -s "$1" ] || die "there is no $1"
    cat "$1"

    # shellcheck disable=SC2317
    (
        set -e

        sudo() { "$@"; }
        apt() { apt-get -q -y --no-install-recommends "$@"; }

        systemctl() {
            case "$*" in
                "enable --now nginx") nginx ;;
                "reload nginx")       nginx -s reload ;;
                *)                    die "systemctl $*" ;;
            esac
        }

        curl() { gateway "$@"; }

        # shellcheck source=/dev/null
        . "./$1"
    )
}


gateway() {
    command curl -sS --unix-socket /run/gateway.sock "$@"
}


example() {
    # What the example needs and a minimal system lacks, the README installs.
    commands "Install it" "apt install" > installation
    sed '/^sudo nginx -t$/,$d' installation > files
    sed -n '/^sudo nginx -t$/,$p' installation > start
    run files

    install -d -o nobody /tmp/upstream
    upstream
    own_sockets
    rm -f /etc/nginx/sites-enabled/default
    run start

    commands "Install it" "/lock" > trial
    run trial | grep '"locked":false' || die "the README's trial fails"

    says '"exitCode":0' "$URL/exec" -d '{"command":"true"}'
    says NOT_FOUND "$URL/exec/" -d '{"command":"true"}'

    # A client that leaves keeps its lock.
    gateway -m 1 "$URL/exec" -H 'X-Api-Key: example-personal-key' \
        -d '{"command":"sleep 60"}' || true

    says EXEC_BUSY "$URL/exec" -d '{"command":"true"}'
    says '"released":true' "$URL/lock" -X DELETE
    says '"released":false' "$URL/lock" -X DELETE
    says '"exitCode":0' "$URL/exec" -d '{"command":"true"}'

    says 'vibelock_acquired_total{zone="ops"} 3' \
        'http://localhost/vibelock?format=prometheus'

    # What is stuck is in the log, as the README and the example set it up.
    gateway -m 1 "$URL/exec" -H 'X-Api-Key: example-personal-key' \
        -d '{"command":"sleep 60"}' || true
    kill %%
    wait
    logs 'lock is stuck: the upstream closed early'
    says '"state":"stuck"' "$URL/lock"
    says '"released":true' "$URL/lock" -X DELETE
    logs 'lock is broken: by DELETE'

    # Of what a worker says by itself, nginx.conf decides.
    sed -i "s|^error_log .*|error_log $LOG notice;|" /etc/nginx/nginx.conf
    nginx -t
    nginx -s reload
    logs 'start worker process'

    # The workers read the registry, and say so where they cannot.
    chmod 600 /etc/nginx/registry.json
    logs 'vibelock_registry .*registry.json. stays as it was read before'
}


upstream() {
    rm -f /tmp/port
    perl "$DOC/examples/upstream.pl" --user=nobody --dir=/tmp/upstream \
        --announce=/tmp/port &
    until [ -s /tmp/port ]; do
        kill -0 "$!" 2> /dev/null \
            || die "the example platform does not start"
        sleep 0.1
    done
}


own_sockets() {
    sed -i -e "s|127.0.0.1:9000|127.0.0.1:$(cat /tmp/port)|" \
        -e "s|listen  *127.0.0.1:8080|listen unix:/run/gateway.sock|" \
        -e "s|allow  *127.0.0.1;|& allow unix:;|" \
        /etc/nginx/conf.d/vibelock.conf
}


logs() {
    local tries=0

    until grep "$1" "$LOG"; do
        (( ++tries < 150 )) || die "\"$1\" is not in the error log"
        sleep 0.1
    done
}


says() {
    local expected=$1 answer

    shift
    answer=$(gateway -H 'X-Api-Key: example-personal-key' "$@")
    echo "$answer"

    [[ $answer == *"$expected"* ]] || die "\"$expected\" is not in the answer"
}


main "$@"

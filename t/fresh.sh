#!/usr/bin/env bash
# What a fresh Debian, with nothing but the package, is put through by
# "./build.sh test --matrix": as root, in a tree of its own.
#
#   t/fresh.sh <package.deb>
#
# Installs it, tries out the example in it, removes and purges it.

set -eu -o pipefail

PACKAGE=libnginx-mod-http-vibelock
DOC=/usr/share/doc/$PACKAGE/examples
SERVER=da76a437-284c-47fa-8462-e72f896487e2


main() {
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

    apt-get -q update
    apt-get -q -y install --no-install-recommends "$(realpath "$1")" perl curl

    enabled || die "the module is not enabled"
    nginx -t

    example
    rm /etc/nginx/conf.d/vibelock.conf

    apt-get -q -y remove "$PACKAGE"
    ! enabled || die "the module is removed and still enabled"
    nginx -t

    apt-get -q -y purge "$PACKAGE"
    nginx -t
    [ -z "$(find /etc /usr/lib /usr/share -name '*vibelock*')" ] \
        || die "files are left"

    echo "fresh.sh: all is well"
}


die() {
    echo "fresh.sh: $*" >&2
    exit 1
}


enabled() {
    [ -n "$(find -L /etc/nginx/modules-enabled -name '*vibelock*' -type f)" ]
}


# The example as the package brings it, but on sockets that are nobody else's.

example() {
    local url=http://localhost/v1/infra/servers/$SERVER

    install -d -o nobody /tmp/upstream
    perl "$DOC/upstream.pl" --user=nobody --dir=/tmp/upstream \
        --announce=/tmp/port &
    until [ -s /tmp/port ]; do sleep 0.1; done

    sed -e "s|127.0.0.1:9000|127.0.0.1:$(cat /tmp/port)|" \
        -e "s|listen  *127.0.0.1:8080|listen unix:/run/gateway.sock|" \
        -e "s|allow  *127.0.0.1;|& allow unix:;|" \
        "$DOC/vibelock.conf" > /etc/nginx/conf.d/vibelock.conf
    cp "$DOC/registry.json" /etc/nginx/
    rm -f /etc/nginx/sites-enabled/default

    nginx -t
    nginx

    says '"exitCode":0' "$url/exec" -d '{"command":"true"}'

    # A client that leaves keeps its lock.
    curl -sS -m 1 --unix-socket /run/gateway.sock "$url/exec" \
        -H 'X-Api-Key: example-personal-key' \
        -d '{"command":"sleep 60"}' || true

    says EXEC_BUSY "$url/exec" -d '{"command":"true"}'
    says '"released":true' "$url/lock" -X DELETE
    says '"released":false' "$url/lock" -X DELETE
    says '"exitCode":0' "$url/exec" -d '{"command":"true"}'

    says 'vibelock_acquired_total{zone="ops"} 3' \
        'http://localhost/vibelock?format=prometheus'

    nginx -s stop
    kill %1
}


says() {
    local expected=$1 answer

    shift
    answer=$(curl -sS --unix-socket /run/gateway.sock \
                 -H 'X-Api-Key: example-personal-key' "$@")
    echo "$answer"

    [[ $answer == *"$expected"* ]] || die "\"$expected\" is not in the answer"
}


main "$@"

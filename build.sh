#!/usr/bin/env bash
# Builds, runs and tests the module. `./build.sh help` says what there is.

set -eu -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"

# Debian keeps nginx in a directory that a plain user's PATH may lack.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

MODULE=ngx_http_vibelock_module

# gcc only recommends libc6-dev, and recommendations are not installed.
BUILD_PACKAGES=(gcc make libc6-dev nginx nginx-dev libjansson-dev libhiredis-dev
                libssl-dev libpcre2-dev zlib1g-dev)
RUN_PACKAGES=(nginx perl curl)
TEST_PACKAGES=(perl curl openssl "${VIBELOCK_REDIS:-redis-server}" nodejs clang
               procps faketime prometheus chromium chromium-driver
               libnginx-mod-http-xslt-filter libnginx-mod-http-lua
               libnginx-mod-http-image-filter ngtcp2-client)

PACKAGE_PACKAGES=(build-essential dpkg-dev debhelper git lintian)
BENCH_PACKAGES=(gcc libc6-dev nginx perl "${VIBELOCK_REDIS:-redis-server}"
                libnginx-mod-http-lua valgrind)

# Of these only the program is wanted: installing must not start the service.
SERVICES=(nginx redis-server valkey-server prometheus)


usage() {
    cat <<'END'
usage: ./build.sh <command>

  deps [build|run|test|package|bench]...
                              install what is needed, by default for the first
                              three
  build [flavour]...          build the module; without a flavour:
                              build/ngx_http_vibelock_module.so
    --asan                    with gcc's address and undefined behaviour
                              sanitizers: build/asan/
    --crash                   with NGX_HTTP_VIBELOCK_CRASH, to be killed at
                              chosen steps: build/crash/
    --clang                   with clang: build/clang/
    --static                  a whole nginx with the module in it:
                              build/static/nginx
    --source                  a whole nginx, and the module for it:
                              build/source/
  run [port]                  start a gateway with the example configuration
                              and an example upstream; Ctrl-C ends it
  test [--long] [--asan] [argument of prove]...
                              build, and run the tests in t/, or those named
  test --matrix [release]...  run the tests, and try the package, on fresh
                              systems of Debian: bookworm and trixie, or those
                              named; as root
  package                     build a Debian package for the nginx of this
                              machine: build/libnginx-mod-http-vibelock_*.deb
  bench [--count] [--quick] [--part=<name>]...
                              build, and measure beside what people would use
                              instead, for a quarter of an hour; writes
                              docs/performance.md's figures
    --count                   instructions too, which say more on a machine
                              that has other work
    --quick                   less of it, for two to three minutes; writes nothing
    --part=<name>             this alone, and writes nothing: requests, count,
                              held, swept, growth or bus
  clean                       remove build/

build, run, test and bench install first what they need and is missing.

environment:
  CC=<compiler>               builds with it, for example CC=clang
  NGINX_SRC=<directory>       nginx's own source, for --static and --source;
                              by default that of the installed nginx is fetched
  VIBELOCK_REDIS=<program>    the server that the tests use, redis-server or
                              valkey-server
  DEBIAN_MIRROR=<url>         of --matrix; by default the one of this machine
END
}


main() {
    local command=${1:-help}

    [ $# -eq 0 ] || shift

    # Whoever asks has not said yet that anything may be installed.
    case ${1:-} in
        -h | --help) command=help ;;
    esac

    case $command in
        deps)           deps "$@" ;;
        build)          build "$@" ;;
        run)            run "$@" ;;
        test)           run_tests "$@" ;;
        package)        package "$@" ;;
        bench)          bench "$@" ;;
        clean)          rm -rf build ;;
        help | -h | --help)
                        usage ;;
        *)              echo "build.sh: no command \"$command\"" >&2
                        usage >&2
                        exit 2 ;;
    esac
}


die() {
    echo "build.sh: $*" >&2
    exit 1
}


say() {
    echo "--- $*" >&2
}


# Packages

deps() {
    local set packages=()

    [ $# -gt 0 ] || set -- build run test

    for set in "$@"; do
        case $set in
            build) packages+=("${BUILD_PACKAGES[@]}") ;;
            run)   packages+=("${RUN_PACKAGES[@]}") ;;
            test)  packages+=("${TEST_PACKAGES[@]}") ;;
            package)
                   packages+=("${PACKAGE_PACKAGES[@]}") ;;
            bench) packages+=("${BENCH_PACKAGES[@]}") ;;
            *)     die "deps: \"$set\" is none of build, run, test, package," \
                       "bench" ;;
        esac
    done

    need "${packages[@]}"
}


# Installs those of the named packages that are not there. Touches neither the
# network nor the machine when all are.

need() {
    local package missing=()

    for package in "$@"; do
        case " ${missing[*]} " in
            *" $package "*) continue ;;
        esac
        installed "$package" || missing+=("$package")
    done

    [ ${#missing[@]} -gt 0 ] || return 0

    command -v apt-get > /dev/null \
        || die "there is no apt-get here; install what these Debian" \
               "packages bring: ${missing[*]}"

    [ "$(id -u)" = 0 ] || command -v sudo > /dev/null \
        || die "there is no sudo here; as root: apt-get install ${missing[*]}"

    say "installing ${missing[*]}"

    # In a subshell, so that its trap is its own.
    ( install_packages "${missing[@]}" )
}


installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" \
      = installed ]
}


as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}


install_packages() {
    local service new=()

    for service in "${SERVICES[@]}"; do
        installed "$service" || new+=("$service")
    done

    trap allow_services EXIT
    trap 'exit 1' HUP INT TERM
    deny_services "${new[@]}"

    # A broken third-party archive must not stop what does not need it.
    as_root apt-get -q update < /dev/null \
        || say "apt-get update failed, trying with the lists as they are"

    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" \
        < /dev/null

    # The service did not start now, and should not at the next boot.
    for service in "${new[@]}"; do
        if installed "$service"; then
            as_root update-rc.d "$service" disable
            say "$service is installed, but not enabled as a service:" \
                "systemctl enable --now $service does that"
        fi
    done
}


# policy-rc.d is where Debian asks whether an installation may start a service.
# Ours says no for the services named, and leaves the rest to the one before it.

POLICY=/usr/sbin/policy-rc.d

deny_services() {
    local service pattern=

    [ $# -gt 0 ] || return 0

    for service in "$@"; do
        pattern+="${pattern:+ | }$service | $service.service"
    done

    if [ -e "$POLICY" ] && ! grep -q "^# vibelock" "$POLICY"; then
        as_root mv "$POLICY" "$POLICY.vibelock-saved"
    fi

    as_root tee "$POLICY" > /dev/null <<END
#!/bin/sh
# vibelock's build.sh put this here while it installs packages.
case "\$1" in $pattern) exit 101 ;; esac
[ ! -x "$POLICY.vibelock-saved" ] || exec "$POLICY.vibelock-saved" "\$@"
exit 0
END
    as_root chmod 755 "$POLICY"
}


allow_services() {
    if [ -e "$POLICY.vibelock-saved" ]; then
        as_root mv "$POLICY.vibelock-saved" "$POLICY"
    elif [ -e "$POLICY" ] && grep -q "^# vibelock" "$POLICY"; then
        as_root rm "$POLICY"
    fi
}


# Building

build() {
    local flavour flavours=()

    for flavour in "$@"; do
        case $flavour in
            --asan | --crash | --clang | --static | --source)
                flavours+=("${flavour#--}") ;;
            *)  die "build: no flavour \"$flavour\"; there are --asan," \
                    "--crash, --clang, --static and --source" ;;
        esac
    done

    deps build

    [ ${#flavours[@]} -gt 0 ] || flavours=(plain)

    for flavour in "${flavours[@]}"; do
        build_flavour "$flavour"
    done
}


# Each flavour has a directory, where nginx's configure script finds nginx's
# source and the module as links: nothing is written outside of it, a path with
# blanks does no harm, and flavours are built side by side.
#
# nginx itself compiles with -W -Wall -Werror -Wno-unused-parameter. Flags of
# ours go to make: given to configure, they could change what it finds out about
# the system, and the module would not fit the nginx it is built for.

build_flavour() {
    local flavour=$1 dir=build/$1 cc=${CC:-gcc} source=/usr/share/nginx/src
    local flags="-Wall -Wextra -Wno-unused-parameter -Werror"
    local add=--add-dynamic-module product=$MODULE.so goal=modules out=build/$1

    case $flavour in
        plain)
            out=build
            ;;
        asan)
            # clang does not link its sanitizers into shared objects.
            cc=gcc
            flags+=" -fsanitize=address,undefined -fno-omit-frame-pointer"
            flags+=" -fno-sanitize-recover=undefined"
            ;;
        crash)
            flags+=" -DNGX_HTTP_VIBELOCK_CRASH=1"
            ;;
        clang)
            need clang
            cc=clang
            ;;
        static)
            add=--add-module product=nginx goal=binary
            nginx_source
            source=$NGINX_SRC
            ;;
        source)
            goal="binary modules"
            nginx_source
            source=$NGINX_SRC
            ;;
    esac

    mkdir -p "$dir"
    [ -w "$dir" ] \
        || die "$dir is another user's; build as that user, or remove build/"

    (
        flock 9
        configure_nginx "$dir" "$source" "$cc" "$add" "$flags"
        # shellcheck disable=SC2086
        make -C "$dir" -f objs/Makefile -s --no-print-directory \
            -j "$(nproc)" CC="$cc $flags" $goal >&2
        publish "$dir/objs/$product" "$out/$product"
        [ "$flavour" != source ] || publish "$dir/objs/nginx" "$out/nginx"
    ) 9> "$dir/lock"
}


# Runs nginx's configure script, unless it ran for the same nginx, compiler,
# flags and list of files before.

configure_nginx() {
    local dir=$1 source=$2 cc=$3 add=$4 flags=$5 link stamp
    local NGX_CONF_FLAGS=()

    stamp=$(nginx_stamp "$@")

    [ "$stamp" != "$(cat "$dir/stamp" 2> /dev/null)" ] || return 0

    say "configuring $dir"

    rm -rf "$dir/objs" "$dir/stamp"

    for link in auto src configure; do
        ln -sfn "$source/$link" "$dir/$link"
    done
    ln -sfn ../.. "$dir/vibelock"

    # Debian's flags, less the modules that are built for nginx alone.
    # shellcheck source=/dev/null
    . /usr/share/nginx/src/conf_flags
    nginx_options "$(basename "$dir")"

    # A release has ./configure, a checkout of nginx auto/configure.
    link=./configure
    [ -e "$dir/configure" ] || link=auto/configure

    ( cd "$dir" && "$link" --with-cc="$cc" "${NGX_CONF_FLAGS[@]}" \
        "$add=vibelock" > configure.log 2>&1 ) \
        || { tail "$dir/configure.log" >&2
             die "nginx's configure script failed, see $dir/configure.log"; }

    echo "$stamp" > "$dir/stamp"
}


nginx_stamp() {
    {
        echo "$@"
        nginx -V
        dpkg-query -W nginx-dev
        cksum "$2/src/core/nginx.h" config config.make build.sh
        "$3" --version
        printf '%s\n' src/*.[ch]
    } 2>&1 | cksum
}


# The compiler and linker options of the installed nginx, which quotes them; for
# a whole nginx, its HTTP modules too.

nginx_options() {
    local flavour=$1 option options=()

    eval "options=($(nginx -V 2>&1 | sed -n 's/^configure arguments: //p'))"

    for option in "${options[@]}"; do
        case $option in
            --with-cc-opt=* | --with-ld-opt=*)
                NGX_CONF_FLAGS+=("$option") ;;
            --with-http_*_module)
                case $flavour in
                    static | source) NGX_CONF_FLAGS+=("$option") ;;
                esac ;;
        esac
    done
}


# A new file takes the old one's place: an nginx that runs has the old one open,
# and writing into that would bring it down.

publish() {
    if ! cmp -s "$1" "$2"; then
        cp "$1" "$2.new"
        mv -f "$2.new" "$2"
        say "built $2"
    fi
}


# Sets NGINX_SRC to the whole source of nginx; Debian's nginx-dev has headers
# only. By default it is what the installed package was made from, without the
# patches of Debian's. The lists of source packages stay in build/: the apt
# configuration of the machine is read, not changed.

nginx_source() {
    local version dir=$PWD/build/source

    if [ -n "${NGINX_SRC:-}" ]; then
        [ -f "$NGINX_SRC/src/core/nginx.c" ] \
            || die "NGINX_SRC: \"$NGINX_SRC\" is no source tree of nginx"
        NGINX_SRC=$(cd "$NGINX_SRC" && pwd)
        return
    fi

    version=$(dpkg-query -W -f '${source:Version}' nginx)
    NGINX_SRC=$(echo "$dir/$version"/nginx-*/)
    NGINX_SRC=${NGINX_SRC%/}

    [ ! -f "$NGINX_SRC/src/core/nginx.c" ] || return 0

    say "fetching the source of nginx $version"

    rm -rf "$dir"
    mkdir -p "$dir/$version"
    ( fetch_source "$dir" "$version" ) > "$dir/log" 2>&1 \
        || { tail "$dir/log" >&2
             die "nginx $version's source cannot be had from Debian, see" \
                 "build/source/log; or name one with NGINX_SRC"; }

    NGINX_SRC=$(echo "$dir/$version"/nginx-*/)
    NGINX_SRC=${NGINX_SRC%/}
}


fetch_source() {
    local dir=$1 version=$2 list apt=(apt-get -q)

    mkdir -p "$dir/sources" "$dir/lists/partial" "$dir/cache/archives/partial"

    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        case $list in
            *.list)    sed 's/^deb /deb-src /' ;;
            *.sources) sed 's/^Types:.*/Types: deb-src/' ;;
            *)         continue ;;
        esac < "$list" > "$dir/sources/${list##*/}" || true
    done

    apt+=(-o Dir::Etc::sourcelist=/dev/null
          -o Dir::Etc::sourceparts="$dir/sources"
          -o Dir::State::lists="$dir/lists"
          -o Dir::Cache="$dir/cache"
          -o APT::Sandbox::User=)

    "${apt[@]}" update || true

    cd "$dir/$version"

    # The archive may have gone on to the next revision of the same release.
    "${apt[@]}" source --tar-only "nginx=$version" \
        || "${apt[@]}" source --tar-only nginx
    tar -xf nginx_*.orig.tar.*
}


# Running the example

run() {
    local port=${1:-}

    [ $# -le 1 ] || die "run: one port at most"

    if [ -n "$port" ]; then
        [[ $port =~ ^[1-9][0-9]{0,4}$ && $port -lt 65536 ]] \
            || die "run: \"$port\" is no port, a number from 1 to 65535"
        ! port_taken "$port" || die "run: port $port is taken"
    fi

    deps build run
    build_flavour plain

    if [ -z "$port" ]; then
        port=8080
        while port_taken "$port"; do port=$(( port + 1 )); done
    fi

    example=$(mktemp -d "${TMPDIR:-/tmp}/vibelock.XXXXXX")
    processes=()

    trap stop_example EXIT
    trap 'trap "" HUP INT TERM; echo; exit 0' HUP INT TERM

    start_upstream
    start_nginx "$port"
    print_examples "http://127.0.0.1:$port"

    setsid tail -q -n +1 -f "$example/access.log" &
    processes=("$!" "${processes[@]}")

    # Whichever of them ends by itself ends the rest.
    wait -n "${processes[@]}" || die "the example ended by itself"
}


port_taken() {
    ( : < "/dev/tcp/127.0.0.1/$1" ) 2> /dev/null
}


# The upstream runs what it is sent, so it is never root. Each process has a
# session of its own: Ctrl-C is for this script, which stops them in order.

start_upstream() {
    local user=()

    # Workers of nginx, who are "nobody" when this is root, pass through here.
    chmod 711 "$example"
    mkdir "$example/upstream"

    if [ "$(id -u)" = 0 ]; then
        user=(--user=nobody)
        chown nobody "$example/upstream"
    fi

    setsid perl docs/examples/upstream.pl "${user[@]}" \
        --dir="$example/upstream" --announce="$example/port" &
    processes=("$!")

    wait_for [ -s "$example/port" ]
}


start_nginx() {
    sed -e "s|@LISTEN@|127.0.0.1:$1|" \
        -e "s|@UPSTREAM@|127.0.0.1:$(cat "$example/port")|" \
        docs/examples/nginx.conf > "$example/nginx.conf"
    install -m 644 docs/examples/registry.json "$example/"
    ln -s "$PWD/build/$MODULE.so" "$example/"

    setsid nginx -p "$example" -e stderr -c "$example/nginx.conf" \
        -g 'daemon off;' &
    processes=("$!" "${processes[@]}")

    wait_for port_taken "$1"
}


wait_for() {
    local tries=0 process

    until "$@"; do
        for process in "${processes[@]}"; do
            kill -0 "$process" 2> /dev/null || die "the example did not start"
        done
        (( ++tries < 100 )) || die "the example did not start in time"
        sleep 0.1
    done
}


stop_example() {
    local process

    trap '' HUP INT TERM

    for process in "${processes[@]}"; do
        kill "$process" 2> /dev/null || true
        wait "$process" 2> /dev/null || true
    done

    rm -rf "$example"
}


print_examples() {
    local servers="$1/v1/infra/servers"
    local mine=$servers/da76a437-284c-47fa-8462-e72f896487e2
    local shop=$servers/0c4f9b0e-51de-4d0c-9d5b-0a8f3c1e7b62
    local key="-H 'X-Api-Key: example-personal-key'"

    cat <<END

A gateway is on $1, for this machine alone. Ctrl-C stops it.
Who holds what is on $1/vibelock, for a browser.
It really runs the commands it is sent. In other terminals, here:

# Run a command; it takes 20 seconds.
curl -iw '\\n' $key \\
  $mine/exec \\
  -d '{"command":"echo started; sleep 20; uname -a","timeout":60}'

# Meanwhile, another: 409 EXEC_BUSY, with Retry-After.
curl -iw '\\n' $key \\
  $mine/exec \\
  -d '{"command":"uptime"}'

# Is there a lock, who holds it, and for how long still?
curl -iw '\\n' $key \\
  $mine/lock

# Cut a client after two seconds: the command runs on, and so does its lock.
curl -m 2 $key \\
  $mine/exec \\
  -d '{"command":"sleep 60"}'

# Break that lock. "broadcast" is to other gateways, where there are such.
curl -iw '\\n' -X DELETE $key \\
  $mine/lock

# A command that kills who answers for it: nobody can know whether it ended, so
# its lock is "stuck", until you break it or its time is over.
curl -iw '\\n' $key \\
  $mine/exec \\
  -d '{"command":"kill -9 \$PPID"}'
curl -iw '\\n' $key \\
  $mine/lock

# End the command itself, if it still runs, and break its lock.
curl -iw '\\n' -X POST $key \\
  $mine/unstick

# Deploy what is in docs/: progress as it goes, or one answer at the end.
printf '{"archive":"%s"}' "\$(tar -cz docs | base64 -w0)" |
  curl -iNw '\\n' $key \\
  $mine/deploy --data-binary @-
printf '{"archive":"%s"}' "\$(tar -cz docs | base64 -w0)" |
  curl -iw '\\n' $key \\
  '$mine/deploy?stream=false' --data-binary @-

# An application comes with its own key, and its user's session.
curl -iw '\\n' -X DELETE -H 'X-Api-Key: example-app-key' \\
  -H 'Authorization: Bearer example-session' \\
  $shop/lock

END
}


# Testing

run_tests() {
    local argument asan="" named="" arguments=()

    if [ "${1:-}" = --matrix ]; then
        shift
        matrix "$@"
        return
    fi

    for argument in "$@"; do
        case $argument in
            --long) export VIBELOCK_LONG=1 ;;
            --asan) asan=1 ;;
            *)      arguments+=("$argument")
                    [ ! -e "$argument" ] || named=1 ;;
        esac
    done

    [ -n "$named" ] || arguments+=(t/)

    deps build run test
    need "libclang-rt-$(clang_version)-dev"
    npm_tools
    localhost

    build_flavour clang
    build_flavour crash
    export VIBELOCK_CRASH_MODULE=$PWD/build/crash/$MODULE.so

    if [ -n "$asan" ]; then
        build_flavour asan
        sanitizer_settings
        export VIBELOCK_MODULE=$PWD/build/asan/$MODULE.so
    else
        build_flavour plain
        export VIBELOCK_MODULE=$PWD/build/$MODULE.so
    fi

    prove -j "$(nproc)" -I t/lib "${arguments[@]}"
}


# A system that was only unpacked has no /etc/hosts, and what drives a browser
# looks for the name.

localhost() {
    ! getent hosts localhost > /dev/null || return 0

    say "localhost has no address here: adding it to /etc/hosts"
    echo '127.0.0.1 localhost' | as_root tee -a /etc/hosts > /dev/null
}


# What clang's fuzzer and sanitizers run with is in a package that has its
# version in its name.

clang_version() {
    clang -dumpversion | cut -d . -f 1
}


# The linter of docs/openapi.yaml, where there is npm to bring it; without it,
# its test is skipped, and says so.

npm_tools() {
    command -v npm > /dev/null || return 0

    mkdir -p build

    (
        flock 9

        ! cmp -s t/npm/package-lock.json build/npm/package-lock.json || exit 0

        rm -rf build/npm
        mkdir build/npm
        cp t/npm/package.json t/npm/package-lock.json build/npm/

        npm --prefix build/npm ci --ignore-scripts --no-audit --no-fund \
            > build/npm.log 2>&1 < /dev/null \
            || { rm -rf build/npm
                 say "npm failed, see build/npm.log; going on without it"; }
    ) 9> build/npm.lock
}


# nginx is not built with the sanitizers, so their library has to be loaded
# before it, by whoever starts it. nginx frees little when it ends: what it
# leaves is no leak.

sanitizer_settings() {
    VIBELOCK_PRELOAD=$(realpath "$(gcc -print-file-name=libasan.so)")

    export VIBELOCK_PRELOAD VIBELOCK_ASAN=1
    export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:disable_coredump=1
    export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1
}


# Fresh systems of Debian: each is unpacked into a tree of its own, where the
# tests run in a copy of this tree, and the package is built; then the package
# is tried in a second tree, where nothing was installed before.

matrix() {
    local release failed=()

    [ $# -gt 0 ] || set -- bookworm trixie

    [ "$(id -u)" = 0 ] \
        || die "test --matrix unpacks systems and enters them; run it as root"

    need debootstrap debian-archive-keyring

    unshare --mount --pid --fork true 2> /dev/null \
        || die "test --matrix needs namespaces (unshare), and may not have them"

    for release in "$@"; do
        if ( matrix_release "$release" ); then
            say "$release: all is well"
        else
            failed+=("$release")
            say "$release: FAILED"
        fi
    done

    [ ${#failed[@]} = 0 ] || die "failed on ${failed[*]}"
}


matrix_release() {
    local release=$1 dir redis=redis-server

    # Debian 13 is tried with Valkey.
    [ "$release" != trixie ] || redis=valkey-server

    dir=$(mktemp -d "${TMPDIR:-/tmp}/vibelock-$release.XXXXXX")

    # Mounts are in a namespace of their own and gone with it: what is removed
    # here is the tree and nothing else. A failure inside does not end this
    # subshell by itself, since it stands in a condition.
    # shellcheck disable=SC2064
    trap "rm -rf '$dir'" EXIT
    trap 'exit 1' HUP INT TERM

    say "$release: unpacking, see build/matrix-$release.log"
    mkdir -p build

    unpack_release "$release" "$dir/work" > "build/matrix-$release.log" 2>&1 \
        || { tail -n 5 "build/matrix-$release.log" >&2; return 1; }

    cp -a "$dir/work" "$dir/fresh"
    export_tree "$dir/work/root/vibelock"

    inside "$dir/work" \
        VIBELOCK_REDIS="$redis" VIBELOCK_LONG="${VIBELOCK_LONG:-}" \
        /root/vibelock/build.sh test || return 1

    inside "$dir/work" /root/vibelock/build.sh package || return 1

    cp t/fresh.sh \
        "$dir"/work/root/vibelock/build/libnginx-mod-http-vibelock_*.deb \
        "$dir/fresh/root/" || return 1

    inside "$dir/fresh" bash -c '/root/fresh.sh /root/*.deb' \
        > "build/matrix-$release.log" 2>&1 \
        || { tail -n 20 "build/matrix-$release.log" >&2; return 1; }
}


unpack_release() {
    local release=$1 tree=$2

    debootstrap --variant=minbase "$release" "$tree" "$(debian_mirror)" \
        || return 1

    # Nothing that is installed there may start a service.
    printf '#!/bin/sh\nexit 101\n' > "$tree/usr/sbin/policy-rc.d"
    chmod 755 "$tree/usr/sbin/policy-rc.d"

    echo '127.0.0.1 localhost' > "$tree/etc/hosts"

    # It reaches the archive as this machine does.
    cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
    apt-config dump --format '%F "%v";%n' Acquire::http::Proxy \
        > "$tree/etc/apt/apt.conf.d/90proxy"
}


# Where this machine has Debian itself from.

debian_mirror() {
    local mirror=${DEBIAN_MIRROR:-}

    [ -n "$mirror" ] \
        || mirror=$(apt-get indextargets --format '$(REPO_URI)' \
                        'Created-By: Packages' 'Origin: Debian' \
                        'Label: Debian' | head -n 1)

    [ -n "$mirror" ] \
        || die "no mirror of Debian in apt's lists: apt-get update, or name" \
               "one with DEBIAN_MIRROR"

    echo "$mirror"
}


# inside <tree> [NAME=value]... <command>...

inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -e -c '
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        cd "$1"
        exec chroot . env -i "${@:2}"
    ' inside "$1" HOME=/root LC_ALL=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${@:2}" < /dev/null
}


# The Debian package, made by debian/ from a copy of the tree: it is not built
# where one works.

package() {
    [ $# -eq 0 ] || die "package: there are no arguments"

    deps build package
    mkdir -p build

    ( build_package )
}


build_package() {
    local dir

    # No dot in the name: nginx's configure script takes what follows one for
    # the suffix of a source file.
    dir=$(mktemp -d "${TMPDIR:-/tmp}/vibelock-XXXXXX")

    # shellcheck disable=SC2064
    trap "rm -rf '$dir'" EXIT
    trap 'exit 1' HUP INT TERM

    say "building the package"

    export_tree "$dir/vibelock"
    ( cd "$dir/vibelock" && dpkg-buildpackage -b -us -uc ) \
        > build/package.log 2>&1 \
        || { tail build/package.log >&2
             die "the package was not built, see build/package.log"; }

    lintian --allow-root --fail-on error "$dir"/*.changes >&2 \
        || die "lintian finds errors in the package"

    rm -f build/*.deb
    mv "$dir"/*.deb build/
    say "built $(echo build/*.deb)"
    say "apt install ./build/libnginx-mod-http-vibelock_*.deb installs it;" \
        "where nginx is not enabled as a service yet, systemctl enable" \
        "--now nginx does that"
}


# Copies the files of this tree as they are, without what was built.

export_tree() {
    local file files

    mkdir -p "$1"

    if [ -e .git ]; then
        files=(git ls-files -z --cached --others --exclude-standard)
    else
        files=(find . -path ./build -prune -o -type f -print0)
    fi

    # git lists a file also after it was removed, until the index knows.
    "${files[@]}" \
        | while IFS= read -r -d '' file; do
              [ ! -e "$file" ] || printf '%s\0' "$file"
          done \
        | tar --null -T - -c | tar -x -C "$1"
}


# Measuring

bench() {
    local argument

    for argument in "$@"; do
        case $argument in
            --count | --quick | --smoke | --keep) ;;
            --part=requests | --part=count | --part=held | --part=swept) ;;
            --part=growth | --part=bus) ;;
            --part=*) die "bench: no part \"${argument#--part=}\"; there are" \
                          "requests, count, held, swept, growth and bus" ;;
            *)        die "bench: no option \"$argument\"; there are --count," \
                          "--quick and --part=<name>" ;;
        esac
    done

    deps build bench
    build_flavour plain

    # Two at once would measure each other. What perl starts has not the lock.
    (
        flock -n 9 || die "bench: it runs already in this directory, and two" \
                          "at once disturb each other; wait until it ends"

        VIBELOCK_MODULE=$PWD/build/$MODULE.so \
            perl t/bench/bench.pl "$@" 9>&-
    ) 9> build/bench.lock
}


main "$@"

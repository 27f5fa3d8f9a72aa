#!/bin/sh
# Prints the page as C: embed.sh <this directory>
#
# page.html is cut in three at its <style> and its <script>, whose contents are
# page.css and page.js.  All of a part is said in its hash, down to the line
# feed after the tag.

set -eu

cd "$1"

quote() {
    sed -e 's/[\\"]/\\&/g' -e 's/??/?\\?/g' -e 's/.*/    "&\\n"/'
}

part() {
    printf '\n\nstatic ngx_str_t  ngx_http_vibelock_page_%s' "$1"
    printf ' = ngx_string(\n'
    cat
    printf ');\n'
}

# an opening tag ends its part, and the line feed after it begins the next one
open() {
    sed '$s/\\n"$/"/'
}

printf '\n/* made from src/page/ by src/page/embed.sh */\n'

sed '/^<style>$/q' page.html | quote | open | part head

{ echo; cat page.css; } | quote | part style

sed -e '1,/^<style>$/d' -e '/^<script>$/q' page.html \
    | quote | open | part middle

{ echo; cat page.js; } | quote | part script

sed '1,/^<script>$/d' page.html | quote | part tail

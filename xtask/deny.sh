#!/bin/sh
# Licences, bans, sources and advisories of all dependencies by cargo-deny, which is built once into target/tools.
#
# The advisories come from a repository on GitHub. Where that cannot be reached they are checked against the copy of an
# earlier run, and where there is none they are not checked; either is said in one line. All else needs no network.
set -eu
cd "$(dirname "$0")/.."

version=0.20.2
cargo=${CARGO:-cargo}
tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
program=$tools/cargo-deny-$version/bin/cargo-deny
database=https://github.com/rustsec/advisory-db
copies=$tools/advisories

if [ ! -x "$program" ]; then
    # Without optimization and debug information: it is built in a third of the time and runs for seconds.
    CARGO_PROFILE_DEV_DEBUG=0 "$cargo" install --quiet --locked --debug cargo-deny --version "$version" \
        --root "$tools/cargo-deny-$version" --target-dir "$tools/build"
    rm -rf "$tools/build"
fi

config=$tools/deny.toml
sed "s|^\[advisories\]\$|&\ndb-path = \"$copies\"|" deny.toml >"$config"
deny() { "$program" --locked --config "$config" "$@"; }
check() { deny check --hide-inclusion-graph "$@"; }

check bans licenses sources
if deny fetch db 2>"$tools/fetch.log"; then
    check advisories
elif git ls-remote --quiet "$database" HEAD >/dev/null 2>&1; then
    cat "$tools/fetch.log" >&2
    echo "deny: the advisory database $database can be reached, but not fetched" >&2
    exit 1
elif [ -n "$(ls -d "$copies"/*/.git 2>/dev/null)" ]; then
    echo "deny: $database cannot be reached; advisories are checked against the copy of an earlier run" >&2
    deny --offline check --hide-inclusion-graph advisories
else
    echo "deny: advisories NOT checked: $database cannot be reached and no copy of it is here" >&2
fi

#!/bin/sh
# Runs tests whose threads share memory under the address and the thread sanitizer: worlds of ranks as threads of one
# process, over shared memory and over the seeded transport. For the thread sanitizer the standard library is compiled as
# well: it would not see how threads wait for each other there.
# Usage: sanitize.sh <toolchain> [address|thread]
set -eu
cd "$(dirname "$0")/.."
toolchain=$1
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$PWD/target}/sanitize

for sanitizer in ${2:-address thread}; do
    echo "sanitize: $sanitizer"
    standard=
    [ "$sanitizer" = address ] || standard=-Zbuild-std
    # Sanitizers see memory come and go where the C library is called for it, so rustix calls it here. Without
    # optimisation the tests take minutes.
    # shellcheck disable=SC2086 # an option or none
    CARGO_PROFILE_DEV_OPT_LEVEL=1 RUSTFLAGS="-Zsanitizer=$sanitizer --cfg rustix_use_libc" \
        "${CARGO:-cargo}" "+$toolchain" test $standard --target "$host" --target-dir "$target/$sanitizer" \
        -p margay-run-engine --test worlds
done

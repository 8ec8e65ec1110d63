#!/bin/sh
# Runs tests whose threads share memory under the address and the thread sanitizer, with a standard library that is
# instrumented as well: worlds of ranks as threads of one process, over shared memory and over the seeded transport.
# Usage: sanitize.sh <toolchain> [address|thread]
set -eu
cd "$(dirname "$0")/.."
toolchain=$1
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$PWD/target}/sanitize

run() {
    sanitizer=$1
    shift
    echo "sanitize: $sanitizer"
    # Sanitizers see memory come and go where the C library is called for it, so rustix calls it here. The standard library
    # is compiled as the tests are, and takes minutes without optimisation.
    CARGO_PROFILE_DEV_OPT_LEVEL=1 RUSTFLAGS="-Zsanitizer=$sanitizer --cfg rustix_use_libc" "${CARGO:-cargo}" "+$toolchain" test -Zbuild-std --target "$host" \
        --target-dir "$target/$sanitizer" "$@"
}

for sanitizer in ${2:-address thread}; do
    run "$sanitizer" -p margay-run-engine --test worlds
done

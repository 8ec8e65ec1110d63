#!/bin/sh
# Runs tests under Miri: those of core/, and those of sys/ that share memory between threads without asking the kernel
# for it. (Miri has no memfd, no membarrier and no second process, so what lies in a job's segment is out of its reach;
# loom looks at that. Frames of outlined functions are a C compiler's: their pointers are copied as bytes.)
# Usage: miri.sh <toolchain>
set -eu
cd "$(dirname "$0")/.."
toolchain=$1
target=${CARGO_TARGET_DIR:-target}/miri

# Tests read the clock and the environment. Words of a deque are addresses: their provenance is exposed, as it must be.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance"

# Runs `cargo miri test` with those arguments. A module (`name::`) without tests is a failure: it has moved.
miri() {
    log=$(mktemp)
    "${CARGO:-cargo}" "+$toolchain" miri test --target-dir "$target" "$@" >"$log" 2>&1 && code=0 || code=$?
    cat "$log"
    for word; do
        case $word in
        *::) grep -q "^test $word" "$log" || {
            echo "miri: no test of the module $word ran; xtask/miri.sh names it" >&2
            code=1
        } ;;
        esac
    done
    rm -f "$log"
    return "$code"
}

# Left out: what asks for pages with flags that Miri does not have.
memory() {
    miri -p margay-sys-os --lib -- --skip pages_are_zero crew:: heap:: lock:: static_ref:: sweep:: user:: &&
        miri -p margay-sys-threads --lib -- deque:: shelf:: slot:: claims:: child_count::
}

# Left out: every value of 16 bits through arithmetic without memory, which takes minutes and shows nothing here.
# So do the tests of topologies, safe code that goes through many sizes.
core() {
    miri -p 'margay-core-*' --lib -- --skip every_pattern --skip rounding_is &&
        miri -p margay-core-datatype --tests &&
        miri -p margay-core-group --test groups
}

# Most tests are one thread: both halves at once, for two cores.
memory &
half=$!
failed=0
core || failed=1
wait "$half" || failed=1
exit $failed

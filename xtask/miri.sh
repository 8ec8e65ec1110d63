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
miri() { "${CARGO:-cargo}" "+$toolchain" miri test --target-dir "$target" "$@"; }

# Left out: every value of 16 bits through arithmetic without memory, which takes minutes and shows nothing here.
miri -p 'margay-core-*' --lib -- --skip every_pattern --skip rounding_is
miri -p 'margay-core-datatype' -p 'margay-core-group' --tests
# And what asks for pages with flags that Miri does not have.
miri -p 'margay-sys*' --lib -- --skip pages_are_zero deque:: heap:: link:: lock:: shelf:: slot:: sweep:: user::

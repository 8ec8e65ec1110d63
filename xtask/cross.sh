#!/bin/sh
# Checks the whole workspace for aarch64, and runs the tests of core/ there, under QEMU.
set -eu
cd "$(dirname "$0")/.."
other=aarch64-unknown-linux-gnu
target=${CARGO_TARGET_DIR:-target}/cross

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
cargo=${CARGO:-cargo}
RUSTFLAGS="-D warnings" "$cargo" check --target "$other" --target-dir "$target" --workspace
# Left out: long random walks through partitions, safe code of whole numbers, half of the time of all tests here.
RUSTFLAGS="-D warnings" "$cargo" test --target "$other" --target-dir "$target" -p 'margay-core-*' -- --skip a_hundred_thousand_operations

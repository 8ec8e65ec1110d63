#!/bin/sh
# Builds the fuzz targets and runs each of them, two at a time. What they learn stays in target/fuzz/corpus; an input
# that breaks something is kept in target/fuzz/found, and its name is printed. The same seed and corpus give the same
# inputs, so a check of a change does not fail for what was there before; FUZZ_SEED=0 explores anew.
# Usage: run.sh [<seconds for each target>] [<target>...]
#        run.sh replay <target> <file>      runs one input
set -eu
cd "$(dirname "$0")"
fuzz=$PWD
cd ../..

target=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

# Coverage, and comparisons, of all that is linked. The flags are those of cargo-fuzz; the stable compiler has them, and
# libFuzzer comes with the crate libfuzzer-sys. For the target only, which leaves build scripts alone.
llvm="-sanitizer-coverage-level=4 -sanitizer-coverage-inline-8bit-counters -sanitizer-coverage-pc-table -sanitizer-coverage-trace-compares"
flags="-Cpasses=sancov-module --cfg=fuzzing"
for option in $llvm; do flags="$flags -Cllvm-args=$option"; done
RUSTFLAGS=$flags "${CARGO:-cargo}" build --quiet --release --locked --manifest-path "$fuzz/Cargo.toml" \
    --target "$host" --target-dir "$target"
programs=$target/$host/release

mkdir -p "$target/found"
if [ "${1:-}" = replay ]; then exec "$programs/$2" "$3"; fi
seconds=${1:-60}
case $seconds in *[!0-9]*) echo "fuzz: '$seconds' is no number of seconds; usage: run.sh [<seconds>] [<target>...]" >&2; exit 2;; esac
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $(sed -n 's|^path = "targets/\(.*\)\.rs"$|\1|p' "$fuzz/Cargo.toml")

one() {
    corpus=$target/corpus/$1
    mkdir -p "$corpus"
    seeds=$fuzz/seeds/$1
    [ -d "$seeds" ] || seeds=
    log=$target/$1.log
    # shellcheck disable=SC2086 # no seeds, no word
    if "$programs/$1" -seed="${FUZZ_SEED:-1}" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -max_len=4096 \
        -artifact_prefix="$target/found/$1-" "$corpus" $seeds >"$log" 2>&1; then
        echo "fuzz: $1: $(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 runs in \2 s/p' "$log")"
    else
        tail -n 40 "$log"
        echo "fuzz: $1: FAILED; again with: tests/fuzz/run.sh replay $1 $(sed -n 's/^artifact_prefix=.*Test unit written to //p' "$log")"
        return 1
    fi
}

failed=0
while [ $# -gt 0 ]; do
    one "$1" &
    first=$!
    if [ $# -gt 1 ]; then one "$2" || failed=1; fi
    wait "$first" || failed=1
    shift
    [ $# -eq 0 ] || shift
done
exit $failed

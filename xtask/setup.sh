#!/bin/sh
# Installs what a purpose needs on Debian and Ubuntu when run as root; otherwise names in one line what is missing.
# Parts of Rust's toolchains come from rustup, for any user.
# Usage: setup.sh demo|test|bench|check|miri|cross|sanitize|fuzz
# Exit status: 0: all is there; 3: missing, and could not be fetched because there is no network; 1: missing otherwise.
set -eu

purpose=${1:-test}
cd "$(dirname "$0")/.."
packages=
missing=
useful=

# needs <package> <command...>: the package, unless the command succeeds.
needs() {
    package=$1
    shift
    if ! "$@" >/dev/null 2>&1; then
        packages="$packages $package"
        missing="$missing${missing:+, }$package"
    fi
}

# wants <package> <command...>: the same, where it is not needed but can be had.
wants() {
    if [ "$(id -u)" -eq 0 ]; then needs "$@"; fi
}

# uses <package> <command...>: the same, where tests say that they leave something out without it.
uses() {
    package=$1
    shift
    if [ "$(id -u)" -eq 0 ] && ! "$@" >/dev/null 2>&1; then useful="$useful $package"; fi
}

have() { command -v "$1"; }
# A library that programs find when they run.
has_library() { ldconfig -p | grep -qF "$1"; }
# Its programs are outside of the path.
has_postgres() { have initdb || ls /usr/lib/postgresql/*/bin/initdb; }
# A C compiler with the C library's headers.
compiles() { echo '#include <stdio.h>' | "$1" -x "$2" -E -; }
# LLVM's OpenMP of the same version: another version's library has the same name.
has_openmp() { echo '#include <omp.h>' | "$1" -fopenmp -x c -E -; }

# Rust first: nothing works without, and what cargo says of a version that is too old does not name
# the remedy.
wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if ! have "${CARGO:-cargo}" >/dev/null; then
    echo "missing for 'make $purpose': cargo; install Rust $wanted or later: https://rustup.rs" >&2
    exit 1
fi
if ! found=$("${CARGO:-cargo}" --version 2>&1); then
    echo "missing for 'make $purpose': the toolchain of rust-toolchain.toml: run 'rustup toolchain install' here, with a network" >&2
    exit 1
fi
found=${found#cargo }
found=${found%%[!0-9.]*}
if [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
    echo "too old for 'make $purpose': cargo $found; install Rust $wanted or later: https://rustup.rs" >&2
    exit 1
fi

# rust <component|target> <name> <toolchain>: a part of a toolchain, fetched by rustup where it is missing.
rust() {
    if rustup "$1" list --toolchain "$3" 2>/dev/null | grep -q "^$2.*(installed)"; then return 0; fi
    if log=$(rustup "$1" add "$2" --toolchain "$3" 2>&1); then return 0; fi
    if ! have rustup >/dev/null; then log="there is no rustup to install it"; fi
    echo "missing for 'make $purpose': rustup $1 add $2 --toolchain $3: $(echo "$log" | grep -m 1 . | cut -c 1-150)" >&2
    case $log in
    *download* | *"is not installed"*) exit 3 ;;
    esac
    exit 1
}
# A toolchain of that name, in its smallest form.
toolchain() {
    if rustup run "$1" rustc --version >/dev/null 2>&1; then return 0; fi
    rustup toolchain install "$1" --profile minimal --no-self-update >/dev/null 2>&1 || true
}

needs gcc have cc
needs libc6-dev compiles cc c
case $purpose in
test) needs gfortran have gfortran ;;
*) wants gfortran have gfortran ;;
esac
case $purpose in
# The README compiles MLP's programs by it.
demo) wants pkg-config have pkg-config ;;
test)
    needs g++ have c++
    needs cmake have cmake
    needs pkg-config have pkg-config
    needs valgrind have valgrind
    needs gdb have gdb
    # Reads archives of traces.
    uses otf2-tools have otf2-print
    # Hosts and Slurm on this machine, which only root can make.
    uses iproute2 have ip
    # The servers of a real remote shell on them.
    uses openssh-server have sshd
    # A firewall between them.
    uses nftables have nft
    uses munge have munged
    uses slurmctld have slurmctld
    uses slurmd have slurmd
    uses slurm-client have srun
    # Slurm's accounts, without which its jobs do not grow.
    uses slurmdbd have slurmdbd
    uses mariadb-server-core have mariadbd
    uses mariadb-client-core have mariadb
    uses libpmix2 has_library libpmix.so.2
    # By this name Slurm's plugin opens it.
    uses libpmix-dev test -e "/usr/lib/$(uname -m)-linux-gnu/pmix2/lib/libpmix.so"
    uses libfabric1 has_library libfabric.so.1
    # A server that keeps the queue's state.
    uses postgresql has_postgres
    # Sets the clock of a head.
    uses libfaketime test -e "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1"
    # Shells whose completions are run.
    uses zsh have zsh
    uses fish have fish
    # Reads the manual pages.
    needs groff-base have groff
    needs libopenblas-dev has_library libopenblas.so.0
    needs libtbb-dev has_library libtbb.so.12
    # Programs of LLVM's compilers, and its OpenMP, with which they are linked.
    needs clang-19 have clang-19
    needs flang-19 have flang-new-19
    needs libomp-19-dev has_openmp clang-19
    needs python3-venv python3 -c 'import ensurepip, venv'
    needs python3-dev python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
    needs python3 have python3
    needs python3-venv python3 -c 'import ensurepip, venv'
    needs python3-dev python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
    ;;
bench)
    needs python3 have python3
    needs python3-venv python3 -c 'import ensurepip, venv'
    # Threading runtimes to compare with: LLVM's OpenMP, for programs of gcc and of clang, and oneTBB.
    needs g++ have g++
    needs libomp-19-dev has_library libomp.so.5
    needs libtbb-dev has_library libtbb.so.12
    wants clang-19 have clang-19
    ;;
check) needs git have git ;;
cross)
    needs gcc-aarch64-linux-gnu have aarch64-linux-gnu-gcc
    needs libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/lib/libc.so.6
    needs qemu-user have qemu-aarch64
    ;;
fuzz) needs g++ have c++ ;;
# Reports name functions and lines.
sanitize) needs llvm have llvm-symbolizer ;;
esac
case $purpose in
check | test)
    if have rustup >/dev/null; then rustup component add rustfmt clippy >/dev/null 2>&1 || true; fi
    ;;
cross)
    rust target aarch64-unknown-linux-gnu "$(rustc --version | cut -d ' ' -f 2)"
    ;;
miri | sanitize)
    nightly=${NIGHTLY:-nightly}
    toolchain "$nightly"
    rust component rust-src "$nightly"
    if [ "$purpose" = miri ]; then rust component miri "$nightly"; fi
    ;;
esac

if [ -n "$packages" ] && { [ "$(id -u)" -ne 0 ] || ! have apt-get >/dev/null; }; then
    echo "missing for 'make $purpose': install $missing (Debian, Ubuntu: apt-get install$packages)" >&2
    exit 1
fi
[ -n "$packages$useful" ] || exit 0
export DEBIAN_FRONTEND=noninteractive
# One at a time, where several purposes are set up side by side: apt-get fails while another one runs.
packages() { flock -o xtask/setup.sh apt-get "$@"; }
if [ -n "$packages" ]; then
    echo "installing:$packages"
    packages update -q >/dev/null
    # shellcheck disable=SC2086 # a list of words
    packages install -q -y --no-install-recommends $packages >/dev/null
fi
[ -n "$useful" ] || exit 0
echo "installing, if it can be had:$useful"
packages update -q >/dev/null 2>&1 || true
for package in $useful; do
    if ! packages install -q -y --no-install-recommends "$package" >/dev/null 2>&1; then
        echo "note: there is no package $package here: tests leave out what needs it" >&2
    fi
done

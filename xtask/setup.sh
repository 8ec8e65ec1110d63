#!/bin/sh
# Installs what a purpose needs on Debian and Ubuntu when run as root; otherwise names in one line what is missing.
# Usage: setup.sh demo|test|bench|check
set -eu

purpose=${1:-test}
packages=
missing=

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

have() { command -v "$1"; }
# A library that programs find when they run.
has_library() { ldconfig -p | grep -qF "$1"; }
# A C compiler with the C library's headers.
compiles() { echo '#include <stdio.h>' | "$1" -x "$2" -E -; }

needs gcc have cc
needs libc6-dev compiles cc c
case $purpose in
test) needs gfortran have gfortran ;;
*) wants gfortran have gfortran ;;
esac
case $purpose in
test)
    needs g++ have c++
    needs cmake have cmake
    needs pkg-config have pkg-config
    needs valgrind have valgrind
    needs libopenblas-dev has_library libopenblas.so.0
    needs libtbb-dev has_library libtbb.so.12
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
esac
case $purpose in
check | test)
    if have rustup >/dev/null; then rustup component add rustfmt clippy >/dev/null 2>&1 || true; fi
    ;;
esac

[ -n "$packages" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! have apt-get >/dev/null; then
    echo "missing for 'make $purpose': install $missing (Debian, Ubuntu: apt-get install$packages)" >&2
    exit 1
fi
echo "installing:$packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# shellcheck disable=SC2086 # a list of words
apt-get install -q -y --no-install-recommends $packages >/dev/null

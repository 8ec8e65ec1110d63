#!/bin/sh
# Builds Margay and makes it known to the following steps of a GitHub job: PATH, MPI_HOME, PKG_CONFIG_PATH, MANPATH.
# The runner sets GITHUB_ENV, GITHUB_OUTPUT, GITHUB_PATH and RUNNER_TEMP; action.yml sets ACTION_PREFIX and ACTION_SOURCE.
set -eu

source=${ACTION_SOURCE:-$(cd -P -- "$(dirname -- "$0")/../.." && pwd)}
prefix=${ACTION_PREFIX:-$RUNNER_TEMP/margay}
if [ ! -e "$source/Makefile" ]; then
    echo "the action cannot build Margay: $source has no Makefile; say in 'source' where its sources are" >&2
    exit 1
fi
# As root, make installs what it needs of the system; other users of GitHub's runners may become root.
if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null; then
    sudo apt-get update -q
    sudo apt-get install -q -y --no-install-recommends gcc gfortran libc6-dev make pkg-config
fi
make -C "$source" install "PREFIX=$prefix"
echo "$prefix/bin" >>"$GITHUB_PATH"
{
    echo "MPI_HOME=$prefix"
    echo "PKG_CONFIG_PATH=$prefix/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
    # The empty part stands for the system's own pages.
    echo "MANPATH=$prefix/share/man:${MANPATH:-}"
} >>"$GITHUB_ENV"
echo "prefix=$prefix" >>"$GITHUB_OUTPUT"

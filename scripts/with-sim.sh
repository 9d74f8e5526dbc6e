#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs a command on the simulated CUDA: puts the folders of the simulated libcuda.so.1 and libcudart.so.13 before the
# library path.
set -eu

usage() {
    cat <<'EOF'
Usage: with-sim.sh [--build DIR] COMMAND [ARGUMENT...]

Runs COMMAND on the simulated CUDA (libcuda.so.1 and libcudart.so.13), so that it needs no GPU. The exit status is the
command's; 2 for a wrong use, or where the simulated CUDA has not been built.

  --build DIR   the build folder; default: $POOLCUDA_BUILD, else build/ at the top of the source tree, else the
                installed place
  --help        this text

The simulation is set by SIM_* variables: with-sim.sh env SIM_DEVICES=2 COMMAND.
SIM_HELP=1 with-sim.sh lists them; with a COMMAND, on stderr before it runs.
EOF
}

fail() {
    printf 'with-sim.sh: %s\n' "$1" >&2
    exit 2
}

here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd)
build=${POOLCUDA_BUILD:-}
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage; exit 0 ;;
    --build)
        [ $# -ge 2 ] || fail "--build needs a folder; see --help"
        build=$2
        shift 2 ;;
    --build=*)
        build=${1#--build=}
        shift ;;
    --)
        shift
        break ;;
    -*) fail "unknown option $1; see --help" ;;
    *) break ;;
    esac
done
help=
if [ "${SIM_HELP:-}" = 1 ]; then
    help=1
    unset SIM_HELP # each process of the command would list them again
fi
[ $# -gt 0 ] || [ -n "$help" ] || fail "no command given; see --help"

# Prints the library path made of the given folders if they hold both libraries.
path_of() {
    if [ -e "$1/libcuda.so.1" ] && [ -e "$2/libcudart.so.13" ]; then
        one=$(CDPATH='' cd -- "$1" && pwd)
        other=$(CDPATH='' cd -- "$2" && pwd)
        if [ "$one" = "$other" ]; then printf '%s' "$one"; else printf '%s:%s' "$one" "$other"; fi
    fi
}

path=
if [ -n "$build" ]; then
    path=$(path_of "$build/src/sim/driver" "$build/src/sim/runtime")
    [ -n "$path" ] || fail "no simulated CUDA in $build: build it with 'meson setup' and 'ninja' (option sim), or name another folder with --build or POOLCUDA_BUILD"
else
    path=$(path_of "$here/../build/src/sim/driver" "$here/../build/src/sim/runtime")
    for installed in "$here"/../lib/poolcuda/sim "$here"/../lib/*/poolcuda/sim "$here"/../lib64/poolcuda/sim; do
        [ -n "$path" ] || path=$(path_of "$installed" "$installed")
    done
    [ -n "$path" ] || fail "the simulated CUDA is neither built in $(dirname -- "$here")/build nor installed: run scripts/test.sh or meson, or name the build folder with --build or POOLCUDA_BUILD"
fi

if [ -n "$help" ]; then
    # It lists them when it is loaded, whether COMMAND itself will load it or not.
    listed=$(env -i LD_LIBRARY_PATH="$path" LD_PRELOAD=libcuda.so.1 SIM_HELP=1 true 2>&1) ||
        fail "the simulated CUDA cannot be loaded: $listed"
    [ $# -gt 0 ] || { printf '%s\n' "$listed"; exit 0; }
    printf '%s\n' "$listed" >&2
fi

LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$@"

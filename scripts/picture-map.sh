#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Makes docs/map.svg, the README's picture of the block map, from a program at work; see usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/picture-map.sh [--build DIR] [FILE]

Plays the allocations of a recorded training run on the simulated CUDA under libpoolcuda.so, stops the program where its
memory is in many states, and lets poolstat draw the block map into FILE (default: docs/map.svg of the tree).

  --build DIR   a build folder that is built; default: build/, which is built first
  --help        this text

Exit status: 0; 1 when no picture could be made; 2 wrong usage.
END
}
usage_error() {
    printf 'picture-map.sh: %s\n' "$*" >&2
    usage >&2
    exit 2
}

file=$tree/docs/map.svg
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage && exit ;;
    --build)
        [ $# -ge 2 ] || usage_error "--build needs a folder"
        build=$(readlink -f "$2") && shift
        ;;
    -*) usage_error "there is no option $1" ;;
    *) file=$1 ;;
    esac
    shift
done
if [ -z "$build" ]; then
    require
    prepare build --buildtype=debugoptimized
fi
for program in bench/replay src/poolstat/poolstat src/libpoolcuda.so src/sim/driver/libcuda.so.1; do
    [ -e "$build/$program" ] || die "$build has no $program: build it first"
done
mkdir -p "$(dirname "$file")"

pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true' EXIT

# Much of each state that this way of freeing has, and memory of a fixed size.
LD_LIBRARY_PATH=$build/src:$build/src/sim/driver:$build/src/sim/runtime LD_PRELOAD=libpoolcuda.so POOL_FREE=event \
    POOL_FIXED="8MiB*4" "$build/bench/replay" --threads 2 --scale 0.4 --repeat 100000 \
    "$tree/tests/data/train_resnet50.csv.xz" >/dev/null 2>&1 &
pid=$!

# As it stands while the program does not go on: is it worth a picture?
is_good() {
    local text state
    text=$("$build/src/poolstat/poolstat" map "$pid" 2>/dev/null) || return 1
    case $text in
    *'without a row'* | *approximate* | *'changed since'*) return 1 ;;
    esac
    for state in LLLLLLLL IIIIIIII WWWW FFFF; do
        case $text in
        *"$state"*) ;;
        *) return 1 ;;
        esac
    done
}

for ((try = 0; try < 300; try++)); do
    sleep 0.1
    kill -STOP "$pid" 2>/dev/null || die "the program has ended before its memory was worth a picture"
    if is_good; then
        "$build/src/poolstat/poolstat" map --svg "$file" "$pid" || die "poolstat could not draw it"
        say "$file"
        exit
    fi
    kill -CONT "$pid"
done
die "no moment in half a minute was worth a picture"

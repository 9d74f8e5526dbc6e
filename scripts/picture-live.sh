#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Makes docs/live.svg and docs/live-process.svg, the README's pictures of the live view, from programs at work; see
# usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/picture-live.sh [--build DIR] [FOLDER]

Plays the allocations of recorded runs on the simulated CUDA under libpoolcuda.so, in several programs at once, shows
them in poolstat's live view in a terminal (tmux), and draws its screens into FOLDER (default: docs/ of the tree):
live.svg, the processes, and live-process.svg, one of them.

  --build DIR   a build folder that is built; default: build/, which is built first
  --help        this text

Exit status: 0; 1 when no picture could be made; 2 wrong usage.
END
}
usage_error() {
    printf 'picture-live.sh: %s\n' "$*" >&2
    usage >&2
    exit 2
}

WIDTH=110 HEIGHT=12 TALL=46
HISTORY=${HISTORY:-45} # seconds that the programs run before the picture: one column each

folder=$tree/docs
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage && exit ;;
    --build)
        [ $# -ge 2 ] || usage_error "--build needs a folder"
        build=$(readlink -f "$2") && shift
        ;;
    -*) usage_error "there is no option $1" ;;
    *) folder=$1 ;;
    esac
    shift
done
if [ -z "$build" ]; then
    require tmux
    prepare build --buildtype=debugoptimized
fi
command -v tmux >/dev/null || die "tmux is missing"
for program in bench/replay src/poolstat/poolstat src/libpoolcuda.so src/sim/driver/libcuda.so.1; do
    [ -e "$build/$program" ] || die "$build has no $program: build it first"
done
mkdir -p "$folder"

scene=$(mktemp -d)
pids=()
finish() {
    local pid
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true # and say nothing about it
    done
    tmux -S "$scene/tmux" kill-server 2>/dev/null || true
    rm -rf "$scene"
}
trap finish EXIT

# start NAME TRACE [VARIABLE=VALUE…] -- [OPTION…]: a program of this name that plays the trace for ever.
start() {
    local name=$1 trace=$tree/tests/data/$2.csv.xz settings=()
    shift 2
    while [ "$1" != -- ]; do settings+=("$1") && shift; done
    shift
    ln "$build/bench/replay" "$scene/$name" 2>/dev/null || cp "$build/bench/replay" "$scene/$name"
    env LD_LIBRARY_PATH="$build/src:$build/src/sim/driver:$build/src/sim/runtime" LD_PRELOAD=libpoolcuda.so \
        SIM_DEVICES=1 "${settings[@]}" "$scene/$name" --repeat 1000000 "$@" "$trace" >/dev/null 2>&1 &
    pids+=($!)
}

screen() { tmux -S "$scene/tmux" "$@"; }

# shot FILE TITLE
shot() {
    screen capture-pane -e -p >"$scene/screen"
    python3 -B "$tree/scripts/pane_svg.py" "$2" <"$scene/screen" >"$scene/picture.svg" || die "the screen cannot be drawn"
    mv "$scene/picture.svg" "$folder/$1"
    chmod 644 "$folder/$1"
    say "$folder/$1"
}

export LC_ALL=C.UTF-8 SHELL=/bin/sh TERM=xterm-256color
start train_resnet50 train_resnet50 POOL_FREE=event -- --scale 2 --kernel-us 1500
start train_transformer train_transformer -- --scale 2 --kernel-us 3000 --streams 2 --async
start serve_transformer serve_transformer POOL_LIMIT_MB=2048 -- --kernel-us 800

# The pid: only these programs, whatever else runs on the pool.
screen -f /dev/null new-session -d -x "$WIDTH" -y "$HEIGHT" \
    "env -u NO_COLOR '$build/src/poolstat/poolstat' live -p $(IFS=, && printf '%s' "${pids[*]}"); sleep 5"
screen set -g status off
sleep "$HISTORY"
for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null || die "a program has ended before there was a picture"; done
shot live.svg "poolstat's live view: the processes that run on the pool"
screen send-keys Enter
screen resize-window -x "$WIDTH" -y "$TALL"
sleep 2
shot live-process.svg "poolstat's live view: one process"

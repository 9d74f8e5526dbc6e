#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Fetches a peer, builds, and measures the pool beside it; see usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/bench-peers.sh [OPTION…]

Measures the pool beside RMM's: allocation and free on one stream, with 1,000 and 10,000 live blocks, in one process and
by turns, over the simulated CUDA without latencies. The first run fetches RMM from the Python package registry with pip
and unpacks it in the build folder; it also installs what the build lacks. It says of each bound whether it holds. A bound
that is missed is said, and is no failure: the exit status is 0 unless something could not be measured.

  --repetitions N   medians of N repetitions (default 15)
  --json            one JSON document
  --build-dir DIR   build in DIR instead of build-peers at the top of the tree
  --help            this text

The compilers are $CC, or cc, and $CXX, or c++ (C++17).
END
}

folder=build-peers form=text repetitions=15
while [ $# -gt 0 ]; do
    case $1 in
    --repetitions=* | --build-dir=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --json) form=json ;;
    --repetitions | --build-dir)
        if [ $# -lt 2 ] || [ -z "$2" ]; then
            printf 'bench-peers.sh: %s needs a value\n' "$1" >&2
            exit 2
        fi
        if [ "$1" = --build-dir ]; then
            folder=$(realpath -m -- "$2")
        elif [[ $2 =~ ^[1-9][0-9]{0,2}$ ]]; then
            repetitions=$2
        else
            printf 'bench-peers.sh: --repetitions is "%s": expected a whole number from 1 to 999\n' "$2" >&2
            exit 2
        fi
        shift
        ;;
    --help | -h) usage && exit ;;
    *)
        printf 'bench-peers.sh: unknown option: %s\n' "$1" >&2
        usage >&2
        exit 2
        ;;
    esac
    shift
done

require python3-pip
printf 'int main() { return 0; }' | ${CXX:-c++} -std=c++17 -x c++ -o /dev/null - 2>/dev/null ||
    die "no C++ compiler that knows C++17 (${CXX:-c++}): install g++, or set CXX"
[[ $folder == /* ]] || folder=$(build_base "$folder")
mkdir -p "$folder" || die "cannot make the build folder $folder"
# A name that setting up the build folder again leaves alone.
python3 -B "$tree/scripts/bench-peers.py" fetch "$folder/.poolcuda-rmm"
prepare "$folder" --buildtype=debugoptimized -Dtests=false -Dpeers="$folder/.poolcuda-rmm" >&2
exec python3 -B "$tree/scripts/bench-peers.py" measure "$build" "$form" "$repetitions"

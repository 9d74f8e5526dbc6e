#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds, and counts the instructions of a pair of calls; see usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/instructions.sh [OPTION…]

Builds (and installs what the build lacks, and valgrind) and counts the instructions that an allocation and its free
cost on a hit, over the simulated CUDA: by cudaMallocAsync and cudaFreeAsync on one stream (async), cudaMalloc and
cudaFree (sync), the same with POOL_FREE=event (event), and malloc and free of glibc under the same load. They are told
apart by whose they are: the pool's, the simulated CUDA's, the C library's, the measuring loop's. Unlike nanoseconds they
are the same in every run, whatever else the machine does.

  --live N[,N…]     with so many live blocks: multiples of 10 (default 100,1000,10000; about a minute)
  --json            one JSON document
  --record          keep them in bench/instructions.json: a test fails when those of the pool and of what it
                    calls of the C library grow by over 10 % from there
  --build-dir DIR   build in DIR instead of build at the top of the tree
  --help            this text

The compiler is $CC, or cc.
END
}

folder=build form=text live=
while [ $# -gt 0 ]; do
    case $1 in
    --live=* | --build-dir=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --json) form=json ;;
    --record) form=record ;;
    --live | --build-dir)
        if [ $# -lt 2 ] || [ -z "$2" ]; then
            printf 'instructions.sh: %s needs a value\n' "$1" >&2
            exit 2
        fi
        if [ "$1" = --live ]; then live=$2; else folder=$(realpath -m -- "$2"); fi
        shift
        ;;
    --help | -h) usage && exit ;;
    *)
        printf 'instructions.sh: unknown option: %s\n' "$1" >&2
        usage >&2
        exit 2
        ;;
    esac
    shift
done
if [ -n "$live" ] && ! [[ $live =~ ^[1-9][0-9]{0,5}0(,[1-9][0-9]{0,5}0){0,7}$ ]]; then
    printf 'instructions.sh: --live is "%s": expected multiples of 10, a comma between them\n' "$live" >&2
    exit 2
fi
if [ -n "$live" ] && [ "$form" = record ]; then
    printf 'instructions.sh: --record goes not with --live: what is kept is complete\n' >&2
    exit 2
fi

require valgrind
prepare "$folder" --buildtype=debugoptimized >&2
exec python3 -B "$tree/scripts/instructions.py" "$build" "$form" "${live:-100,1000,10000}"

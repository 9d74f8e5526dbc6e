#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds, and measures the pool on the simulated CUDA without latencies; see usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/bench.sh [OPTION…]

Builds (and installs what the build lacks) and measures, in one run over the simulated CUDA without latencies: what a
cudaMalloc/cudaFree pair costs on a hit, next to malloc/free of glibc under the same load, and the host memory of the
pool; then says of each bound whether it holds. A bound that is missed is said, and is no failure: the exit status is 0
unless something could not be measured.

  --repetitions N   medians of N repetitions (default 15)
  --json            one JSON document
  --build-dir DIR   build in DIR instead of build at the top of the tree
  --help            this text

The compiler is $CC, or cc.
END
}

folder=build arguments=()
while [ $# -gt 0 ]; do
    case $1 in
    --repetitions=* | --build-dir=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --json) arguments+=(--json) ;;
    --repetitions | --build-dir)
        if [ $# -lt 2 ] || [ -z "$2" ]; then
            printf 'bench.sh: %s needs a value\n' "$1" >&2
            exit 2
        fi
        if [ "$1" = --build-dir ]; then folder=$(realpath -m -- "$2"); else arguments+=(--repetitions "$2"); fi
        shift
        ;;
    --help | -h) usage && exit ;;
    *)
        printf 'bench.sh: unknown option: %s\n' "$1" >&2
        usage >&2
        exit 2
        ;;
    esac
    shift
done

require
prepare "$folder" --buildtype=debugoptimized >&2

# Nothing of the user's own settings but the measurement's: a large device, since ten thousand blocks are live at once.
# Its memory is never touched, so it costs none of the host's.
for name in $(compgen -e); do
    case $name in SIM_* | POOL_*) unset "$name" ;; esac
done
# The library is named without its folder: LD_PRELOAD could not hold a path with a space.
exec env SIM_MEMORY_MB=131072 \
    LD_LIBRARY_PATH="$build/src:$build/src/sim/driver:$build/src/sim/runtime${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    LD_PRELOAD="libpoolcuda.so${LD_PRELOAD:+:$LD_PRELOAD}" \
    "$build/bench/pair" "${arguments[@]}" "$tree"/tests/data/*.csv.xz

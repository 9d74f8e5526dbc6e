#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Shows what the pool does: builds everything, plays a recorded training run natively and then pooled, on one stream and
# on four, and prints all with what poolstat saw from outside; see usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/demo.sh [OPTION…]

Builds everything (and installs what the build lacks), plays the allocations of a recorded training run through an
ordinary CUDA program, first natively and then under libpoolcuda.so, and prints time, driver allocations, peak reserved
memory and hit rate of both, and what poolstat showed meanwhile; then the same over four streams, in each mode of the
pool. It runs on the GPU where there is one, else on the simulated CUDA, with latencies that it states.

  --trace FILE     play this trace (CSV, plain or xz) instead of tests/data/train_resnet50.csv.xz
  --gpu, --sim     on the GPU, or on the simulated CUDA, whatever there is
  --help           this text

Exit status: 0; 1 when a pooled run failed, overwrote a live block, or made less than 30 times fewer driver allocations
than the native one; 2 wrong usage.
END
}
usage_error() {
    printf 'demo.sh: %s\n' "$*" >&2
    usage >&2
    exit 2
}

trace=$tree/tests/data/train_resnet50.csv.xz device=auto
while [ $# -gt 0 ]; do
    case $1 in
    --trace=*) set -- --trace "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --trace)
        if [ $# -lt 2 ] || [ -z "$2" ]; then usage_error "--trace needs a file"; fi
        trace=$2 && shift
        ;;
    --gpu | --sim) device=${1#--} ;;
    --help | -h) usage && exit ;;
    *) usage_error "unknown option: $1" ;;
    esac
    shift
done
[ -r "$trace" ] || usage_error "cannot read the trace $trace"

require
prepare build --buildtype=debugoptimized
exec python3 -B "$tree/scripts/demo.py" "$build" "$trace" "$device"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Shows on an NVIDIA GPU that what holds over the simulated CUDA holds on the real driver, and what is gained; see usage()
# below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/gpu-check.sh [OPTION…]

Builds what is needed (nothing is installed; what scripts/bundle-deps.sh has gathered is used), and checks the pool on this
machine's GPU in under five minutes: part after part, each within a time limit of its own, and each reports whatever
becomes of the others. What a part lacks here (a GPU, nvcc, a Python package) is said, and the part skipped. No setting of
the device is changed.

  identity   every hooked function: cuGetProcAddress and dlsym give the same address
  doors      one program by the shared runtime, the static one, the driver, dlopen: equal counts, nothing goes around
  facts      every question of tests/driver-facts.md: assumed, found
  latency    allocation and free, native and pooled, 1 KiB to 1 GiB, on an idle device and behind a kernel
  thrust     sort, scan and reduce in a loop, native and pooled
  races      random programs whose kernels stamp and check memory, in both modes of POOL_FREE
  graphs     captures in each mode with pooled memory, replayed
  ipc        two processes share pooled memory, with and without an offset
  pytorch    a transformer and a convolutional net: own caching, none, none under the pool
  cupy, jax, numba
             a small computation each without a pool of its own, native and pooled
  recording  a POOL_TRACE of the PyTorch run
  long       a minute of mixed work at 90 % of the memory, with pressure

  --only PART      only this one (may be given several times); with little time at hand: --only identity --only doors
                   --only facts tell most
  --limit SECONDS  no part gets longer than this
  --out DIR        where report.md, report.json and the logs go; default: build-gpu/report
  --sim            on the simulated CUDA, as far as that goes
  --build-dir DIR  use what has been built in DIR, and build nothing
  --help           this text

Exit status: 0; 1 when a part failed, or ran out of time; 2 wrong usage; 3 when no part could run.
END
}
usage_error() {
    printf 'gpu-check.sh: %s\n' "$*" >&2
    usage >&2
    exit 2
}

out='' built='' simulated='' only=() options=()
while [ $# -gt 0 ]; do
    case $1 in
    --only=* | --limit=* | --out=* | --build-dir=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --only | --limit | --out | --build-dir) [ $# -ge 2 ] && [ -n "$2" ] || usage_error "$1 needs a value" ;;
    esac
    case $1 in
    --only) only+=("$2") && shift ;;
    --limit)
        [[ $2 =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage_error "--limit takes seconds, not: $2"
        options+=(--limit "$2") && shift
        ;;
    --out) out=$(realpath -m -- "$2") && shift ;;
    --build-dir) built=$(realpath -m -- "$2") && shift ;;
    --sim) simulated=1 options+=(--sim) ;;
    --help | -h) usage && exit ;;
    *) usage_error "unknown option: $1" ;;
    esac
    shift
done

command -v python3 >/dev/null || die "python3 is missing"
parts=$(python3 -B "$tree/scripts/gpu_check/main.py" --list)
for part in "${only[@]}"; do
    grep -qxF -- "$part" <<<"$parts" || usage_error "no such part: $part"
    options+=(--only "$part")
done
# meson and ninja may stand beside the interpreter only.
PATH=$PATH:$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))')
export PATH

if [ -n "$built" ]; then
    [ -e "$built/src/libpoolcuda.so" ] || die "nothing is built in $built"
    build=$built
elif [ -z "$simulated" ] && ! python3 -B "$tree/tests/gpu/device.py" >/dev/null 2>&1; then
    build=$(build_base build-gpu)
    say "Nothing is built, since no GPU can be used here; with --sim there is something to check all the same"
else
    command -v "$(compiler)" >/dev/null || export CC=gcc
    use_bundle
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -eq 0 ] || die "missing here: ${missing[*]}. Install them, or run scripts/bundle-deps.sh on a machine of this
kind with a network, and bring the tree here with its folder build-deps."
    begun=$SECONDS
    say "Building in $(build_base build-gpu)"
    prepare build-gpu --buildtype=release -- src/libpoolcuda.so src/poolstat/poolstat bench/trace-csv \
        src/sim/driver/libcuda.so.1 src/sim/runtime/libcudart.so.13 src/sim/runtime/libcudart_static.a \
        tests/random/random_programs tests/random/random_programs_cuda tests/random/libpoolcuda_checked.so
    say "Built in $((SECONDS - begun)) s"
fi
[ -n "$out" ] || out=$build/report
mkdir -p "$out" || die "cannot make $out"
exec python3 -B "$tree/scripts/gpu_check/main.py" "$build" "$out" --spent "$SECONDS" "${options[@]}"

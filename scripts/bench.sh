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

Builds (and installs what the build lacks) and measures, over the simulated CUDA without latencies, in under three
minutes on two cores:
  - what an allocation and its free cost on a hit, stream-ordered, plain, and with POOL_FREE=event, beside malloc and
    free of glibc under the same load in the same process, as time and (with valgrind) as instructions;
  - how that grows with the blocks that are live, and what threads get done together;
  - the host memory of the pool;
  - how little device memory the bundled traces fit on;
  - what it costs to record (POOL_TRACE);
  - with the traces over 8 streams, what memory it costs that frees do not wait, and how many fences there are.
It says of each bound whether it holds. A bound that is missed is said, and is no failure: the exit status is 0 unless
something could not be measured that should have been.

  --rounds N        medians of N processes for each load of pairs, half as many of the largest (default 5)
  --runs N          medians of N processes for each trace over streams (default 2)
  --quick           one process for each load, small loads and one trace only: to see that it works
  --json            one JSON document
  --build-dir DIR   build in DIR instead of build at the top of the tree
  --help            this text

The compiler is $CC, or cc.
END
}

folder=build form=text rounds=5 runs=2 extent=all
while [ $# -gt 0 ]; do
    case $1 in
    --rounds=* | --runs=* | --build-dir=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --json) form=json ;;
    --quick) extent=quick ;;
    --rounds | --runs | --build-dir)
        if [ $# -lt 2 ] || [ -z "$2" ]; then
            printf 'bench.sh: %s needs a value\n' "$1" >&2
            exit 2
        fi
        case $1 in
        --build-dir) folder=$(realpath -m -- "$2") ;;
        *)
            if ! [[ $2 =~ ^[1-9][0-9]{0,2}$ ]]; then
                printf 'bench.sh: %s is "%s": expected a whole number from 1 to 999\n' "$1" "$2" >&2
                exit 2
            fi
            if [ "$1" = --runs ]; then runs=$2; else rounds=$2; fi
            ;;
        esac
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

if [ "$extent" = quick ]; then rounds=1 runs=1; fi

require
prepare "$folder" --buildtype=debugoptimized >&2

# Nothing of the user's own settings but the measurement's.
for name in $(compgen -e); do
    case $name in SIM_* | POOL_*) unset "$name" ;; esac
done
exec python3 -B "$tree/scripts/bench.py" "$build" "$form" "$rounds" "$runs" "$extent"

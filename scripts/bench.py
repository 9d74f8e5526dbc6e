#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The measurements behind scripts/bench.sh: the pair of calls beside glibc's, and the bundled traces over streams."""
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
TRACES = sorted((TREE / "tests" / "data").glob("*.csv.xz"))
STREAMS, REPEATS = 8, 2
# Way: the setting of POOL_FREE, the options of replay.
WAYS = {"sync": ("sync", []), "event": ("event", []), "async": ("sync", ["--async"])}
FREES_A_FENCE, BYTES_A_FENCE = 64, 256 << 20
MIB = 1024 * 1024


def program(build, name, arguments, free="sync"):
    environment = {**os.environ, "POOL_FREE": free, "SIM_MEMORY_MB": "131072"}
    folders = [build / "src", build / "src/sim/driver", build / "src/sim/runtime"]
    environment["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    # By its name alone: LD_PRELOAD could not hold a path with a space.
    environment["LD_PRELOAD"] = ":".join(filter(None, ["libpoolcuda.so", os.environ.get("LD_PRELOAD")]))
    done = subprocess.run([build / "bench" / name, *arguments], env=environment, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"bench.sh: {name} ended with status {done.returncode}")
    return done.stdout


def play(build, trace, way, runs):
    """What so many processes report of the trace, played this way."""
    free, options = WAYS[way]
    arguments = ["--json", "--streams", str(STREAMS), "--repeat", str(REPEATS), *options, trace]
    return [json.loads(program(build, "replay", arguments, free)) for _ in range(runs)]


def row(trace, way, reports):
    pools = [report["pool"] for report in reports]
    reserved = [pool["peak_reserved_bytes"] for pool in pools]

    def median(name):
        return statistics.median(pool[name] for pool in pools)

    return {
        "trace": trace.name, "way": way, "runs": len(reports),
        "kernel_us": reports[0]["options"]["kernel_us"],
        "peak_live_bytes": median("peak_live_bytes"),
        "peak_reserved_bytes": statistics.median(reserved), "peak_reserved_bytes_range": [min(reserved), max(reserved)],
        "crossed_streams": statistics.median(report["crossed_streams"] for report in reports),
        **{name: median(name) for name in ("frees", "misses", "waits", "fences", "miss_fences", "stream_marks",
                                           "peak_waiting_bytes", "peak_ordered_bytes")},
        "fences_of_most": max((pool["fences"] - pool["miss_fences"]) /
                              (pool["frees"] / FREES_A_FENCE + pool["freed_live_bytes"] / BYTES_A_FENCE) for pool in pools),
        "events_created": max(report["events_created"]["first"] for report in reports),
        "events_created_later": max(report["events_created"]["later"] for report in reports),
    }


def measure_streams(build, runs):
    rows = []
    for trace in TRACES:
        for way in WAYS:
            rows.append(row(trace, way, play(build, trace, way, runs)))
            sync = next(found for found in rows if found["trace"] == trace.name and found["way"] == "sync")
            rows[-1]["extra_bytes"] = rows[-1]["peak_reserved_bytes"] - sync["peak_reserved_bytes"]
    return rows


def bounds(rows):
    """name: (what it says, whether it holds, the worst)"""
    fences = max(row["fences_of_most"] for row in rows)
    return {
        "fences": (f"fences at most one per {FREES_A_FENCE} frees or {BYTES_A_FENCE // MIB} MiB that wait", fences <= 1,
                   f"{fences:.2f} of that"),
    }


def print_streams(rows):
    print(f"\nEach trace over {STREAMS} synthetic streams, {REPEATS} times, a kernel of {rows[0]['kernel_us']} us for each block; medians of"
          f" {rows[0]['runs']} runs. Peak reserved and, beside it,\nits lowest and highest; extra: more than with sync."
          " Fences by frees and bytes, and for misses; crossed: memory that\nwent from one stream to another; events:"
          " created in the first repetition, and later; the most of any run.\n")
    print(f"{'trace':<25} {'way':<6} {'MiB: live':>9} {'reserved':>8} {'':<11} {'extra':>6} {'misses':>6} {'waits':>6} {'fences':>12}"
          f" {'marks':>6} {'crossed':>8} {'events':>7}")
    for row in rows:
        low, high = row["peak_reserved_bytes_range"]
        fences = f"{row['fences'] - row['miss_fences']:.0f} + {row['miss_fences']:.0f}"
        created = f"{row['events_created']} + {row['events_created_later']}"
        print(f"{row['trace'].split('.')[0]:<25} {row['way']:<6} {row['peak_live_bytes'] / MIB:>9.0f}"
              f" {row['peak_reserved_bytes'] / MIB:>8.0f} {f'({low / MIB:.0f}-{high / MIB:.0f})':<11} {row['extra_bytes'] / MIB:>6.0f}"
              f" {row['misses']:>6.0f} {row['waits']:>6.0f} {fences:>12} {row['stream_marks']:>6.0f}"
              f" {row['crossed_streams']:>8.0f} {created:>7}")
    print()
    for text, holds, worst in bounds(rows).values():
        print(f"bound  {text}: {'holds' if holds else 'MISSED'} (worst {worst})")


def main():
    build, as_json, repetitions, runs = Path(sys.argv[1]), sys.argv[2] == "json", sys.argv[3], int(sys.argv[4])
    pair = program(build, "pair", ["--repetitions", repetitions, *(["--json"] if as_json else []), *TRACES])
    if not as_json:
        print(pair, end="", flush=True)
    rows = measure_streams(build, runs)
    if as_json:
        document = json.loads(pair)
        document["streams"] = rows
        for name, (_, holds, _) in bounds(rows).items():
            document["bounds"][name] = {"holds": holds}
        print(json.dumps(document, indent=2))
    else:
        print_streams(rows)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()

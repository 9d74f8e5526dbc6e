#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The measurements behind scripts/bench.sh, which says what they are. Each program of bench/ measures one thing in a
process of its own; here they are run in turns, and the medians taken. bench_report judges and prints.

Arguments: the build folder, text or json, the number of processes of each load of pairs, the number of those of each
trace over streams, and all or quick.
"""
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import bench_report
import instructions
from bench_report import BYTES_A_FENCE, FREES_A_FENCE, ORDERS

TREE = Path(__file__).resolve().parents[1]
TRACES = sorted((TREE / "tests" / "data").glob("*.csv.xz"))
SCHEMA = 3
LIVE, LARGE = (100, 1000, 10000), (100000,)
QUICK_LIVE = (100, 1000)
STREAMS, REPEATS = 8, 2
# Way of the traces over streams: the setting of POOL_FREE, the options of replay.
WAYS = {"sync": ("sync", []), "event": ("event", []), "async": ("sync", ["--async"])}
# Table of pairs: the way of pair, the setting of POOL_FREE, the number of streams.
TABLES = {"async": ("async", "sync", 1), "sync": ("sync", "sync", 1), "event1": ("event", "event", 1),
          "event8": ("event", "event", STREAMS)}


class Unavailable(Exception):
    """What cannot be measured here, and why."""


def note(text):
    """To somebody who waits."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def program(build, name, arguments, pooled=True, **settings):
    environment = {**os.environ, "SIM_MEMORY_MB": "131072", **settings}
    folders = [build / "src", build / "src/sim/driver", build / "src/sim/runtime"]
    environment["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    if pooled:
        # By its name alone: LD_PRELOAD could not hold a path with a space.
        environment["LD_PRELOAD"] = ":".join(filter(None, ["libpoolcuda.so", os.environ.get("LD_PRELOAD")]))
    done = subprocess.run([build / "bench" / name, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"bench.sh: {name} ended with status {done.returncode}")
    return json.loads(done.stdout)


def median(rows, name):
    return statistics.median(row[name] for row in rows)


# ---- pairs ----

def measure_pair(build, table, order, live):
    way, free, streams = TABLES[table]
    slices = 30 if live in LARGE else 100
    row = program(build, "pair", ["--way", way, "--order", order, "--live", live, "--streams", streams, "--slices", slices,
                                  *TRACES], POOL_FREE=free)
    if not row["pooled"]:
        sys.exit("bench.sh: the pool was not in force")
    row["net_ns"] = row["ns"] - (row["synchronise_ns"] or 0)
    row["ratio"] = row["net_ns"] / row["malloc_ns"]
    return row


def summary(rows):
    """Of what several processes measured of one load."""
    first, thousands = rows[0], sum(row["pairs"] for row in rows) / 1000
    ratios = [row["ratio"] for row in rows]
    result = {"ns": median(rows, "net_ns"), "malloc_ns": median(rows, "malloc_ns"), "ratio": statistics.median(ratios),
              "ratio_range": [min(ratios), max(ratios)], "instructions": None, "simulator_instructions": None,
              "malloc_instructions": None,
              "mean_ns": median(rows, "mean_ns"), "malloc_mean_ns": median(rows, "malloc_mean_ns"),
              "pairs": sum(row["pairs"] for row in rows), "processes": len(rows),
              **{name: sum(row[name] for row in rows) / thousands for name in ("misses", "fences", "miss_fences", "stream_marks")},
              "peak_reserved_bytes": median(rows, "peak_reserved_bytes"), "peak_live_bytes": median(rows, "peak_live_bytes")}
    for name in ("synchronise_ns", "current_context_ns"):
        result[name] = None if first[name] is None else median(rows, name)
    return result


def measure_pairs(build, rounds, rounds_of_large, live_counts):
    """Table: live blocks: order: what was measured. Rounds over all loads, so that a disturbance hits each of them once."""
    found = {(table, live, order): [] for table in TABLES for live in live_counts for order in ORDERS}
    for turn in range(rounds):
        for (table, live, order), rows in found.items():
            if live in LARGE and turn >= rounds_of_large:
                continue
            note(f"pairs, round {turn + 1} of {rounds}: {table}, {live} live, {order}")
            rows.append(measure_pair(build, table, order, live))
    tables = {table: {str(live): {order: summary(found[table, live, order]) for order in ORDERS} for live in live_counts}
              for table in TABLES}
    for name in ("event1", "event8"):
        for live, orders in tables[name].items():
            for order, pair in orders.items():
                pair["extra_reserved_bytes"] = pair["peak_reserved_bytes"] - tables["sync"][live][order]["peak_reserved_bytes"]
    return tables


def count_instructions(build, live_counts, pairs):
    """Into what was measured of pairs: what the pool causes, what of the simulator is in it, and what glibc's pair takes."""
    note("instructions")
    try:
        rows = instructions.measure(build, live_counts)
    except instructions.CannotCount as reason:
        raise Unavailable(str(reason)) from None
    counted = {(row["way"], str(row["live"]), row["order"]): row for row in rows}
    for way, table in pairs.items():
        for live, orders in table.items():
            for order, pair in orders.items():
                if (way, live, order) in counted:
                    pair["instructions"] = instructions.caused(counted[way, live, order])
                    pair["simulator_instructions"] = counted[way, live, order]["simulator"]
                    pair["malloc_instructions"] = counted["malloc", live, order]["libc"]


# ---- threads, host memory, capacity, recording ----

def thread_runs(build, calls, rounds):
    """(blocks that are live, a row for each number of threads)"""
    report = program(build, "threads", ["--calls", calls, "--threads", "1,2,8", "--live", 1000, "--rounds", rounds, *TRACES])
    one, rows = report["runs"][0]["pairs_per_second"], []
    for run in report["runs"]:
        times = [pairs / alone for pairs, alone in zip(run["pairs_per_second"], one)]
        rows.append({"threads": run["threads"], "pairs_per_second": statistics.median(run["pairs_per_second"]),
                     "times": statistics.median(times), "times_range": [min(times), max(times)],
                     "processors": statistics.median(run["processors"])})
    return report["live"], rows


def measure_threads(build, rounds):
    """And what the machine makes of glibc's malloc, which threads do not share."""
    note("threads")
    live, runs = thread_runs(build, "async", rounds)
    _, of_malloc = thread_runs(build, "malloc", rounds)
    return {"live": live, "cores": len(os.sched_getaffinity(0)),
            "runs": [{**run, "malloc_times": alike["times"]} for run, alike in zip(runs, of_malloc)]}


def measure_host(build, live_counts):
    note("host memory")
    held = {str(live): program(build, "host_memory", ["--live", live])["bytes_per_block"] for live in live_counts}
    most = max(live_counts)
    churned = {str(most): program(build, "host_memory", ["--live", most, *TRACES])["bytes_per_block"]}
    own = {pooled: program(build, "host_memory", ["--live", 10], pooled=pooled)["bytes_with_one"] for pooled in (True, False)}
    return {"held": held, "churned": churned, "fixed": own[True] - own[False]}


def measure_fit(build, traces):
    """`capacity` and `reserved`: trace: ratio and driver calls."""
    note("capacity")
    if not (build / "bench" / "capacity").exists():
        raise Unavailable("bench/capacity is not built")
    rows = program(build, "capacity", ["--json", *traces], pooled=False)
    capacity = {row["trace"]: {"ratio": row["capacity_ratio"], "ratio_3": row["capacity_ratio_3"],
                               "driver_allocs": row["driver_allocs_at_capacity"],
                               "driver_frees": row["driver_frees_at_capacity"]} for row in rows}
    reserved = {row["trace"]: {"ratio": row["reserved_ratio"], "driver_allocs": row["driver_allocs"],
                               "driver_frees": row["driver_frees"], "warm_driver_calls": row["warm_driver_calls"],
                               "stranded_bytes": row["stranded_bytes"]} for row in rows}
    return capacity, reserved


def measure_recording(build, rounds, live=100):
    """An async pair with and without POOL_TRACE, in turns. Means: what is written is written by whole blocks, which a
    median over slices would not see."""
    note("recording")
    found = {order: {"traced": [], "untraced": []} for order in ORDERS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.trace"
        for _ in range(rounds):
            for order, rows in found.items():
                arguments = ["--way", "async", "--order", order, "--live", live, *TRACES]
                rows["untraced"].append(program(build, "pair", arguments)["mean_ns"])
                traced = program(build, "pair", arguments, POOL_TRACE=str(path))
                if not path.exists() or path.stat().st_size < traced["pairs"]:
                    raise Unavailable("POOL_TRACE wrote nothing")
                rows["traced"].append(traced["mean_ns"])
                path.unlink()
    return {"live": live, "orders": {order: {
        "traced_ns": statistics.median(rows["traced"]), "untraced_ns": statistics.median(rows["untraced"]),
        "ratio": statistics.median(traced / untraced for traced, untraced in zip(rows["traced"], rows["untraced"]))}
        for order, rows in found.items()}}


# ---- the traces over streams ----

def play(build, trace, way, runs):
    """What so many processes report of the trace, played this way."""
    free, options = WAYS[way]
    arguments = ["--json", "--streams", STREAMS, "--repeat", REPEATS, *options, trace]
    return [program(build, "replay", arguments, POOL_FREE=free) for _ in range(runs)]


def row_of(trace, way, reports):
    pools = [report["pool"] for report in reports]
    reserved = [pool["peak_reserved_bytes"] for pool in pools]
    return {
        "trace": trace.name.split(".")[0], "way": way, "runs": len(reports), "kernel_us": reports[0]["options"]["kernel_us"],
        "peak_live_bytes": median(pools, "peak_live_bytes"),
        "peak_reserved_bytes": statistics.median(reserved), "peak_reserved_bytes_range": [min(reserved), max(reserved)],
        "crossed_streams": median(reports, "crossed_streams"),
        **{name: median(pools, name) for name in ("frees", "misses", "waits", "fences", "miss_fences", "stream_marks",
                                                  "peak_waiting_bytes", "peak_ordered_bytes")},
        "fences_of_most": max((pool["fences"] - pool["miss_fences"]) /
                              (pool["frees"] / FREES_A_FENCE + pool["freed_live_bytes"] / BYTES_A_FENCE) for pool in pools),
        "events_created": max(report["events_created"]["first"] for report in reports),
        "events_created_later": max(report["events_created"]["later"] for report in reports),
    }


def measure_streams(build, traces, runs):
    rows = []
    for trace in traces:
        reserved_by_sync = None
        for way in WAYS:
            note(f"{trace.name} over {STREAMS} streams: {way}")
            row = row_of(trace, way, play(build, trace, way, runs))
            if way == "sync":
                reserved_by_sync = row["peak_reserved_bytes"]
            rows.append({**row, "extra_bytes": row["peak_reserved_bytes"] - reserved_by_sync})
    return rows


# ---- all of it ----

def machine(build, rounds, rounds_of_large, quick):
    # Of the tree that the script is in, where that is a repository of its own.
    done = subprocess.run(["git", "-C", TREE, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {"text": program(build, "pair", ["--slices", 1, *TRACES])["machine"],
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "load": os.getloadavg()[0],
            "commit": done.stdout.strip() or None, "rounds": rounds, "rounds_of_large": rounds_of_large, "quick": quick}


def attempt(report, name, measure, nothing):
    """What `measure` makes, or `nothing` and the reason in the report."""
    try:
        return measure()
    except Unavailable as reason:
        report["reasons"][name] = str(reason)
        return nothing


def measure_all(build, rounds, runs, quick):
    live_counts = QUICK_LIVE if quick else (*LIVE, *LARGE)
    traces = [trace for trace in TRACES if not quick or trace.name.startswith("train_resnet50")]
    rounds_of_large = 0 if quick else max(1, rounds // 2)
    report = {"schema": SCHEMA, "reasons": {}, "machine": machine(build, rounds, rounds_of_large, quick)}
    tables = measure_pairs(build, rounds, rounds_of_large, live_counts)
    report["pair"] = {"async": tables["async"], "event": tables["event1"], "sync": tables["sync"]}
    if quick:
        report["reasons"]["instructions"] = "not counted with --quick"
    else:
        attempt(report, "instructions", lambda: count_instructions(build, LIVE, report["pair"]), None)
        report["reasons"].setdefault("instructions", "counted with one stream, and not with 100,000 live: valgrind has too little memory for them")
    report["growth"] = bench_report.growth(report["pair"])
    if report["growth"] is None:
        report["reasons"]["growth"] = "100,000 live blocks were not measured"
    report["threads"] = measure_threads(build, 1 if quick else 5)
    report["host_bytes_per_block"] = measure_host(build, (1000, 10000) if quick else (1000, 10000, 100000))
    report["trace_overhead"] = attempt(report, "trace_overhead", lambda: measure_recording(build, rounds), None)
    report["streams8"] = {"1": tables["event1"], "8": tables["event8"], "replay": measure_streams(build, traces, runs)}
    report["capacity"], report["reserved"] = attempt(report, "capacity", lambda: measure_fit(build, traces), (None, None))
    report["bounds"] = bench_report.bounds(report)
    note("")
    return report


def main():
    build, form, rounds, runs, quick = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "quick"
    report = measure_all(build, rounds, runs, quick)
    print(json.dumps(report, indent=2) if form == "json" else bench_report.text(report))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/pair, bench/threads and bench/host_memory on the simulated CUDA, with and without the pool: that they measure
what they say. Times are not judged.

In the environment: BENCH, the folder of the programs; SANITIZED, the sanitizers of the build as meson has them.
"""
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main, skip  # noqa: E402

TRACE = TREE / "tests" / "data" / "train_resnet50.csv.xz"
ORDERS, WAYS = ("LIFO", "FIFO", "random"), ("sync", "async", "event")
COUNTS = ("allocs", "misses", "fences", "miss_fences", "stream_marks", "waits", "peak_live_bytes", "peak_reserved_bytes")


def run(program, *arguments, pooled=False, free="sync"):
    environment = {**os.environ, "SIM_MEMORY_MB": "65536", "POOL_FREE": free}
    if pooled:
        environment["LD_PRELOAD"] = ":".join(filter(None, ["libpoolcuda.so", os.environ.get("LD_PRELOAD")]))
    done = subprocess.run([f"{os.environ['BENCH']}/{program}", *map(str, arguments)], env=environment, capture_output=True,
                          text=True, check=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


def measure(program, *arguments, **how):
    status, stdout, stderr = run(program, *arguments, **how)
    expect_equal((status, stderr), (0, ""), f"exit status and stderr of {program} {arguments}")
    return json.loads(stdout)


@functools.cache
def pair(way, order="LIFO", live=100, streams=1, pooled=True):
    found = measure("pair", "--way", way, "--order", order, "--live", live, "--streams", streams, "--slices", 4, TRACE,
                    pooled=pooled, free="event" if way == "event" else "sync")
    expect_equal([found[name] for name in ("way", "order", "live", "streams", "pooled")], [way, order, live, streams, pooled],
                 "what was played")
    if min(found["ns"], found["malloc_ns"], found["mean_ns"], found["malloc_mean_ns"]) <= 0:
        raise AssertionError(found)
    return found


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


@case
def without_the_pool_nothing_is_said_of_it():
    for way in WAYS:
        expect_equal([pair(way, pooled=False)[name] for name in COUNTS], [None] * len(COUNTS), f"counts, {way}")


@case
def on_the_pool_what_is_measured_are_hits():
    for way in WAYS:
        for order in ORDERS:
            found = pair(way, order)
            expect_equal((found["pairs"], found["allocs"]), (8000, 8000), str(found))
            # Where frees do not wait, what a busy machine does not get done in time costs memory instead.
            if found["misses"] > (0.01 if way == "event" else 0.001) * found["allocs"]:
                raise AssertionError(found)
            if not found["peak_live_bytes"] <= found["peak_reserved_bytes"]:
                raise AssertionError(found)


@case
def what_the_driver_is_asked_in_a_pair_is_measured_beside_it():
    expect_equal({way: [pair(way)[name] is not None for name in ("synchronise_ns", "current_context_ns")] for way in WAYS},
                 {"sync": [True, True], "async": [False, False], "event": [False, True]}, "known")


@case
def only_frees_that_do_not_wait_need_fences_and_one_stream_no_marks():
    for way in WAYS:
        found = pair(way, streams=8 if way == "event" else 1)
        expect_equal(found["stream_marks"], 0, f"marks, {way}")
        if way != "event":
            expect_equal((found["fences"], found["miss_fences"]), (0, 0), f"fences, {way}")
        elif not 0 < found["fences"] - found["miss_fences"] <= found["pairs"] / 64 + 1:
            raise AssertionError(found)
        if way == "sync":
            expect_equal(found["waits"], found["pairs"], "waits")


@case
def live_blocks_of_any_number_are_played():
    for live in (10, 70, 3000):
        found = pair("async", "FIFO", live)
        if found["allocs"] != found["pairs"] or found["pairs"] <= 4 * 1000:
            raise AssertionError(found)


@case
def host_memory_of_the_pool_is_within_its_bounds():
    if os.environ["SANITIZED"] not in ("none", "[]"):
        skip("a sanitizer's own memory would be counted")
    for arguments in (("--live", 10000), ("--live", 100000), ("--live", 100000, TRACE)):
        found = measure("host_memory", *arguments, pooled=True)
        expect_equal((found["live"], found["pooled"]), (arguments[1], True), "what was held")
        if not 0 < found["bytes_per_block"] <= 160:
            raise AssertionError((arguments, found))
    with_pool, without = (measure("host_memory", "--live", 10, pooled=pooled) for pooled in (True, False))
    expect_equal(without["pooled"], False, "without the pool")
    if not 0 < with_pool["bytes_with_one"] - without["bytes_with_one"] <= 2 << 20:
        raise AssertionError((with_pool, without))


@case
def each_number_of_threads_gets_pairs_done():
    for calls in ("async", "plain", "malloc"):
        found = measure("threads", "--calls", calls, "--live", 100, "--threads", "1,3", "--rounds", 2, "--milliseconds", 20,
                        TRACE, pooled=True)
        expect_equal((found["calls"], found["live"], [run["threads"] for run in found["runs"]]), (calls, 100, [1, 3]), "runs")
        for run_ in found["runs"]:
            expect_equal((len(run_["pairs_per_second"]), len(run_["processors"])), (2, 2), "rounds")
            if min(run_["pairs_per_second"]) <= 0 or min(run_["processors"]) <= 0:
                raise AssertionError(found)


@case
def wrong_usage_says_what_was_expected():
    for program, arguments, wanted, expected in (
            ("pair", [], 2, "Usage: pair"), ("pair", ["--nonsense", TRACE], 2, "Usage: pair"),
            ("pair", ["--slices", "0", TRACE], 2, 'pair: --slices is "0": expected a whole number from 1 to 100000'),
            ("pair", ["--live", "15", TRACE], 2, 'pair: --live is "15": expected a whole number from 10 to 1000000, multiples of 10'),
            ("pair", ["--way", "fast", TRACE], 2, 'pair: --way is "fast": expected sync, async or event'),
            ("pair", ["--order", "any", TRACE], 2, 'pair: --order is "any": expected LIFO, FIFO or random'),
            ("pair", ["/nonexistent.csv"], 1, "/nonexistent.csv: No such file"),
            ("threads", [], 2, "Usage: threads"),
            ("threads", ["--threads", "1,x", TRACE], 2,
             'threads: --threads is "1,x": expected whole numbers, a comma between them, at most 8 of them, from 1 to 64'),
            ("threads", ["--threads", "1,2,3,4,5,6,7,8,9", TRACE], 2, "at most 8 of them"),
            ("threads", ["--calls", "sync", TRACE], 2, 'threads: --calls is "sync": expected malloc, plain or async'),
            ("host_memory", ["--live", "many"], 2, 'host_memory: --live is "many": expected a whole number from 10 to 1000000')):
        status, stdout, stderr = run(program, *arguments)
        expect_equal((status, stdout, expected in stderr), (wanted, "", True), f"{program} {arguments}: {stderr}")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/pair on the simulated CUDA, with and without the pool: that it measures what it says. Times are not judged.

In the environment: PAIR, the program; SANITIZED, the sanitizers of the build as meson has them.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main, skip  # noqa: E402

TRACE = TREE / "tests" / "data" / "serve_transformer.csv.xz"
ORDERS, LIVE, WAYS = ("LIFO", "FIFO", "random"), (100, 1000, 10000), ("sync", "async", "event")


def run(*arguments, pooled=False):
    environment = {**os.environ, "SIM_MEMORY_MB": "65536"}
    if pooled:
        environment["LD_PRELOAD"] = ":".join(filter(None, ["libpoolcuda.so", os.environ.get("LD_PRELOAD")]))
    done = subprocess.run([os.environ["PAIR"], *map(str, arguments)], env=environment, capture_output=True, text=True,
                          check=False, timeout=250)
    return done.returncode, done.stdout, done.stderr


def measure(pooled):
    status, stdout, stderr = run("--json", "--repetitions", 1, TRACE, pooled=pooled)
    expect_equal((status, stderr), (0, ""), "exit status and stderr")
    return json.loads(stdout)


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


def expect_loads(report, ways):
    expect_equal([(pair["way"], pair["order"], pair["live"]) for pair in report["pairs"]],
                 [(way, order, live) for way in ways for live in LIVE for order in ORDERS], "loads")
    for pair in report["pairs"]:
        if min(pair["pair_ns"], pair["glibc_ns"]) <= 0 or (pair["synchronise_ns"] > 0) != (pair["way"] == "sync"):
            raise AssertionError(pair)


@case
def without_the_pool_no_bound_is_judged():
    report = measure(pooled=False)
    expect_equal(report["pooled"], False, "pooled")
    expect_equal([bound["holds"] for bound in report["bounds"].values()], [None] * 4, "bounds")
    expect_loads(report, WAYS[:2])
    for pair in report["pairs"]:
        expect_equal([pair[name] for name in ("allocs", "hits", "misses", "fences", "stream_marks")], [None] * 5, "counts")


@case
def on_the_pool_what_is_measured_are_hits():
    report = measure(pooled=True)
    expect_equal(report["pooled"], True, "pooled")
    expect_loads(report, WAYS)
    for pair in report["pairs"]:
        expect_equal((pair["allocs"], pair["hits"] + pair["misses"]), (pair["pairs"], pair["pairs"]), str(pair))
        # Where frees do not wait, what a busy machine does not get done in time costs memory instead.
        if pair["hits"] < (0.99 if pair["way"] == "event" else 0.999) * pair["allocs"]:
            raise AssertionError(pair)


@case
def only_frees_that_do_not_wait_need_fences_and_one_stream_no_marks():
    fences = 0
    for pair in measure(pooled=True)["pairs"]:
        if pair["way"] != "event":
            expect_equal([pair[name] for name in ("fences", "miss_fences", "stream_marks")], [0, 0, 0], str(pair))
        elif pair["stream_marks"] > 0 or pair["fences"] - pair["miss_fences"] > pair["pairs"] / 64 + 1:
            raise AssertionError(pair)
        fences += pair["fences"]
    if fences == 0:
        raise AssertionError("no fence in event mode")


@case
def host_memory_of_the_pool_is_within_its_bounds():
    if os.environ["SANITIZED"] not in ("none", "[]"):
        skip("a sanitizer's own memory would be counted")
    bounds = measure(pooled=True)["bounds"]
    expect_equal((bounds["bytes_per_block"]["holds"], bounds["bytes_fixed"]["holds"]), (True, True), str(bounds))


@case
def text_says_of_each_bound_whether_it_holds():
    status, stdout, stderr = run("--repetitions", 1, TRACE, pooled=True)
    expect_equal((status, stderr), (0, ""), "exit status and stderr")
    lines = [line for line in stdout.splitlines() if line.startswith("bound ")]
    expect_equal([("holds" in line) + ("MISSED" in line) + ("unknown" in line) for line in lines], [1, 1, 1, 1], stdout)
    if not stdout.startswith("machine  "):
        raise AssertionError(stdout)


@case
def wrong_usage_says_what_was_expected():
    for arguments, wanted, expected in (([], 2, "Usage: pair"), (["--nonsense", TRACE], 2, "Usage: pair"),
                                        (["--repetitions", "0", TRACE], 2, "expected a whole number from 1 to 1000"),
                                        (["/nonexistent.csv"], 1, "/nonexistent.csv: No such file")):
        status, stdout, stderr = run(*arguments)
        expect_equal((status, stdout, expected in stderr), (wanted, "", True), f"{arguments}: {stderr}")


main()

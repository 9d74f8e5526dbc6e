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
ORDERS, LIVE = ("LIFO", "FIFO", "random"), (100, 1000, 10000)


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


@case
def without_the_pool_no_bound_is_judged():
    report = measure(pooled=False)
    expect_equal(report["pooled"], False, "pooled")
    expect_equal([bound["holds"] for bound in report["bounds"].values()], [None] * 3, "bounds")
    expect_equal([(pair["order"], pair["live"]) for pair in report["pairs"]],
                 [(order, live) for live in LIVE for order in ORDERS], "loads")
    for pair in report["pairs"]:
        expect_equal(pair["hits"], None, "hits")
        if min(pair["pair_ns"], pair["synchronise_ns"], pair["glibc_ns"]) <= 0:
            raise AssertionError(pair)


@case
def on_the_pool_what_is_measured_are_hits():
    report = measure(pooled=True)
    expect_equal(report["pooled"], True, "pooled")
    for pair in report["pairs"]:
        if pair["allocs"] < 20000 or pair["hits"] < 0.999 * pair["allocs"]:
            raise AssertionError(pair)


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
    expect_equal([("holds" in line) + ("MISSED" in line) + ("unknown" in line) for line in lines], [1, 1, 1], stdout)
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

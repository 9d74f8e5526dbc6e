#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/bench.py, which makes one report of all measurements: that nothing is missing, and what cannot be measured is
said.

In the environment: BENCH_BUILD, the build folder.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main  # noqa: E402

ORDERS = ["LIFO", "FIFO", "random"]
KEYS = ["schema", "reasons", "machine", "pair", "growth", "threads", "host_bytes_per_block", "trace_overhead", "streams8", "capacity",
        "reserved", "bounds"]
BOUNDS = ["async", "async_100000", "event", "event_100000", "sync", "growth", "fences", "threads_2", "threads_8",
          "host_bytes_per_block", "host_bytes_fixed", "capacity", "trace_overhead"]
NUMBER = (int, float)
PAIR = {"ns": NUMBER, "malloc_ns": NUMBER, "ratio": NUMBER, "mean_ns": NUMBER, "malloc_mean_ns": NUMBER, "misses": NUMBER,
        "fences": NUMBER, "miss_fences": NUMBER, "stream_marks": NUMBER, "pairs": int, "processes": int,
        "peak_reserved_bytes": NUMBER, "peak_live_bytes": NUMBER, "ratio_range": list}


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


def expect_fields(found, fields, what):
    for name, kinds in fields.items():
        if not isinstance(found.get(name), kinds) or isinstance(found[name], bool):
            raise AssertionError(f"{what}: {name}: {found.get(name)!r}")


def expect_pairs(table, what):
    expect_equal(list(table), ["100", "1000"], f"live blocks, {what}")
    for live, orders in table.items():
        expect_equal(list(orders), ORDERS, f"orders, {what}, {live}")
        for order, pair in orders.items():
            expect_fields(pair, PAIR, f"{what}, {live}, {order}")
            expect_equal(pair["instructions"], None, "instructions of a quick run")
            if abs(pair["ratio"] * pair["malloc_ns"] - pair["ns"]) > 1e-6 * pair["ns"]:
                raise AssertionError(f"{what}, {live}, {order}: one process, and the ratio is none of its times: {pair}")


@case
def a_quick_report_has_every_key_and_a_reason_for_what_is_not_known():
    done = subprocess.run(["python3", "-B", TREE / "scripts" / "bench.py", os.environ["BENCH_BUILD"], "json", "1", "1", "quick"],
                          capture_output=True, text=True, check=False, timeout=150)
    expect_equal((done.returncode, done.stderr), (0, ""), "exit status and stderr")
    report = json.loads(done.stdout)
    expect_equal(sorted(report), sorted(KEYS), "keys")
    expect_fields(report["machine"], {"text": str, "date": str, "load": NUMBER}, "machine")
    expect_equal(list(report["pair"]), ["async", "event", "sync"], "ways")
    for way, table in report["pair"].items():
        expect_pairs(table, way)
    for streams in ("1", "8"):
        expect_pairs(report["streams8"][streams], f"{streams} streams")
        for live, orders in report["streams8"][streams].items():
            for order, pair in orders.items():
                expect_equal(pair["extra_reserved_bytes"],
                             pair["peak_reserved_bytes"] - report["pair"]["sync"][live][order]["peak_reserved_bytes"], "extra")
    expect_equal([(row["trace"], row["way"]) for row in report["streams8"]["replay"]],
                 [("train_resnet50", way) for way in ("sync", "event", "async")], "traces over streams")
    expect_equal([run["threads"] for run in report["threads"]["runs"]], [1, 2, 8], "threads")
    expect_fields(report["host_bytes_per_block"], {"fixed": int, "held": dict, "churned": dict}, "host memory")
    for name in ("capacity", "reserved"):
        expect_equal(list(report[name]), ["train_resnet50"], name)
        expect_fields(report[name]["train_resnet50"], {"ratio": NUMBER, "driver_allocs": int, "driver_frees": int}, name)
    for name in ("growth", "instructions"):
        if not report["reasons"][name]:
            raise AssertionError(report["reasons"])
    expect_equal(list(report["trace_overhead"]["orders"]), ORDERS, "recorded")
    for row in report["trace_overhead"]["orders"].values():
        expect_fields(row, {"traced_ns": NUMBER, "untraced_ns": NUMBER, "ratio": NUMBER}, "recording")
    expect_equal(list(report["bounds"]), BOUNDS, "bounds")
    for name, bound in report["bounds"].items():
        if bound["holds"] is None and not bound["reason"]:
            raise AssertionError(f"{name}: {bound}")
    expect_equal(report["bounds"]["fences"]["holds"], True, str(report["bounds"]["fences"]))


@case
def wrong_usage_says_what_was_expected():
    for arguments in (["--runs", "0"], ["--rounds=many"], ["--nonsense"], ["--runs"]):
        done = subprocess.run([TREE / "scripts" / "bench.sh", *arguments], capture_output=True, text=True, check=False,
                              timeout=60)
        expect_equal((done.returncode, done.stdout, done.stderr.startswith("bench.sh: ")), (2, "", True), done.stderr)


@case
def the_results_that_are_kept_are_of_every_table_and_bound():
    kept = (TREE / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    for what in ("machine  ", "async: ", "sync: ", "event: ", "8 streams", "threads  ", "Host memory.", "POOL_TRACE", "Bounds."):
        if not re.search(rf"^    .*{re.escape(what)}", kept, re.MULTILINE):
            raise AssertionError(f"no {what!r} in bench/RESULTS.md")


main()

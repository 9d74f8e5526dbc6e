#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/bench.py, which makes one report of all measurements: that nothing is missing, and that the sums are right.

In the environment: BENCH_BUILD, the build folder.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main  # noqa: E402

TRACES = sorted(path.name for path in (TREE / "tests" / "data").glob("*.csv.xz"))


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


@case
def every_trace_is_measured_in_every_way_and_every_bound_judged():
    command = ["python3", "-B", TREE / "scripts" / "bench.py", os.environ["BENCH_BUILD"], "json", "1", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    expect_equal((done.returncode, done.stderr), (0, ""), "exit status and stderr")
    report = json.loads(done.stdout)
    rows = report["streams"]
    expect_equal([(row["trace"], row["way"]) for row in rows],
                 [(trace, way) for trace in TRACES for way in ("sync", "event", "async")], "rows")
    for row in rows:
        sync = next(other for other in rows if other["trace"] == row["trace"] and other["way"] == "sync")
        expect_equal(row["extra_bytes"], row["peak_reserved_bytes"] - sync["peak_reserved_bytes"], str(row))
        if not row["peak_live_bytes"] <= row["peak_reserved_bytes"]:
            raise AssertionError(row)
    expect_equal(sorted(report["bounds"]), ["async_ratio", "bytes_fixed", "bytes_per_block", "fences", "ratio"],
                 "bounds")
    expect_equal(report["bounds"]["fences"]["holds"], True, str(report["bounds"]))


@case
def wrong_usage_says_what_was_expected():
    for arguments in (["--runs", "0"], ["--repetitions=many"], ["--nonsense"], ["--runs"]):
        done = subprocess.run([TREE / "scripts" / "bench.sh", *arguments], capture_output=True, text=True, check=False,
                              timeout=60)
        expect_equal((done.returncode, done.stdout, done.stderr.startswith("bench.sh: ")), (2, "", True), done.stderr)


main()

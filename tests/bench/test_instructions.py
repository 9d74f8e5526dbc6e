#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The instructions of a pair of calls: not over a tenth more than bench/instructions.json says; and that what is counted
is what it is said to be.

In the environment: BENCH_BUILD, the build folder.
"""
import functools
import os
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
sys.path.insert(0, str(TREE / "scripts"))
sys.dont_write_bytecode = True
import instructions  # noqa: E402
from tap import case, main, skip  # noqa: E402

BUILD = Path(os.environ["BENCH_BUILD"])
LIVE = list(instructions.LIVE)
ORDERS = ["LIFO", "FIFO", "random"]


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


@functools.cache
def measured():
    try:
        return instructions.measure(BUILD, LIVE)
    except instructions.CannotCount as reason:
        return skip(str(reason))


@case
def no_pair_costs_over_a_tenth_more_than_was_recorded():
    difference = instructions.other_toolchain(BUILD)
    if difference:
        skip(difference)
    for row, recorded in instructions.compared(measured()):
        print(f"# {row['way']} {row['order']} {row['live']}: {instructions.caused(row)}, recorded {recorded}")
    grown = [f"{row['way']} {row['order']}, {row['live']} live: {instructions.caused(row)} instructions a pair, recorded were {recorded}"
             for row, recorded in instructions.compared(measured()) if instructions.caused(row) > recorded * 1.10]
    if grown:
        raise AssertionError("\n".join([*grown, "if that is meant to be: scripts/instructions.sh --record"]))


@case
def every_load_is_measured_and_on_hits():
    expect_equal([(row["way"], row["live"], row["order"]) for row in measured()],
                 [(way, live, order) for way in instructions.WAYS for live in LIVE for order in ORDERS], "rows")
    for row in measured():
        if row["misses"] > row["pairs"] / 1000:
            raise AssertionError(f"it does not measure hits: {row}")


@case
def instructions_are_told_apart_by_whose_they_are():
    for row in measured():
        host = row["way"] == "malloc"
        # In those ways the driver is asked: for a synchronise in each free, or an event in 64.
        asks = row["way"] in ("sync", "event")
        expect_equal((row["pool"] > 50, row["pool"] > 0, row["simulator"] > 20, 5 < row["loop"] < 100),
                     (not host, not host, asks, True), str(row))
        if host:
            expect_equal(row["libc"] > 50, True, str(row))


@case
def every_load_has_its_record():
    recorded = {instructions.key(row) for row in instructions.recorded()["pairs"]}
    wanted = {(way, order, live) for way in instructions.WAYS for live in instructions.LIVE for order in ORDERS}
    expect_equal(recorded, wanted, "bench/instructions.json")


@case
def a_count_is_the_same_in_another_run():
    measured()
    smallest = [min(instructions.TRACES, key=lambda path: path.stat().st_size)]
    runs = [instructions.measure(BUILD, [100], ["async"], smallest) for _ in range(2)]
    for row, again in zip(*runs, strict=True):
        if abs(row["pool"] - again["pool"]) > 0.005 * row["pool"]:
            raise AssertionError(f"found {again}, before {row}")


@case
def wrong_usage_says_what_was_expected():
    for arguments, expected in ((["--live", "5"], "expected multiples of 10"), (["--live=100,many"], "expected multiples"),
                                (["--nonsense"], "unknown option"), (["--live"], "needs a value"),
                                (["--record", "--live", "100"], "goes not with")):
        done = subprocess.run([TREE / "scripts" / "instructions.sh", *arguments], capture_output=True, text=True,
                              check=False, timeout=60)
        expect_equal((done.returncode, done.stdout, expected in done.stderr), (2, "", True), done.stderr)
    for arguments, expected in ((["--calls", "other", "x"], "expected malloc, plain or async"),
                                (["--live", "15", "x"], "multiples of 10"), ([], "Usage: instructions")):
        done = subprocess.run([BUILD / "bench" / "instructions", *arguments], capture_output=True, text=True, check=False,
                              timeout=60, env={**os.environ, "LD_LIBRARY_PATH": f"{BUILD}/src/sim/driver:{BUILD}/src/sim/runtime"})
        expect_equal((done.returncode, done.stdout, expected in done.stderr), (2, "", True), done.stderr)


main()

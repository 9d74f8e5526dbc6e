#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/bench_report.py: that each bound is judged of the numbers that it is about, and by them alone."""
import copy
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
sys.path.insert(0, str(TREE / "scripts"))
from tap import case, main  # noqa: E402
import bench_report  # noqa: E402

LIVE = ("100", "1000", "10000", "100000")
MIB = 1 << 20


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


def table(ns, **more):
    """Of pairs that take as long whatever is live."""
    return {live: {order: {"ns": ns, "malloc_ns": 10.0, "ratio": ns / 10, "ratio_range": [ns / 10, ns / 10], "instructions": 100,
                           "malloc_instructions": 50, "misses": 0.0, "fences": 0.0, "synchronise_ns": 5.0,
                           "current_context_ns": 2.0, "peak_reserved_bytes": 2 * MIB, "extra_reserved_bytes": MIB, **more}
                   for order in bench_report.ORDERS} for live in LIVE}


def made_report():
    """One in which every bound holds exactly."""
    event = table(40)
    report = {
        "reasons": {},
        "machine": {"text": "a machine", "date": "a day", "load": 0.5, "commit": None, "rounds": 3, "rounds_of_large": 1},
        "pair": {"async": table(30), "event": event, "sync": table(50)},
        "streams8": {"1": event, "8": table(40), "replay": [
            {"trace": "made", "way": way, "runs": 2, "kernel_us": 10, "peak_live_bytes": MIB, "peak_reserved_bytes": 2 * MIB,
             "peak_reserved_bytes_range": [MIB, 3 * MIB], "extra_bytes": 0, "misses": 1, "waits": 2, "fences": 3, "miss_fences": 1,
             "stream_marks": 0, "crossed_streams": 5, "events_created": 1, "events_created_later": 0, "fences_of_most": 1.0}
            for way in ("sync", "event", "async")]},
        "threads": {"live": 1000, "cores": 2, "runs": [
            {"threads": threads, "pairs_per_second": 1e6 * times, "times": times, "times_range": [times, times], "malloc_times": times,
             "processors": 1.0}
            for threads, times in ((1, 1.0), (2, 1.6), (8, 1.0))]},
        "host_bytes_per_block": {"held": {"1000": 29.0, "100000": 160.0}, "churned": {"100000": 160.0}, "fixed": 2 * MIB},
        "capacity": {"made": {"ratio": 1.05, "driver_allocs": 7, "driver_frees": 3}},
        "reserved": {"made": {"ratio": 1.1, "driver_allocs": 5, "driver_frees": 0}},
        "trace_overhead": {"live": 100, "orders": {"LIFO": {"traced_ns": 60.0, "untraced_ns": 30.0, "ratio": 2.0}}},
    }
    report["growth"] = bench_report.growth(report["pair"])
    return report


def verdicts(report):
    return {name: bound["holds"] for name, bound in bench_report.bounds(report).items()}


def missed(change):
    """The bounds that are missed after a change to the report in which all hold."""
    report = made_report()
    change(report)
    return sorted(name for name, holds in verdicts(report).items() if holds is False)


@case
def every_bound_holds_at_its_limit():
    expect_equal({name: holds for name, holds in verdicts(made_report()).items() if holds is not True}, {}, "do not hold")


@case
def each_bound_is_missed_by_the_one_number_beyond_it():
    def ratio(tables, live, value):
        def change(report):
            found = report
            for name in tables:
                found = found[name]
            found[live]["random"]["ratio"] = value
        return change

    def put(names, value):
        def change(report):
            found = report
            for name in names[:-1]:
                found = found[name]
            found[names[-1]] = value
        return change

    for change, wanted in (
            (ratio(("pair", "async"), "100", 3.01), "async"), (ratio(("pair", "async"), "1000", 3.01), "async"),
            (ratio(("pair", "async"), "100000", 5.01), "async_100000"),
            (ratio(("streams8", "1"), "100", 4.01), "event"), (ratio(("streams8", "8"), "1000", 4.01), "event"),
            (ratio(("streams8", "1"), "100000", 5.01), "event_100000"), (ratio(("streams8", "8"), "100000", 5.01), "event_100000"),
            (ratio(("pair", "sync"), "10000", 5.01), "sync"), (ratio(("pair", "sync"), "100000", 5.01), "sync"),
            (put(("growth", "event", "FIFO", "net"), 2.01), "growth"),
            (put(("streams8", "replay", 1, "fences_of_most"), 1.01), "fences"),
            (put(("threads", "runs", 1, "times"), 1.59), "threads_2"), (put(("threads", "runs", 2, "times"), 0.99), "threads_8"),
            (put(("host_bytes_per_block", "held", "1000"), 160.1), "host_bytes_per_block"),
            (put(("host_bytes_per_block", "churned", "100000"), 160.1), "host_bytes_per_block"),
            (put(("host_bytes_per_block", "fixed"), 2 * MIB + 1), "host_bytes_fixed"),
            (put(("capacity", "made", "ratio"), 1.051), "capacity"),
            (put(("trace_overhead", "orders", "LIFO", "ratio"), 2.01), "trace_overhead")):
        expect_equal(missed(change), [wanted], f"missed, where {wanted} is")


@case
def what_no_bound_is_about_misses_none():
    def slow(report):
        for way in ("async", "event"):
            report["pair"][way]["10000"]["LIFO"]["ratio"] = 9.0
        report["streams8"]["8"]["10000"]["LIFO"]["ratio"] = 9.0
        report["threads"]["runs"][0]["times"] = 0.5

    expect_equal(missed(slow), [], "missed")


@case
def growth_is_what_the_pools_pair_grows_by_over_glibcs():
    report = made_report()
    report["pair"]["async"]["100000"]["FIFO"] |= {"ns": 120.0, "malloc_ns": 20.0}
    grown = bench_report.growth(report["pair"])["async"]
    expect_equal(grown["FIFO"], {"times": 4.0, "malloc_times": 2.0, "net": 2.0, "less_malloc": (120.0 - 10.0) / 30.0}, "growth")
    expect_equal(grown["LIFO"], {"times": 1.0, "malloc_times": 1.0, "net": 1.0, "less_malloc": 1.0}, "where nothing grew")


@case
def what_was_not_measured_is_unknown_and_says_why():
    report = made_report()
    for ways in (report["pair"], report["streams8"]):
        for name in ("async", "event", "sync", "1", "8"):
            if name in ways:
                ways[name] = {live: orders for live, orders in ways[name].items() if live != "100000"}
    report |= {"growth": bench_report.growth(report["pair"]), "trace_overhead": None, "capacity": None, "reserved": None,
               "reasons": {"growth": "too few", "trace_overhead": "no recording", "capacity": "no program"}}
    report["threads"]["cores"] = 1
    judged = bench_report.bounds(report)
    expect_equal({name: bound["reason"] for name, bound in judged.items() if bound["holds"] is None},
                 {**{name: "100000 live blocks were not measured" for name in ("async_100000", "event_100000", "sync")},
                  "growth": "not measured", "threads_2": "the machine has one core", "threads_8": "the machine has one core",
                  "capacity": "no program", "trace_overhead": "no recording"}, "unknown")
    report["bounds"] = judged
    text = bench_report.text(report)
    for reason in ("too few", "no recording", "no program"):
        if f"not measured: {reason}" not in text:
            raise AssertionError(f"{reason}: not in\n{text}")


@case
def a_bound_that_is_missed_by_what_was_measured_is_missed_whatever_was_not():
    report = made_report()
    del report["pair"]["sync"]["100000"]
    report["pair"]["sync"]["100"]["LIFO"]["ratio"] = 6.0
    expect_equal(bench_report.bounds(report)["sync"]["holds"], False, "sync")


@case
def text_says_of_each_bound_whether_it_holds_and_what_the_worst_is():
    report = made_report()
    report["pair"]["async"]["1000"]["FIFO"]["ratio"] = 3.25
    report["threads"]["runs"][1]["times"] = 1.25
    report["bounds"] = bench_report.bounds(report)
    lines = bench_report.text(report).split("Bounds.\n")[1].splitlines()
    expect_equal([("holds" in line) + ("MISSED" in line) + ("unknown" in line) for line in lines], [1] * len(report["bounds"]), "verdicts")
    expect_equal([" ".join(line.split()) for line in lines if "MISSED" in line],
                 ["an async pair, 100 and 1,000 live: at most 3 MISSED worst 3.25: FIFO, 1000 live",
                  "2 threads, over the throughput of one: at least 1.6 MISSED worst 1.25: 2 threads on 2 cores"], "missed")


@case
def the_report_judged_is_not_changed():
    report = made_report()
    before = copy.deepcopy(report)
    bench_report.bounds(report)
    expect_equal(report, before, "report")


main()

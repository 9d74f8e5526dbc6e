#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The bundled traces of tests/data: well-formed, of the promised size, and as their record says."""
import csv
import json
import lzma
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main  # noqa: E402

DATA = TREE / "tests" / "data"
FIELDS = ["seq", "op", "id", "size", "stream", "thread", "t_us"]


def traces():
    record = json.loads((DATA / "traces.json").read_text(encoding="utf-8"))["traces"]
    for name in sorted(record):
        with lzma.open(DATA / name, "rt", encoding="ascii", newline="") as file:
            yield name, record[name], list(csv.reader(file))


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


@case
def every_trace_has_a_record_and_every_record_a_trace():
    recorded = [name for name, _, _ in traces()]
    expect_equal(recorded, sorted(path.name for path in DATA.glob("*.csv*")), "files")
    if len(recorded) < 3:
        raise AssertionError(f"expected at least three traces, found {recorded}")


@case
def every_trace_has_5000_to_50000_events():
    for name, _, rows in traces():
        if not 5000 <= len(rows) - 1 <= 50000:
            raise AssertionError(f"{name}: {len(rows) - 1} events")


@case
def every_free_matches_an_allocation():
    for name, _, rows in traces():
        expect_equal(rows[0], FIELDS, f"{name}: header")
        live, used, last_time = {}, set(), 0
        for number, row in enumerate(rows[1:]):
            what = f"{name}: line {number + 2}"
            expect_equal(len(row), len(FIELDS), f"{what}: fields")
            seq, op, block, size, stream, thread, time = (int(text) if name != "op" else text
                                                          for name, text in zip(FIELDS, row))
            expect_equal((seq, stream), (number, 0), f"{what}: seq and stream")
            if time < last_time or thread < 0 or size <= 0:
                raise AssertionError(f"{what}: {row}")
            last_time = time
            if op == "a":
                if block in used:
                    raise AssertionError(f"{what}: id {block} is used twice")
                used.add(block)
                live[block] = size
            else:
                expect_equal((op, live.pop(block, None)), ("f", size), f"{what}: op and size of the allocation")


@case
def counts_are_those_of_the_record():
    for name, record, rows in traces():
        live, sizes, peak, allocations, threads = 0, 0, 0, 0, set()
        for _, op, _, size, _, thread, _ in rows[1:]:
            sign = 1 if op == "a" else -1
            allocations += op == "a"
            live += sign
            sizes += sign * int(size)
            peak = max(peak, sizes)
            threads.add(thread)
        found = dict(events=len(rows) - 1, allocations=allocations, live_at_end=live, peak_live_bytes=peak,
                     threads=len(threads))
        expect_equal(found, {key: record[key] for key in found}, name)


@case
def figures_of_the_readme_are_those_of_the_record():
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for name, record, _ in traces():
        line = next(line for line in readme.splitlines() if line.startswith(f"| `{name}`"))
        expect_equal([cell.strip() for cell in line.split("|")][3:5],
                     [f"{record['events']:,}", f"{record['peak_live_bytes'] / 2**20:.0f} MiB"], name)


main()

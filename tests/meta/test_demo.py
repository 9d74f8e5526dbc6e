# SPDX-License-Identifier: MIT
"""scripts/demo.py over the simulated CUDA: what it prints, and what it answers when the pool gains too little."""
import os

from fixture import TREE, expect, folder, run
from tap import case, main

HEADER = "seq,op,id,size,stream,thread,t_us\n"


def trace(events):
    """A file with these (operation, id, size)."""
    path = folder() / "a trace.csv"
    path.write_text(HEADER + "".join(f"{n},{op},{number},{size},0,0,{n}\n" for n, (op, number, size) in enumerate(events)))
    return path


def demo(path):
    return run("python3", "-B", TREE / "scripts" / "demo.py", os.environ["DEMO_BUILD"], path, "sim")


def rows(table):
    """The cells of each line of a table, by its first."""
    lines = (line[2:].partition("  ") for line in table.splitlines() if line.startswith("  ") and line[2:3] != " ")
    return {first: rest.split() for first, _, rest in lines}


@case
def reused_memory_shows_in_the_table_and_in_poolstat():
    events = [event for n in range(200) for event in (("a", n, 65536), ("f", n, 0))]
    status, stdout, stderr = demo(trace(events))
    expect(status == 0 and not stderr, (status, stdout, stderr))
    alone, streams = stdout.split("The same trace over 4 streams")
    words = rows(alone)
    expect(words["driver allocations"][:2] == ["200", "1"], stdout)
    expect(words["hit rate"][-3:] == ["199", "of", "200"], stdout)
    expect(words["live blocks overwritten"][:2] == ["0", "0"], stdout)
    expect("33 µs each in the driver" in alone and "Size classes in use" in alone and "EXTFRAG" in alone, stdout)
    words = rows(streams)
    allocations = words["driver allocations"]
    expect((len(allocations), allocations[:2]) == (4, ["200", "1"]) and max(map(int, allocations[2:])) <= 6, stdout)
    # One block at a time at one address, on one stream after the other.
    expect(words["reuses across streams"][:2] == ["–", "199"], stdout)
    expect(words["waits in frees"] == ["–", "200", "0", "0"], stdout)
    expect(words["live blocks overwritten"] == ["0"] * 4 and "200 blocks checked in each" in streams, stdout)


@case
def too_few_driver_allocations_saved_is_a_failure():
    events = [("a", n, 40 << 20) for n in range(10)]
    status, _, stderr = demo(trace(events))
    expect(status == 1 and "at least 30 times fewer" in stderr, (status, stderr))


@case
def failed_allocations_are_a_failure():
    status, _, stderr = demo(trace([("a", 0, 1 << 40)]))
    expect(status == 1 and "failed" in stderr, (status, stderr))


main()

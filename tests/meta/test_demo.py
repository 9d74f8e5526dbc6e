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


@case
def reused_memory_shows_in_the_table_and_in_poolstat():
    events = [event for n in range(200) for event in (("a", n, 65536), ("f", n, 0))]
    status, stdout, stderr = demo(trace(events))
    expect(status == 0 and not stderr, (status, stdout, stderr))
    words = {line.split("  ")[1]: line.split() for line in stdout.splitlines() if line.startswith("  ") and line[2:3] != " "}
    expect(words["driver allocations"][2:4] == ["200", "1"], stdout)
    expect(words["hit rate"][-3:] == ["199", "of", "200"], stdout)
    expect(words["live blocks overwritten"][3:5] == ["0", "0"], stdout)
    expect("33 µs each in the driver" in stdout and "Size classes in use" in stdout and "EXTFRAG" in stdout, stdout)


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

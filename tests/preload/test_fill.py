# SPDX-License-Identifier: MIT
"""POOL_FILL: what a block holds when the program gets it, by every door, whatever its stream is doing."""
import os
import tempfile

from preload import Guest, expect, run, same
from tap import case, main

WAYS = "cuMemAlloc", "cudaMalloc", "cuMemAllocAsync", "cudaMallocAsync"


def lines_of(fill, **options):
    return run(["preload_fill"], variables={"POOL_FILL": fill, **options}).splitlines()


def filled(lines, byte):
    expected = [f"{way}: the same memory, after the kernel's end, holds {byte}" for way in WAYS]
    assert lines[:4] == expected, lines
    assert lines[4:6] == [f"amid a capture: 0, holds {byte}; capture: 0, 0 nodes"] * 2, lines
    assert lines[6] == f"after a reset: holds {byte}", lines


@case
def unfilled_memory_holds_what_was_there():
    lines = lines_of("none")
    assert lines[:2] == [f"{way}: the same memory, after the kernel's end, holds 5a" for way in WAYS[:2]], lines
    # Stream-ordered allocations do not wait.
    assert lines[2:4] == [f"{way}: the same memory, before the kernel's end, holds 5a" for way in WAYS[2:]], lines


@case
def hazard_44_zero_fills_every_block_before_the_call_returns():
    filled(lines_of("zero"), "00")


@case
def hazard_44_poison_fills_every_block_before_the_call_returns():
    filled(lines_of("poison"), "ff")


@case
def fills_are_no_matter_of_what_is_pooled():
    with Guest(["preload_fill", "wait"], variables={"POOL_FILL": "poison"}) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=11, frees=11, bad_frees=0, pass_capture=0)
        guest.end()


@case
def other_threads_blocks_are_filled_too():
    for fill in "zero", "poison":
        same(["preload_guest_runtime", "threads"], variables={"POOL_FILL": fill})
        same(["preload_guest_driver", "contexts"], variables={"POOL_FILL": fill})


@case
def without_a_way_to_fill_the_log_says_so():
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        same(["preload_lone", "answers"], variables={"POOL_FILL": "zero", "POOL_LOG": "1", "POOL_LOG_FILE": log})
        with open(log) as file:
            text = file.read()
        assert text.count("POOL_FILL") == 1, text


main()

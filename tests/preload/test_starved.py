# SPDX-License-Identifier: MIT
"""Driver calls that take device memory beside the pool, and find none: cached memory is given back and they are asked
again, on the device that they ask for, and not while a stream captures."""
import os
import re

from preload import SOURCE, run, same
from tap import case, main

TWO = {"SIM_DEVICES": "2"}
OUT_OF_MEMORY = "2"
OF_A_NAMED_DEVICE = {"cuMemCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"}


def names():
    with open(os.path.join(SOURCE, "src/entry/hooks.h"), encoding="utf-8") as file:
        table = re.search(r"#define ENTRY_STARVED_HOOKS.*?\n\n", file.read(), re.S).group()
    return {"cuMemAllocAsync", "cuMemAllocAsync_ptsz", *re.findall(r"X\((cu\w+),", table)}


def answers(cached_on, pool):
    fails = ",".join(f"{name}:1:{OUT_OF_MEMORY}" for name in names())
    lines = run(["preload_starved", cached_on], pool=pool, variables={**TWO, "SIM_FAIL": fails, "POOL_ASYNC": "0"}).splitlines()
    found = dict(line.split(": ") for line in lines)
    assert set(found) == names(), set(found) ^ names()
    return {name for name, answer in found.items() if answer == OUT_OF_MEMORY}


@case
def every_call_is_asked_again_when_memory_was_given_back():
    assert answers("0", pool=False) == names()
    assert answers("0", pool=True) == set()


@case
def memory_of_another_device_is_given_back_only_for_a_call_that_names_it():
    assert answers("1", pool=True) == names() - OF_A_NAMED_DEVICE


@case
def nothing_is_given_back_while_a_stream_captures():
    lines = same(["preload_starved", "capture"], variables={**TWO, "SIM_FAIL": "cuStreamCreate:2:2"})
    assert lines == ["begin: 0", "create: 2", "asked: 0, status 1", "end: 0", "create: 0"], lines


main()

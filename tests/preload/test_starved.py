# SPDX-License-Identifier: MIT
"""Driver calls that take device memory beside the pool, and find none: cached memory is given back and they are asked
again, on the device that they ask for. What cannot be asked again has the headroom."""
import os
import re

from preload import SOURCE, run, same
from tap import case, main

TWO = {"SIM_DEVICES": "2", "POOL_ASYNC": "0"}
SMALL = {"SIM_MEMORY_MB": "256", "POOL_HEADROOM_MB": "0"}
OUT_OF_MEMORY = 2
OF_A_NAMED_DEVICE = {"cuMemCreate", "cuMemPoolCreate", "cuDevicePrimaryCtxRetain", "cuGreenCtxCreate", "cuCtxCreate_v2",
                     "cuCtxCreate_v3", "cuCtxCreate_v4"}
STREAM_ORDERED = {"cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"}


def names():
    with open(os.path.join(SOURCE, "src/entry/hooks.h"), encoding="utf-8") as file:
        tables = re.findall(r"#define ENTRY_(?:STARVED|CODE)_HOOKS.*?\n\n", file.read(), re.S)
    assert len(tables) == 2
    others = "cuDevicePrimaryCtxRetain", "cuCtxEnablePeerAccess"
    return STREAM_ORDERED.union(others, re.findall(r"X\((cu\w+),", "".join(tables)))


def calls(pool=True, cached_on="0", cache="little", **variables):
    """{name: (answer, calls of the driver, earlier ones, MiB taken before)}"""
    lines = run(["preload_starved", "calls", cached_on, cache], pool=pool, variables={**TWO, **variables}).splitlines()
    found = dict(line.split(": ") for line in lines)
    expected = names() - (STREAM_ORDERED if cache == "async" else set())
    assert set(found) == expected, set(found) ^ expected
    return {name: tuple(int(field.split()[0]) for field in text.split(", ")) for name, text in found.items()}


def answers(found):
    return {name: line[0] for name, line in found.items()}


def failing(usual, times=1):
    """As in this run, but the guest's call of each name fails, and is asked `times` - 1 times again in vain."""
    return {"SIM_FAIL": ",".join(f"{name}:{line[2] + 1 + n}:{OUT_OF_MEMORY}" for name, line in sorted(usual.items())
                                 for n in range(times))}


def taking(mib, without=()):
    return {"SIM_TAKES": ",".join(f"{name}:{mib}" for name in sorted(names() - set(without)))}


def expect_calls(found, number):
    wrong = {name: line for name, line in found.items() if line[1] != number}
    assert not wrong, f"not {number} calls: {wrong}"


def expect_answers(found, expected):
    different = {name: (answer, expected[name]) for name, answer in answers(found).items() if answer != expected[name]}
    assert not different, f"(is, should be): {different}"


@case
def hazard_45_every_call_is_asked_again_when_memory_was_given_back():
    native, usual = calls(pool=False), calls()
    assert OUT_OF_MEMORY not in answers(native).values(), native
    expect_calls(native, 1)
    expect_answers(usual, answers(native))
    assert set(answers(calls(pool=False, **failing(native))).values()) == {OUT_OF_MEMORY}
    again = calls(**failing(usual))
    expect_answers(again, answers(native))
    expect_calls(again, 2)


@case
def hazard_45_every_call_works_on_a_device_that_the_cache_fills_to_the_last():
    for cache, options in ("full", {}), ("full", {"POOL_FREE": "event"}), ("async", {"POOL_ASYNC": "1"}):
        variables = {**SMALL, **taking(2, without=STREAM_ORDERED if cache == "async" else ()), **options}
        native = calls(pool=False, cache=cache, **variables)
        assert OUT_OF_MEMORY not in answers(native).values(), native
        pooled = calls(cache=cache, **variables)
        expect_answers(pooled, answers(native))
        expect_calls(pooled, 2)
        assert {line[3] for line in pooled.values()} == {256}, pooled


@case
def hazard_45_where_too_little_comes_back_the_drivers_answer_stands():
    for cache, number in ("little", 2), ("none", 1):  # nothing to give back: nothing to try again
        pooled = calls(cache=cache, **failing(calls(cache=cache), times=2))
        assert set(answers(pooled).values()) == {OUT_OF_MEMORY}, pooled
        expect_calls(pooled, number)


@case
def memory_of_another_device_is_given_back_only_for_a_call_that_names_it():
    found = answers(calls(cached_on="1", **failing(calls(cached_on="1"))))
    assert {name for name, answer in found.items() if answer == OUT_OF_MEMORY} == names() - OF_A_NAMED_DEVICE, found


@case
def hazard_45_amid_a_capture_it_is_asked_again_and_the_capture_holds():
    fails = {**TWO, "SIM_FAIL": "cuStreamCreate:2:2"}
    for create, variables in (("0, 2 calls", {}), ("2, 1 calls", {"SIM_MISSING": "cuThreadExchangeStreamCaptureMode"})):
        lines = run(["preload_starved", "capture"], variables={**fails, **variables}).splitlines()
        assert lines == ["begin: 0", f"create: {create}", "asked: 0, status 1", "end: 0", "create: 0"], lines


# What a context's first launch takes for itself: code, stacks, the printf buffer.
LAZY = {"SIM_DEVICES": "2", "SIM_MEMORY_MB": "256", "SIM_LAZY_MB": "64", "SIM_TAKES": "cuModuleGetFunction:16"}


@case
def hazard_45_the_first_launch_works_on_a_device_that_the_cache_fills_to_the_last():
    for cache in "full", "async":
        for free in "sync", "event":
            lines = same(["preload_starved", "first", "driver", cache],
                         variables={**LAZY, "POOL_HEADROOM_MB": "0", "POOL_FREE": free})
            assert lines == ["function: 0", "launch: 0, 0"], (cache, free, lines)


@case
def hazard_45_what_the_driver_takes_unasked_finds_the_headroom():
    lines = same(["preload_starved", "first", "itself", "full"], variables={**LAZY, "POOL_HEADROOM_MB": "64"})
    assert lines == ["function: 0", "launch: 0, 0"], lines
    # And without it does not: so it is the headroom that serves.
    lines = run(["preload_starved", "first", "itself", "full"], variables={**LAZY, "POOL_HEADROOM_MB": "0"}).splitlines()
    assert lines[1].startswith("launch: 2"), lines


main()

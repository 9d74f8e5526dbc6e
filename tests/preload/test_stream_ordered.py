# SPDX-License-Identifier: MIT
"""Stream-ordered allocation answers natively and under the pool alike: codes, last errors, what outlives what."""
import os
import re
import tempfile

from preload import Guest, expect, run, same
from tap import case, main

SMALL = {"SIM_MEMORY_MB": "64", "POOL_HEADROOM_MB": "0"}
TWO = {"SIM_DEVICES": "2"}
EVENT = {"POOL_FREE": "event"}
GUESTS = "preload_stream_ordered", "preload_stream_ordered_static"


def as_natively(part, variables=None, **options):
    for guest in GUESTS:
        lines = same([guest, part], variables=variables, **options)
        same([guest, part], variables={**(variables or {}), **EVENT}, **options)
    return lines


@case
def stream_ordered_calls_answer_as_natively():
    as_natively("answers")
    as_natively("answers", {"POOL_ASYNC": "0"})


@case
def the_log_names_the_pool_of_an_event():
    for variables, pattern in ({}, r"device 0, (plain|async) pool \d+: growth: \d+ bytes "), \
                              ({"POOL_STATS": "0"}, r"device 0, (plain|async) pool: growth: \d+ bytes "):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            run([GUESTS[0], "answers"], variables={**variables, "POOL_LOG": "2", "POOL_LOG_FILE": path})
            with open(path, encoding="ascii") as file:
                lines = [line for line in file if ": growth: " in line]
        found = [re.search(pattern, line) for line in lines]
        assert all(found) and {match[1] for match in found} == {"plain", "async"}, lines


@case
def handles_that_mean_no_stream_are_answered_as_natively():
    for part in "destroyed_alloc", "destroyed_free", "garbage_alloc", "garbage_free":
        as_natively(part, status=None)


@case
def hazard_29_a_runtimes_stream_of_a_destroyed_ones_handle_is_another():
    lines = as_natively("handle", {"SIM_RACES": "1"})
    assert lines == ["the handle came back: 10, races: 0"], lines


@case
def stream_ordered_calls_amid_a_capture_as_natively():
    lines = as_natively("captures")
    assert "graph: 1" in lines, lines


@case
def old_runtimes_and_drivers_answer_as_natively():
    for runtime, driver in ("12000", "12040"), ("11080", "11080"), ("11080", "13000"):
        old = {"SIM_RUNTIME_VERSION": runtime, "SIM_DRIVER_VERSION": driver}
        as_natively("answers", old)
        as_natively("devices", {**TWO, **old})


@case
def a_block_is_on_the_device_of_its_stream():
    as_natively("devices", TWO)


@case
def stream_ordered_blocks_outlive_a_reset():
    lines = as_natively("reset")
    assert "the block of before holds: 1" in lines, lines


@case
def memory_pools_are_the_programs():
    as_natively("memory_pools")


@case
def trimming_a_memory_pool_gives_back_what_the_pool_cached_of_it():
    lines = as_natively("trim")
    assert "nothing reserved: 1, nothing used: 1" in lines, lines


@case
def what_is_freed_in_order_counts_as_free_once_it_is_unused():
    lines = as_natively("memory_info")
    assert sum(line.endswith("as before: 1") for line in lines) == 2, lines


@case
def other_devices_may_use_what_their_access_to_the_memory_pool_says():
    lines = as_natively("peers", TWO)
    assert "they hold: 1 1" in lines and "it holds: 1" in lines, lines


@case
def out_of_memory_in_stream_order_as_natively():
    lines = as_natively("out_of_memory", SMALL)
    assert "full: 2" in lines, lines


@case
def hazard_47_nothing_waits_for_a_kernel_on_another_stream():
    as_natively("busy")
    for guest in GUESTS:
        with Guest([guest, "busy", "wait"]) as process:
            process.until_ready()
            read = process.figures()
            # 32 MiB is the largest that the free stream asks for; the busy one's segment is its own.
            assert read["segment_alloc_bytes"] <= (16 + 16 + 32) * 1048576, read
            expect(read, allocs=104, frees=104, waits=0, segment_releases=0)
            process.end()


main()

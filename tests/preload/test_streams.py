# SPDX-License-Identifier: MIT
"""Streams and contexts that come and go, are kept busy, or were made by nobody: what is given out when, what is held."""
import os

from preload import EMULATOR, Guest, expect, run, same
from tap import case, main, skip

MIB = 2**20
SANITIZER = os.environ["PRELOAD_SANITIZER"]
EVENT = {"POOL_FREE": "event"}
JUDGED = {"SIM_RACES": "1"}
OLD = {"SIM_DRIVER_VERSION": "12040"}  # the last without cuCtxRecordEvent
OLDER = {"SIM_DRIVER_VERSION": "11080"}  # without cuStreamGetId
OLDEST = {"SIM_DRIVER_VERSION": "11010"}  # without stream-ordered allocation


BUSY = "steady", "own_steady", "round", "bound", "warm", "other_device", "turmoil"


def guest_of(part):
    return "preload_busy" if part.removesuffix("_beside_a_kernel") in BUSY else "preload_streams"


def lines_of(part, *variables):
    return run([guest_of(part), part], variables={k: v for of in variables for k, v in of.items()}).splitlines()


def figures_of(part, variables=None):
    with Guest([guest_of(part), part, "wait"], variables=variables) as guest:
        guest.until_ready()
        read = guest.figures()
        guest.end()
    return guest.lines, read


@case
def hazard_29_a_destroyed_streams_handle_means_another_stream():
    for variables in {}, EVENT, OLD, OLDER:
        lines = lines_of("handle", JUDGED, variables)
        assert lines == ["races: 0 "], lines


@case
def hazard_29_so_does_that_of_a_stream_that_no_hook_saw():
    for variables in {}, EVENT, OLD, OLDER:
        lines = lines_of("unseen_handle", JUDGED, variables)
        assert lines == ["races: 0 "], lines


@case
def streams_that_no_hook_saw_are_told_apart():
    lines, read = figures_of("unseen")
    assert lines == ["on itself: the same memory", "on another: other memory", "and is busy",
                     "cuStreamDestroy(unseen): 0", "sim_stream_destroy(another): 0"], lines
    expect(read, allocs=3, frees=3, misses=2, waits=0)


@case
def a_free_waits_for_the_kernel_in_sync_mode():
    for variables in {}, OLD, OLDER, OLDEST, {**EVENT, **OLD}, {**EVENT, **OLDEST}:
        lines = lines_of("free", variables)
        assert lines == ["after the free: idle", "at once: the same memory", "after the allocation: idle",
                         "after the kernel's end: the same memory"], (variables, lines)


@case
def hazard_33_what_the_host_reads_after_a_free_is_there_in_sync_mode():
    for variables in {}, OLD, OLDER, OLDEST, {**EVENT, **OLD}:
        lines = same(["preload_streams", "host_read"], variables={"SIM_DEVICES": "2", **variables})
        assert len(lines) == 8 and all(line.endswith(f": {MIB} bytes are right") for line in lines), (variables, lines)
    if SANITIZER == "thread":
        return  # the rest is a race of the program's, by intent
    # The other mode is for programs that do not lean on that.
    lines = lines_of("host_read", {"SIM_DEVICES": "2"}, EVENT)
    assert len(lines) == 8 and any(line.endswith(": 0 bytes are right") for line in lines), lines


@case
def in_event_mode_a_free_returns_at_once_and_its_memory_waits_for_the_kernel():
    lines = lines_of("free", EVENT)
    assert lines == ["after the free: busy", "at once: other memory", "after the allocation: busy",
                     "after the kernel's end: the same memory"], lines


@case
def plain_memory_freed_in_order_stays_in_its_kind():
    for variables in {}, EVENT, OLD, OLDER:
        lines = lines_of("free_in_order", variables)
        assert lines == ["after the free: busy", "to a plain allocation: other memory", "to one on the stream: other memory",
                         "after the allocations: busy"], lines


@case
def hazard_48_a_stream_that_runs_for_long_does_not_strand_what_others_free():
    for part in "steady", "round":
        for variables in {}, EVENT, OLD, OLDER:
            alone = figures_of(part, variables)[1]
            lines, beside = figures_of(part + "_beside_a_kernel", variables)
            assert lines == ["the kernel: busy"], lines
            assert beside["waits"] == 0, beside
            assert beside["peak_reserved_bytes"] <= 2 * alone["peak_reserved_bytes"], (part, variables, alone, beside)


@case
def hazard_48_beside_it_the_streams_of_threads_hold_no_more_than_what_each_needs():
    alone = figures_of("own_steady")[1]
    lines, beside = figures_of("own_steady_beside_a_kernel")
    assert lines == ["the kernel: busy"], lines
    assert beside["waits"] == 0, beside
    assert beside["peak_reserved_bytes"] <= 2 * alone["peak_reserved_bytes"], (alone, beside)


@case
def in_event_mode_what_waits_is_bounded():
    lines, read = figures_of("bound", EVENT)
    assert lines == ["many: 1"], lines
    assert 128 * MIB < read["peak_waiting_bytes"] <= (256 + 8) * MIB, read
    assert read["peak_reserved_bytes"] <= (256 + 8 + 16) * MIB, read
    assert read["waits"] == 1 and read["fences"] >= 1, read


@case
def a_device_without_access_that_runs_for_long_strands_nothing():
    for variables in {}, EVENT:
        lines, read = figures_of("other_device", {"SIM_DEVICES": "2", **variables})
        assert lines == ["the other: busy"], lines
        assert read["peak_reserved_bytes"] <= 128 * MIB, (variables, read)


@case
def no_event_is_created_after_the_first_ones():
    for variables, waits in ({}, 8000), (EVENT, 0):
        lines, read = figures_of("warm", {"SIM_DEVICES": "2", **variables})
        assert lines == ["events: 0 created, 1 recorded on streams", "contexts' events: 1", "segments: 0"], lines
        expect(read, frees=24000, waits=waits)
        assert 1 < read["fences"] <= 24000 / 64 + read["miss_fences"], read
        assert read["miss_fences"] <= read["misses"], read


@case
def hazard_32_streams_that_were_used_once_strand_nothing():
    for variables in {}, EVENT, OLD, OLDER:
        with Guest(["preload_streams", "once", "wait"], variables=variables) as guest:
            before = guest.until_ready().figures()
            guest.go_on()
            after = guest.until_ready().figures()
            guest.end()
        assert after["hits"] - before["hits"] == 64, (variables, before, after)
        assert after["reserved_bytes"] == after["peak_reserved_bytes"] == before["reserved_bytes"], (variables, before, after)


@case
def threads_and_streams_that_come_and_go_strand_nothing():
    read = figures_of("many_threads")[1]
    assert read["peak_reserved_bytes"] <= 3 * 16 * MIB, read
    expect(read, allocs=10000, frees=10000, waits=0, pass_async=0)


@case
def a_stream_ordered_block_is_described_as_natively():
    lines = same(["preload_streams", "attributes"])
    assert "at the start: pool 0 is the current one 1" in lines and "inside: size 0 is 1000" in lines, lines


@case
def a_forked_child_gets_the_drivers_answers():
    if EMULATOR:
        skip("the emulator does not wipe memory at a fork, by which the simulated driver knows a child")
    same(["preload_streams", "fork"])


@case
def created_contexts_are_pooled_and_their_handles_come_back():
    lines = same(["preload_streams", "created"])
    assert lines.count("the handle came back: 1") == 2 and lines.count("the ordered block holds: 1") == 2, lines
    same(["preload_streams", "created"], variables=EVENT)
    read = figures_of("created")[1]
    # Plain: two contexts' two blocks each and the one in the end of each round; ordered: three blocks each.
    expect(read, allocs=2 * (2 + 1 + 3), bad_frees=0, pass_created_context=0)


@case
def the_end_of_a_green_context_proves_nothing_of_its_work():
    expected = ["given out before the end: 0", "cuGreenCtxDestroy(green): 0", "after it: 0", "after the kernels: 3",
                "cuGreenCtxDestroy(green): 709"]
    for variables in {}, EVENT:
        lines = lines_of("green", variables)
        assert lines == expected, lines


@case
def the_primary_context_may_end_with_a_green_one():
    lines = same(["preload_streams", "last_green"])
    assert "active: 0" in lines, lines


@case
def an_old_driver_is_enough():
    for variables in OLD, OLDER, OLDEST:
        for mode in {}, EVENT:
            lines = same(["preload_streams", "old"], variables={**variables, **mode})
            assert lines[0] == ("on stream 0: -1" if variables is OLDEST else "on stream 0: 0"), lines
    # Without a number, streams that no hook saw are the driver's.
    read = figures_of("old", OLD)[1]
    expect(read, allocs=4 + 8, pass_async=0, fences=0)
    read = figures_of("old", OLDER)[1]
    expect(read, allocs=3 + 8, pass_async=1, fences=0)
    read = figures_of("old", OLDEST)[1]
    expect(read, allocs=4, frees=4, fences=0)


@case
def streams_and_contexts_end_while_others_work():
    for variables in {}, EVENT:
        for _ in range(3):
            lines = lines_of("turmoil", JUDGED, variables)
            assert lines == ["races: 0 "], (variables, lines)


main()

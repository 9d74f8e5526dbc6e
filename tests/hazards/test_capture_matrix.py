# SPDX-License-Identifier: MIT
"""The capture matrix: every call that has a hook, by the driver's and by the runtime's name, amid a capture of each mode on either kind of stream, by the capturing
thread, by another in each mode of its own and by one without a context, answers and leaves the capture as natively; and memory goes round after
it."""
import os

from preload import Guest, expect, run, same
from tap import case, main

GUEST = "hazard_capture_matrix"
MIB = 2**20
TWO = {"SIM_DEVICES": "2"}
EVENT = {"POOL_FREE": "event"}
MISSES = {"POOL_TRIM_MB": "0"}  # nothing stays cached
NO_FENCES = {"SIM_DRIVER_VERSION": "12040"}
SCARCE = {"SIM_MEMORY_MB": "128", "POOL_HEADROOM_MB": "0"}  # what is cached has to go back, amid captures too


def few(*settings):
    """The thread sanitizer makes all slower by far: there the last only."""
    return settings[-1:] if os.environ["PRELOAD_SANITIZER"] == "thread" else settings


def as_natively(*settings):
    for variables in few(*settings):
        for part in "non_blocking", "blocking":
            lines = same([GUEST, part], variables={**TWO, **variables})
            assert len(lines) >= 128 * 3 * (3 + 3 + 1), len(lines)
            for answer in "900", "906" if part == "blocking" else "0", "1", "201", "401", "908":
                assert any(f": {answer}, said" in line for line in lines), f"{part}: nothing answers {answer}"


@case
def hazard_30_every_call_amid_a_capture_answers_and_leaves_it_as_natively():
    as_natively(NO_FENCES, {"POOL_ASYNC": "0"}, {"POOL_FILL": "poison"}, {})


@case
def hazard_30_so_it_does_where_frees_do_not_wait():
    as_natively({**EVENT, **NO_FENCES}, EVENT)


@case
def hazard_30_the_runtimes_calls_leave_the_same_last_error_too():
    for guest in "hazard_capture_runtime", "hazard_capture_static":
        for variables in few({}, EVENT, {"POOL_ASYNC": "0"}, SCARCE):
            lines = same([guest], variables=variables)
            assert len([line for line in lines if "last error" in line]) == 2 * (13 + 6 * 5) * 18, len(lines)
            for answer in 900, 906, 1:
                assert any(f": {answer}, last error {answer}, then 0;" in line for line in lines), f"nothing answers {answer}"


@case
def hazard_31_an_allocation_amid_a_capture_as_natively_whatever_is_cached():
    as_natively(MISSES, {**EVENT, **MISSES}, SCARCE, {**SCARCE, **EVENT})


@case
def hazard_31_what_is_freed_amid_captures_comes_back():
    for variables in few({}, EVENT):
        for part in "non_blocking", "blocking":
            with Guest([GUEST, part, "wait"], variables={**TWO, **variables}) as guest:
                read = guest.until_ready().figures()
                # One block stays; the others go round, though each round frees and allocates some amid its capture.
                expect(read, retired_bytes=0)
                assert read["alloc_live_bytes"] - read["freed_live_bytes"] == 24 * MIB, read
                assert read["peak_reserved_bytes"] <= (24 + 16 + 16 + 2 * 32) * MIB, (variables, read)
                assert read["frees"] > 2000 * 4, read
                guest.end()


@case
def hazard_30_a_block_freed_amid_a_capture_is_given_out_after_it():
    for variables in {}, EVENT:
        lines = run([GUEST, "back"], variables=variables).splitlines()
        assert len(lines) == 4 and all(line.endswith(": the same memory") for line in lines), (variables, lines)


main()

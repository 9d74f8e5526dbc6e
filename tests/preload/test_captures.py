# SPDX-License-Identifier: MIT
"""Captures that begin and end in odd ways: answers as natively, nothing is served meanwhile, everything afterwards."""
import os

from preload import Guest, built, expect, run, same
from tap import case, main, skip

TWO = {"SIM_DEVICES": "2"}


def is_over(part, passed, allocs=7):
    """`passed`: allocations that the driver answered while something captured."""
    same(["preload_captures", part], variables=TWO)
    with Guest(["preload_captures", part, "wait"], variables=TWO) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=allocs, frees=allocs, pass_capture=passed, bad_frees=0)
        guest.end()


@case
def a_broken_capture_is_over_at_its_end():
    is_over("broken", passed=1)


@case
def a_refused_end_is_none():
    is_over("ended_by_another", passed=1)


@case
def every_thread_has_a_stream_of_its_own():
    is_over("two_threads", passed=2)


@case
def two_names_of_a_threads_stream_are_one():
    is_over("names", passed=2)


@case
def a_capture_ends_with_the_context_of_its_stream():
    is_over("another_context", passed=1)
    is_over("released_context", passed=1)


@case
def a_capture_ends_with_a_created_context():
    is_over("destroyed_context", passed=0)


@case
def the_mode_of_the_thread_is_as_before():
    is_over("mode", passed=1, allocs=8)


@case
def a_capture_whose_end_nobody_saw_is_over_when_its_stream_captures_again():
    is_over("unseen_end", passed=1)


@case
def a_free_on_the_legacy_stream_beside_a_blocking_one_as_natively():
    is_over("legacy", passed=0, allocs=8)


@case
def hazard_31_stream_ordered_calls_beside_a_capture_and_in_it_as_natively():
    for variables in {}, {"POOL_FREE": "event"}, {"POOL_ASYNC": "0"}, {"SIM_DRIVER_VERSION": "12040"}:
        lines = same(["preload_capture_ordered", "beside"], variables=variables)
        assert len(lines) == 2 * 5 * 3 * 6 * 2, len(lines)
        # A free on the capturing stream of memory that is not the graph's is refused, and breaks the capture.
        refused = [line for line in lines if "on the capturing stream, free" in line and ": 1;" in line]
        assert refused and all("status 2, ended 901" in line for line in refused), refused


@case
def memory_of_graphs_as_natively():
    for variables in {}, {"POOL_FREE": "event"}:
        lines = same(["preload_capture_ordered", "graphs"], variables=variables)
        assert lines.count("the graph's block holds 7") >= 3, lines


@case
def a_graph_goes_on_using_what_it_was_captured_with():
    for variables in {}, {"POOL_FREE": "event"}:
        lines = same(["preload_capture_ordered", "used"], variables=variables)
        assert lines.count("holds 3") == 3, lines


@case
def captures_that_begin_without_host_memory_are_over_at_their_ends():
    if not os.path.exists(built("preload_scarce")):
        skip("a sanitizer has a malloc of its own")
    lines = run(["preload_scarce"]).splitlines()
    expected = ["failures: 80", "allocations by the driver: 0"]
    assert lines == expected, lines


main()

# SPDX-License-Identifier: MIT
"""A runtime with no driver below it, of two devices: the runtime door works alone, and answers as natively."""
from preload import Guest, expect, run, same
from tap import case, main

NO_HEADROOM = {"POOL_HEADROOM_MB": "0"}


def figures_of(part, variables=None):
    with Guest(["preload_lone", part, "wait"], variables=variables) as guest:
        guest.until_ready()
        read = guest.figures()
        guest.end()
        return read


@case
def answers_as_natively():
    same(["preload_lone", "answers"])
    expect(figures_of("answers", NO_HEADROOM), runtime_only=1, allocs=2, frees=2, bad_frees=4, pass_async=2)


@case
def memory_info_counts_what_is_cached_as_free():
    lines = same(["preload_lone", "memory_info"], variables=NO_HEADROOM)
    assert "free after the free as before: 1" in lines, lines


@case
def a_full_device_as_natively():
    for variables in {}, NO_HEADROOM:
        lines = same(["preload_lone", "full"], variables=variables)
        assert "cudaMalloc(&more, 6 * MIB): 2, last error 2" in lines, lines


@case
def blocks_are_taken_and_waited_for_on_their_own_device():
    lines = same(["preload_lone", "devices"])
    assert lines.count("under way: 1 0, device 0") == 1 and lines.count("under way: 0 0, device 0") == 1, lines
    expect(figures_of("devices"), pools=2, allocs=2, frees=2)


@case
def a_reset_forgets_the_blocks():
    lines = same(["preload_lone", "reset"])
    assert lines.count("the runtime's memory: 1") == 3, lines
    expect(figures_of("reset"), pools=1, allocs=6, frees=3, bad_frees=0, segment_releases=0)


@case
def a_limit_is_kept_against_what_the_runtime_still_has():
    lines = run(["preload_lone", "limit"], variables={"POOL_LIMIT_MB": "32"}).splitlines()
    assert [line.split(": ")[1][0] for line in lines] == ["0", "2"], lines
    same(["preload_lone", "limit"])


@case
def a_forked_child_has_the_runtime_to_itself():
    lines = same(["preload_lone", "fork"], variables=NO_HEADROOM)
    assert "the runtime's own: 0" in lines and "cached: 0" in lines and "child's status: 3" in lines, lines


@case
def errno_is_kept():
    lines = run(["preload_lone", "errno"]).splitlines()
    assert lines and all(line.endswith("errno kept") for line in lines), lines


main()

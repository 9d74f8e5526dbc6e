# SPDX-License-Identifier: MIT
"""Programs get the same answers natively and under the pool: codes, last errors, attributes, errno."""
from preload import Guest, expect, run, same
from tap import case, main

SMALL = {"SIM_MEMORY_MB": "64", "POOL_HEADROOM_MB": "0"}
TWO = {"SIM_DEVICES": "2"}


@case
def runtime_answers_as_natively():
    same(["preload_guest_runtime", "answers"])


@case
def static_runtime_answers_as_natively():
    same(["preload_guest_static", "answers"])


@case
def driver_answers_as_natively():
    same(["preload_guest_driver", "answers"])


@case
def what_is_freed_on_a_busy_stream_is_given_out_on_that_stream_only():
    lines = run(["preload_per_thread"]).splitlines()
    assert lines == ["stream 0, then stream 0: did not wait, the same memory",
                     "stream 0, then its name: did not wait, the same memory",
                     "stream 0, then the legacy stream: did not wait, other memory",
                     "a stream, then that stream: did not wait, the same memory",
                     "a stream, then another: did not wait, other memory",
                     "another thread's stream 0: other memory"], lines


@case
def hazard_16_out_of_memory_and_last_error_as_natively():
    for guest in "preload_guest_runtime", "preload_guest_static":
        lines = same([guest, "out_of_memory"], variables=SMALL)
        assert "full: 2" in lines, lines


@case
def other_calls_that_run_out_of_memory_get_what_is_cached():
    with Guest(["preload_guest_runtime", "out_of_memory", "wait"], variables=SMALL) as guest:
        guest.until_ready()
        read = guest.figures()
        expect(read, bad_frees=0)
        assert read["segment_releases"] > 0 and read["oom_failures"] > 0, read
        guest.end()


@case
def hazard_20_bad_frees_leave_neighbours_whole():
    for guest in "preload_guest_runtime", "preload_guest_static":
        lines = same([guest, "neighbours"])
        assert lines.count("neighbours hold: 1 1") == 2, lines
    with Guest(["preload_guest_runtime", "neighbours", "wait"]) as guest:
        guest.until_ready()
        # 5 allocations; refused: base twice, the second block's address twice counting its double free, two inside.
        expect(guest.figures(), allocs=5, frees=5, bad_frees=5, segments=1, segment_releases=0, pass_foreign=0)
        guest.end()


@case
def memory_info_after_a_free_is_as_before_the_allocation():
    lines = same(["preload_guest_runtime", "memory_info"])
    assert "free after the frees as before: 1" in lines, lines
    same(["preload_guest_static", "memory_info"])


@case
def hazard_25_reset_forgets_the_blocks():
    for guest in "preload_guest_runtime", "preload_guest_static":
        lines = same([guest, "reset"])
        assert "new memory works: 1" in lines, lines
    with Guest(["preload_guest_runtime", "reset", "wait"]) as guest:
        guest.until_ready()
        # Three lives, each with one segment; the first life's cached block and live block went with it.
        expect(guest.figures(), pools=1, segments=1, allocs=4, frees=3, misses=3, segment_releases=0, bad_frees=0)
        guest.end()


@case
def hazard_23_threads_without_a_context_are_served():
    same(["preload_guest_runtime", "threads"])
    same(["preload_guest_static", "threads"])
    with Guest(["preload_guest_runtime", "threads", "wait"]) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=2, frees=2, hits=1, misses=1, runtime_door=4, bad_frees=1, pass_no_context=0)
        guest.end()


@case
def hazard_24_a_block_is_freed_on_its_own_device():
    same(["preload_guest_runtime", "devices"], variables=TWO)
    same(["preload_guest_driver", "devices"], variables=TWO)
    # In an older runtime cudaSetDevice does not make the device's context current.
    for guest in "preload_guest_runtime", "preload_guest_static":
        same([guest, "devices"], variables={**TWO, "SIM_RUNTIME_VERSION": "11080"})
    with Guest(["preload_guest_runtime", "devices", "wait"], variables=TWO) as guest:
        guest.until_ready()
        expect(guest.figures(), pools=2, allocs=3, frees=3, misses=2, hits=1)
        guest.end()


@case
def hazard_25_contexts_end_as_natively():
    same(["preload_guest_driver", "contexts"])
    with Guest(["preload_guest_driver", "contexts", "wait"]) as guest:
        guest.until_ready()
        expect(guest.figures(), pass_closed_context=0, bad_frees=0)
        guest.end()


@case
def captures_are_left_to_the_driver():
    same(["preload_guest_driver", "captures"])


@case
def captures_that_end_unannounced_are_over():
    same(["preload_guest_driver", "lost_captures"])
    with Guest(["preload_guest_driver", "lost_captures", "wait"]) as guest:
        guest.until_ready()
        assert guest.lines[-1] == "sequence: 0", guest.lines
        expect(guest.figures(), allocs=7, frees=7, pass_capture=2)
        guest.end()


@case
def exports_answer_as_natively():
    same(["preload_guest_driver", "exports"])


@case
def errno_is_kept():
    for guest in "preload_guest_runtime", "preload_guest_static", "preload_guest_driver":
        lines = run([guest, "errno"]).splitlines()
        kept = [line for line in lines if line.endswith("errno kept")]
        changed = [line for line in lines if line.endswith("errno changed")]
        assert kept and not changed, changed


main()

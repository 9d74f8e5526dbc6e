# SPDX-License-Identifier: MIT
"""Every door shows the same counts for the same calls (sequence.h), worked out by hand."""
import os

from preload import SIM, Guest, built, expect, figures
from tap import case, main, skip

ALLOCS, FREES, MISSES = 7, 7, 1
REQUESTED = (3 * 2**20 + 1000) + (5 + 3) * 2**20 + 1
ROUNDED = (3 * 2**20 + 1024) + (5 + 3) * 2**20 + 512
SEGMENT = 16 * 2**20


def counts(command, runtime_door, **more):
    with Guest(command) as guest:
        guest.until_ready()
        assert guest.lines == [], guest.lines
        expect(guest.figures(), allocs=ALLOCS, frees=FREES, hits=ALLOCS - MISSES, misses=MISSES, runtime_door=runtime_door,
               segment_allocs=MISSES, segment_releases=0, reserved_bytes=SEGMENT, idle_bytes=SEGMENT, releasable_bytes=SEGMENT,
               alloc_requested_bytes=REQUESTED, freed_requested_bytes=REQUESTED, alloc_live_bytes=ROUNDED,
               freed_live_bytes=ROUNDED, bad_frees=0, pools=1, oom_failures=0, event_growth=MISSES, events_of_pool_1=MISSES, pass_foreign=0, pass_capture=0, **more)
        guest.end()


@case
def shared_runtime():
    counts(["preload_shared"], runtime_door=ALLOCS + FREES)


@case
def hazard_12_a_static_runtime_counts_as_a_shared_one():
    counts(["preload_static"], runtime_door=0)
    read = []
    for command in "preload_shared", "preload_static":
        with Guest([command]) as guest:
            guest.until_ready()
            read.append(guest.figures())
            guest.end()
    # By which door, and who looked symbols up.
    apart = {"runtime_door", "driver_door", "symbols_hooked", "proc_address_lookups"}
    different = {name: (value, read[1][name]) for name, value in read[0].items()
                 if value != read[1][name] and name not in apart and not name.endswith(("_ns", "pid"))}
    assert len(read[0]) > 50 and not different, different


@case
def linked_driver():
    counts(["preload_driver", "linked"], runtime_door=0, symbols_hooked=0)


@case
def driver_by_dlsym():
    counts(["preload_driver", "dlsym"], runtime_door=0)


@case
def driver_by_get_proc_address():
    counts(["preload_driver", "v1"], runtime_door=0)


@case
def driver_by_get_proc_address_v2():
    counts(["preload_driver", "v2"], runtime_door=0)


@case
def program_compiled_by_nvcc():
    if not os.path.exists(built("preload_nvcc")):
        skip("there is no nvcc for this processor")
    counts(["preload_nvcc"], runtime_door=ALLOCS + FREES)


@case
def runtime_without_a_driver():
    counts(["preload_mock_plain"], runtime_door=ALLOCS + FREES, runtime_only=1, driver_version=0)


@case
def asynchronous_runtime_without_a_driver_is_waited_for():
    counts(["preload_mock_waits"], runtime_door=ALLOCS + FREES, runtime_only=1)


@case
def asynchronous_runtime_that_cannot_be_waited_for_passes_through():
    with Guest(["preload_mock_async"]) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=0, frees=0, runtime_only=0, pass_no_driver=ALLOCS + FREES)
        guest.end()


@case
def disabled_pool_passes_everything_through():
    for command in ["preload_shared"], ["preload_static"], ["preload_driver", "linked"]:
        with Guest(command, variables={"POOL_ENABLE": "0"}) as guest:
            guest.until_ready()
            expect(guest.figures(), allocs=0, frees=0, segment_allocs=0, pools=0,
                   pass_disabled=ALLOCS + FREES)
            guest.end()


@case
def the_variables_reach_the_pool():
    for variables, read in ((({"POOL_SEGMENT_MB": "32"}), lambda f: f["reserved_bytes"] == 2 * SEGMENT),
                            (({"POOL_TRIM_MB": "1"}), lambda f: f["reserved_bytes"] == 0 and f["trims"] > 0),
                            (({"POOL_MAX_SPLIT_MB": "4"}), lambda f: f["segment_allocs"] > 1),
                            (({"POOL_HEADROOM_MB": "60", "SIM_MEMORY_MB": "64"}), lambda f: f["reserved_bytes"] < SEGMENT)):
        with Guest(["preload_shared"], variables=variables) as guest:
            guest.until_ready()
            assert guest.lines == [], guest.lines
            assert read(guest.figures()), (variables, guest.figures())
            guest.end()
    with Guest(["preload_shared"], variables={"POOL_LIMIT_MB": "4"}) as guest:
        guest.until_ready()
        assert guest.lines == ["call 8 failed"], guest.lines
        expect(guest.figures(), oom_failures=1, reserved_bytes=4 * 2**20)
        guest.end(status=8)


@case
def a_runtime_that_finds_no_driver_is_left_alone():
    with Guest(["preload_shared"], sim=SIM.split(":")[1]) as guest:
        guest.until_ready()
        assert guest.lines == ["call 1 failed"], guest.lines
        expect(guest.figures(), allocs=0, pools=0, runtime_only=0)
        guest.end(status=1)


@case
def figures_begin_with_the_first_cuda_call_and_end_with_the_process():
    with Guest(["preload_shared"]) as guest:
        guest.until_ready()
        expect(guest.figures(), state=1, driver_version=13000)
        pid = guest.process.pid
        guest.end()
    assert figures(pid) is None
    assert not [name for name in os.listdir("/dev/shm") if f"-{pid}-" in name]


@case
def no_figures_without_a_cuda_call():
    with Guest(["preload_idle"]) as guest:
        guest.until_ready()
        assert guest.figures() is None
        guest.end()


@case
def no_figures_when_they_are_switched_off():
    with Guest(["preload_shared"], variables={"POOL_STATS": "0"}) as guest:
        guest.until_ready()
        assert guest.figures() is None
        guest.end()


main()

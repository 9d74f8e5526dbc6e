# SPDX-License-Identifier: MIT
"""Programs, runtimes and drivers of unusual shapes: the same answers as natively, and pooled where they can be."""
import os

from preload import GUESTS, LIBRARY, SIM, Guest, built, expect, run, same
from tap import case, main, skip

HERE = ":".join([SIM, *GUESTS])
SANITIZER = os.environ.get("PRELOAD_SANITIZER", "none")
WORK = "hazard_shapes", "hazard_shapes_static"
PLAIN, ASYNC = 13, 4  # what `work` allocates outside captures, and frees: by cudaMalloc, by cudaMallocAsync
CALLS = {
    "stream_ordered": "cuMemAllocAsync,cuMemFreeAsync,cuMemAllocFromPoolAsync",
    "identity": "cuStreamGetId",
    "context_event": "cuCtxRecordEvent",
    "capture_mode": "cuThreadExchangeStreamCaptureMode",
}


def figures_of(command, variables=None, **options):
    wait = [] if command[0].startswith("preload_") else ["wait"]  # those always do
    with Guest([*command, *wait], variables=variables, **options) as guest:
        guest.until_ready()
        read = guest.figures()
        guest.end()
        return read


def check_work(variables, stream_ordered=True, guests=WORK, **expected):
    """`work` answers as natively, and is pooled."""
    served = PLAIN + (ASYNC if stream_ordered else 0)
    for guest in guests:
        lines = same([guest, "work"], variables=variables)
        assert len(lines) > 75 and lines.count("they hold: 1 1") == (4 if stream_ordered else 2), lines
        expect(figures_of([guest, "work"], variables), allocs=served, frees=served, pools=2 if stream_ordered else 1,
               bad_frees=4 + stream_ordered, event_fallback=0, **expected)


@case
def foreign_driver_without_stream_ordered_calls():
    check_work({"SIM_MISSING": CALLS["stream_ordered"]}, stream_ordered=False)


@case
def foreign_driver_without_stream_identities():
    check_work({"SIM_MISSING": CALLS["identity"]})


@case
def foreign_driver_without_context_events():
    check_work({"SIM_MISSING": CALLS["context_event"]}, fences=0)
    check_work({"SIM_MISSING": CALLS["context_event"], "POOL_FREE": "event"}, fences=0)


@case
def foreign_driver_without_exchange_of_capture_modes():
    check_work({"SIM_MISSING": CALLS["capture_mode"]})


@case
def foreign_driver_without_any_of_them():
    check_work({"SIM_MISSING": ",".join(CALLS.values())}, stream_ordered=False, fences=0)
    check_work({"SIM_MISSING": ",".join(CALLS.values()), "POOL_FREE": "event"}, stream_ordered=False, fences=0)


@case
def foreign_driver_and_runtime_of_an_older_time():
    for version in "12040", "11080":
        check_work({"SIM_DRIVER_VERSION": version, "SIM_RUNTIME_VERSION": version}, driver_version=int(version))


@case
def foreign_runtime_that_asks_by_the_old_look_up():
    check_work({"SIM_RUNTIME_LOOKUP": "v1"})
    check_work({"SIM_RUNTIME_LOOKUP": "v1", "SIM_MISSING": "cuGetProcAddress_v2"})


@case
def foreign_program_compiled_for_per_thread_streams():
    check_work({}, guests=("hazard_shapes_per_thread", "hazard_shapes_per_thread_static"))
    same(["preload_per_thread"], variables={"POOL_ENABLE": "0"})


@case
def foreign_two_contexts_in_turn():
    lines = same(["hazard_shapes_contexts"])
    assert [line for line in lines if line.startswith("block")] == [
        f"block of context {i}" for i in (0, 0, 0, 1, 1, 1, 1, 0)], lines
    # Two blocks are left when their context ends; the free of one of them is the driver's to refuse.
    expect(figures_of(["hazard_shapes_contexts"]), allocs=8, frees=6, misses=2, pass_foreign=1, segments=1)


@case
def foreign_threads_whose_first_call_is_a_free():
    for guest in WORK:
        same([guest, "bare"])
        expect(figures_of([guest, "bare"]), allocs=4, frees=4, bad_frees=1, pass_foreign=0)


@case
def foreign_allocations_before_main_and_frees_after_it():
    for guest in "hazard_shapes_statics", "hazard_shapes_statics_static":
        lines = same([guest])
        assert lines[:3] == ["before main: 0", "before main: 0 0", "main: 0 0 0"], lines
        expect(figures_of([guest]), allocs=5, frees=1, misses=2)


@case
def foreign_compute_sanitizer_is_left_alone_with_the_program():
    for library in "collection", "public":
        beside = [built(f"libsanitizer-{library}.so")]
        for guest in WORK:
            same([guest, "work"], beside=beside)
            read = figures_of([guest, "work"], beside=beside)
            expect(read, allocs=0, frees=0, pools=0, segment_allocs=0)
            assert read["pass_tool"] > PLAIN + ASYNC, read
        expect(figures_of(["hazard_shapes", "work"], {"POOL_ENABLE": "1"}, beside=beside), allocs=PLAIN + ASYNC, pass_tool=0)


def other_hook():
    if "address" in SANITIZER or "thread" in SANITIZER:
        skip("the sanitizer looks its functions up before another library's dlsym can answer")
    return built("libshapes_dlsym.so")


@case
def foreign_hook_of_dlsym_behind_ours():
    """It is passed over, as every dlsym that is not libc's."""
    beside = [other_hook()]
    for guest in WORK:
        lines = same([guest, "work"], beside=beside)
        assert lines[-1] == "the other hook saw: 0", lines
        expect(figures_of([guest, "work"], beside=beside), allocs=PLAIN + ASYNC)
    expect(figures_of(["preload_driver", "dlsym"], beside=beside), allocs=7, frees=7)


@case
def foreign_hook_of_dlsym_in_front_of_ours():
    """It asks libc itself, so that nobody is given our hooks; what is linked with our exports is pooled."""
    hook = other_hook()

    def preloaded(pool):
        return {"LD_PRELOAD": ":".join([hook, LIBRARY] if pool else [hook])}

    for command in [WORK[0], "work"], [WORK[1], "work"], ["preload_driver", "dlsym"], ["preload_driver", "linked"]:
        native = run(command, pool=False, variables=preloaded(False))
        assert run(command, variables=preloaded(True)) == native, command
    assert "the other hook saw: 7" in run(["preload_driver", "dlsym"], variables=preloaded(True))
    expect(figures_of(["preload_driver", "linked"], preloaded(True)), allocs=7, frees=7)
    expect(figures_of([WORK[0], "work"], preloaded(True)), allocs=0, frees=0, segment_allocs=0)


@case
def foreign_interposer_of_the_runtime_sees_every_call():
    beside = [built("libinterposer.so")]
    lines = same([WORK[0], "work"], beside=beside)
    assert lines[-1] == "interposed: 18", lines
    expect(figures_of([WORK[0], "work"], beside=beside), allocs=PLAIN + ASYNC, frees=PLAIN + ASYNC, bad_frees=5)


@case
def foreign_tool_that_the_driver_loads():
    variables = {"CUDA_INJECTION64_PATH": built("libshapes_injection.so")}
    for guest in WORK:
        lines = same([guest, "work"], variables=variables)
        assert lines[:5] == [f"tool {does}: 0" for does in ("starts", "retains", "enters", "allocates", "frees")], lines
        expect(figures_of([guest, "work"], variables), allocs=PLAIN + ASYNC + 1, frees=PLAIN + ASYNC + 1)


@case
def foreign_machine_without_a_driver_is_not_searched_at_every_call():
    if SANITIZER != "none":
        skip("the sanitizer walks through the loaded objects itself")
    lines = same(["hazard_shapes_counts"], sim=SIM.split(":")[1])
    assert lines == ["first: 35", "then: 35", "walks a call: few"], lines


main()

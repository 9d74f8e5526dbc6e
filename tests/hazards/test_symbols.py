# SPDX-License-Identifier: MIT
"""Which functions programs, runtimes and plug-ins find, in cases that broke interposers of this kind."""
import os
import shutil
import tempfile

from preload import GUESTS, SIM, Guest, built, expect, run, same
from tap import case, main, skip

HERE = ":".join([SIM, *GUESTS])
RUNTIME_12 = os.path.join(GUESTS[0], "runtime_12")
SANITIZER = os.environ.get("PRELOAD_SANITIZER", "none")


@case
def hazard_06_the_per_thread_variants_are_found_and_mean_the_threads_own_stream():
    for how in "dlsym", "v1", "v2":
        lines = run(["hazard_symbols_per_thread", how]).splitlines()
        assert lines == ["plain: the legacy stream", "for per-thread streams: its thread's"], (how, lines)


@case
def hazard_13_a_constructor_may_wait_for_a_thread_that_allocates():
    """The loader's lock is held while a constructor runs."""
    lines = same(["hazard_symbols_host", "waits", "libsymbols_waits.so"], sim=HERE)
    assert lines == ["program allocates: 0", "thread's sequence: 0", "the constructor ends", "program frees: 0", "ready"], lines
    lines = same(["hazard_symbols_host", "first", "libsymbols_waits_driver.so"], sim=HERE)
    assert lines == ["thread's sequence: 0", "the constructor ends", "ready"], lines
    for command, served in (["waits", "libsymbols_waits.so"], 8), (["first", "libsymbols_waits_driver.so"], 7):
        with Guest(["hazard_symbols_host", *command], sim=HERE) as guest:
            guest.until_ready()
            expect(guest.figures(), allocs=served, frees=served, misses=1, segment_allocs=1)
            guest.end()


@case
def hazard_13_two_runtimes_of_different_names_share_the_pool():
    here = f"{RUNTIME_12}:{HERE}"
    lines = same(["hazard_symbols_host", "apart", "libsymbols_plugin_12.so"], sim=here)
    assert "last errors: 1, of the plug-in's runtime 0" in lines and "last errors: 0, of the plug-in's runtime 1" in lines, lines
    with Guest(["hazard_symbols_host", "apart", "libsymbols_plugin_12.so"], sim=here) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=16, frees=16, misses=1, runtime_door=32, bad_frees=2, segment_allocs=1)
        guest.end()


@case
def hazard_13_a_runtime_is_known_behind_many_objects_that_look_symbols_up():
    count = 600
    with tempfile.TemporaryDirectory(prefix="many-") as folder:
        for number in range(count):
            shutil.copy(built("libsymbols_looks_up.so"), os.path.join(folder, f"lib{number}.so"))
        lines = same(["hazard_symbols_host", "many", "libsymbols_plugin_12.so", folder], sim=f"{RUNTIME_12}:{HERE}")
    assert lines == [f"{count} look-ups", "sequence: 0", "plug-in allocates: 0", "plug-in frees: 0", "once more: 1",
                     "last error: 1", "and then: 0", "ready"], lines


def going_around(part, variables=None):
    if "address" in SANITIZER or "thread" in SANITIZER:
        skip("the sanitizer refuses RTLD_DEEPBIND")
    return Guest(["hazard_symbols_host_static", part, "libsymbols_plugin.so"], sim=HERE, variables=variables)


@case
def hazard_14_frees_between_the_program_and_a_plug_in_that_goes_around_harm_nobody():
    with going_around("deep") as guest:
        guest.until_ready()
        assert guest.lines == ["program allocates: 0", "plug-in allocates: 0", "program frees the plug-in's: 0",
                               "plug-in frees that: 1", "plug-in frees the program's: 1", "program allocates: 0",
                               "other memory: 1", "program frees: 0"], guest.lines
        expect(guest.figures(), allocs=3, frees=3, pass_foreign=1, bad_frees=0, segment_allocs=1)
        guest.end()


@case
def hazard_14_memory_of_the_pool_that_was_freed_around_it_is_told_in_the_log():
    with tempfile.TemporaryDirectory(prefix="log-") as folder:
        log = os.path.join(folder, "log")
        with going_around("behind", {"POOL_TRIM_MB": "1", "POOL_LOG": "1", "POOL_LOG_FILE": log}) as guest:
            guest.until_ready()
            # The driver sees the start of an allocation of its own, which is the pool's segment.
            assert guest.lines == ["program allocates: 0", "plug-in frees the program's: 0", "program frees it: 0"], guest.lines
            expect(guest.figures(), allocs=1, frees=1, segment_releases=1, reserved_bytes=0)
            guest.end()
        with open(log, encoding="utf-8") as file:
            text = file.read()
        assert "the driver answered 1 to the release of 16777216 bytes" in text, text


main()

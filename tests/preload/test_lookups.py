# SPDX-License-Identifier: MIT
"""What programs find by dlsym and cuGetProcAddress, natively and under the pool."""
import os
import re
import subprocess

from preload import GUESTS, SIM, SOURCE, Guest, built, environment, expect, launch, run, same
from tap import case, main, skip

HERE = ":".join([SIM, *GUESTS])
LEVELS = "preload_lookups_0", "preload_lookups_2"


def hooked_names():
    with open(os.path.join(SOURCE, "src/entry/hooks.h"), encoding="utf-8") as file:
        return re.findall(r"^\s+X\((cu\w+),", file.read(), re.M)


def look_up_versions(pool, variables=None):
    symbols = hooked_names()
    bases = sorted({re.sub(r"(_v\d)?(_ptsz)?$", "", symbol) for symbol in symbols})
    names = sorted(set(symbols) | set(bases) | {"cuInit", "cuStreamGetId", "cuNoSuchFunction"})
    done = subprocess.run(**launch([LEVELS[0], "versions"], environment(pool, variables)), input="\n".join(names),
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [line.rsplit(" ", 1) for line in done.stdout.splitlines()]


def check_versions(variables=None):
    native, pooled = look_up_versions(False, variables), look_up_versions(True, variables)
    hooked = set(hooked_names())
    assert len(native) == len(pooled) > 1000
    for (expected, _), (found, place) in zip(native, pooled):
        assert found == expected, f"native: {expected}\npooled: {found}"
        symbol = found.rsplit(" ", 1)[1]
        if symbol in hooked:
            assert place == "libpoolcuda.so", f"{found}: in {place}"
        else:
            assert place != "libpoolcuda.so", f"{found}: in {place}"
    return {found.rsplit(" ", 1)[1] for found, _ in pooled}


@case
def hazard_05_every_hooked_name_in_every_version_and_flag_is_the_drivers_answer_hooked():
    found = check_versions()
    for symbol in "cuMemAlloc_v2", "cuMemFreeAsync_ptsz", "cuGetProcAddress", "cuGetProcAddress_v2", "cuCtxCreate_v4":
        assert symbol in found, symbol


@case
def hazard_08_an_old_driver_is_looked_up_in_alike():
    for version in "11010", "11080", "12040":  # with neither form of cuGetProcAddress, the first, both
        check_versions({"SIM_DRIVER_VERSION": version})


@case
def hazard_08_a_driver_that_lacks_entry_points_is_pooled():
    old = {"SIM_DRIVER_VERSION": "11010"}
    with Guest(["preload_driver", "dlsym"], variables=old) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=7, frees=7, hits=6, misses=1, driver_version=11010)
        guest.end()


@case
def hazard_07_odd_questions_are_answered_as_natively():
    same([LEVELS[1], "odd"])


@case
def hazard_10_dlerror_says_what_it_says_natively():
    for guest in LEVELS:
        same([guest, "errors"], sim=HERE)


@case
def hazard_01_names_that_look_like_the_drivers_are_left_alone():
    lines = same([LEVELS[1], "names"], sim=HERE)
    assert sum("in libother_names.so says" in line for line in lines) == 8 + 6, lines


@case
def hazard_02_a_thousand_look_ups_in_eight_threads_are_equal():
    lines = same([LEVELS[1], "threads"])
    assert len(lines) == 8 and all(line.endswith(": 0 different") for line in lines), lines


@case
def hazard_03_the_true_caller_is_seen_through_the_trampoline():
    for guest in LEVELS:
        lines = same([guest, "scopes"], sim=HERE)
        assert lines == ["2 links: program first second (end)", "own name found", "not from here: nothing"], lines


@case
def hazard_11_an_allocator_that_looks_symbols_up_works():
    if os.environ.get("PRELOAD_SANITIZER", "none") in ("address", "address,undefined", "thread"):
        skip("the sanitizer has replaced the allocator")
    noisy = built("libnoisy_malloc.so")
    for command in ["preload_shared"], ["preload_driver", "dlsym"]:
        with Guest(command, beside=[noisy]) as guest:
            guest.until_ready()
            assert guest.lines == [], guest.lines
            expect(guest.figures(), allocs=7, frees=7, hits=6, misses=1)
            guest.end()


@case
def hazard_04_a_driver_in_two_stages_is_hooked_once():
    stages = built("two_stage")
    for how in "dlsym", "linked":
        with Guest(["preload_driver", how], sim=stages) as guest:
            guest.until_ready()
            assert guest.lines == [], guest.lines
            expect(guest.figures(), allocs=7, frees=7, hits=6, misses=1, segment_allocs=1)
            guest.end()


@case
def two_names_of_one_function_are_hooked_by_neither():
    with Guest(["preload_driver", "dlsym"], sim=built("one_function")) as guest:
        guest.until_ready()
        assert guest.lines == [], guest.lines
        # What a 0 stream means in a free is not to be known, so nothing is pooled.
        expect(guest.figures(), allocs=0, frees=0, pools=0, pass_no_driver=14, event_fallback=1)
        guest.end()


@case
def two_names_of_one_function_that_frees_nothing_are_left_to_the_driver():
    with Guest(["preload_driver", "dlsym"], sim=built("one_end")) as guest:
        guest.until_ready()
        assert guest.lines == [], guest.lines
        # Of what the program looks up, cuMemAlloc, cuMemFree and cuDevicePrimaryCtxRetain.
        expect(guest.figures(), allocs=7, frees=7, hits=6, symbols_hooked=3, event_fallback=1)
        guest.end()


@case
def hazard_04_other_addresses_of_the_drivers_functions_are_hooked_too():
    for how in "v2", "dlsym":
        with Guest(["preload_driver", how], sim=built("other_addresses")) as guest:
            guest.until_ready()
            assert guest.lines == [], guest.lines
            expect(guest.figures(), allocs=7, frees=7, hits=6, misses=1)
            guest.end()


@case
def a_driver_of_another_name_is_pooled():
    with Guest(["preload_other_driver", "linked"], sim=":".join(GUESTS)) as guest:
        guest.until_ready()
        assert guest.lines == [], guest.lines
        expect(guest.figures(), allocs=7, frees=7, hits=6, misses=1)
        guest.end()


@case
def a_dlsym_that_is_not_libcs_is_passed_over():
    with Guest(["preload_driver", "dlsym"], beside=[built("libother_dlsym.so")]) as guest:
        guest.until_ready()
        assert guest.lines == [], guest.lines
        expect(guest.figures(), allocs=7, frees=7, hits=6, misses=1)
        guest.end()


@case
def hazard_03_what_lies_behind_a_library_is_found_past_the_pool():
    lines = run(["preload_driver", "linked"], beside=[built("liblooks_behind.so")]).splitlines()
    assert lines == ["behind: libcuda.so.1", "ready"], lines


@case
def hazard_13_a_plug_in_with_a_runtime_of_its_own_is_pooled():
    with Guest(["preload_host", "libplugin.so"], sim=HERE) as guest:
        guest.until_ready()
        assert guest.lines == ["plug-in's sequence: 0"], guest.lines
        expect(guest.figures(), allocs=7, frees=7, hits=6, misses=1, runtime_door=14, runtime_only=0)
        guest.end()


@case
def hazard_13_a_call_that_returns_into_a_program_without_a_runtime_finds_one():
    lines = same(["preload_host", "libplugin.so", "calls"], sim=HERE)
    assert lines == ["plug-in allocates: 0", "plug-in frees: 0"] * 2 + ["ready"], lines


@case
def hazard_13_another_runtime_is_not_asked_to_free_a_block():
    with Guest(["preload_host_runtime", "libplugin_12.so", "frees"], sim=HERE) as guest:
        guest.until_ready()
        assert guest.lines == ["allocates: 0 0", "plug-in frees: 0", "once more: 1", "frees: 0"], guest.lines
        expect(guest.figures(), allocs=2, frees=2, bad_frees=1)
        guest.end()


@case
def hazard_13_a_plug_in_that_is_loaded_again_is_bound_again():
    if "thread" in os.environ.get("PRELOAD_SANITIZER", "none"):
        skip("the sanitizer calls what an unloaded library has registered with atexit")
    for plugin in "libplugin.so", "libplugin_12.so":
        with Guest(["preload_host", plugin, "reload"], sim=HERE) as guest:
            guest.until_ready()
            assert guest.lines == ["plug-in's sequence: 0", "once more: 0"], guest.lines
            guest.end()


@case
def hazard_13_two_runtimes_in_one_process_keep_apart():
    with Guest(["preload_host_runtime", "libplugin_12.so"], sim=HERE) as guest:
        guest.until_ready()
        assert guest.lines == ["own sequence: 0", "plug-in's sequence: 0", "own sequence: 0"], guest.lines
        # The plug-in's runtime is not over the driver that the pool is over: its calls are its own.
        expect(guest.figures(), allocs=14, frees=14, hits=13, misses=1, runtime_door=28, bad_frees=0)
        guest.end()


main()

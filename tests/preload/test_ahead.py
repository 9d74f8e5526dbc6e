# SPDX-License-Identifier: MIT
"""Memory reserved ahead (POOL_PREALLOC_MB, POOL_FIXED), as programs find it: whence they are served, that nothing else
changes for them, and what is said when there is less than was asked for."""
import os
import subprocess
import tempfile

from preload import Guest, environment, expect, launch, run, same
from tap import case, main

MIB = 1 << 20
AHEAD = {"POOL_PREALLOC_MB": "64", "POOL_FIXED": "5000B*2,1MiB*3"}


def logged(variables):
    """What is said of the reservations in the two lives of a program's context."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        run(["preload_fill"], variables={**variables, "POOL_LOG": "1", "POOL_LOG_FILE": log})
        if not os.path.exists(log):
            return []
        with open(log) as file:
            return [line.rstrip("\n").split(": ", 2)[-1] for line in file]


@case
def a_program_is_served_from_what_was_reserved():
    for free in "sync", "event":
        with Guest(["preload_fill", "wait"], variables={**AHEAD, "POOL_FREE": free}) as guest:
            guest.until_ready()
            # The figures of two lives, in each one block at a time, beside one that waits: the reset forgot what the first had.
            figures = guest.figures()
            expect(figures, prealloc_bytes=64 * MIB, prealloc_unused_bytes=64 * MIB, fixed_blocks=5, fixed_asked_blocks=10,
                   fixed_misses=0, bad_frees=0, growths=0)
            assert figures["fixed_hits"] > 0 and 2 <= figures["fixed_peak_in_use"] <= 4, figures
            guest.end()


@case
def without_them_nothing_is_reserved_ahead():
    with Guest(["preload_fill", "wait"]) as guest:
        guest.until_ready()
        expect(guest.figures(), prealloc_bytes=0, fixed_blocks=0, fixed_asked_blocks=0, fixed_free_bytes=0)
        guest.end()


@case
def blocks_of_a_fixed_size_are_filled_too():
    for fill, byte in ("zero", "00"), ("poison", "ff"):
        lines = run(["preload_fill"], variables={**AHEAD, "POOL_FILL": fill}).splitlines()
        assert len(lines) == 7 and all("holds " + byte in line for line in lines), lines


@case
def programs_answer_as_without():
    for free in "sync", "event":
        variables = {"POOL_PREALLOC_MB": "64", "POOL_FIXED": "4KiB*2,1MiB*2", "POOL_FREE": free}
        for guest, parts in ("runtime", ("answers", "reset", "threads")), ("driver", ("contexts", "captures")):
            for part in parts:
                same([f"preload_guest_{guest}", part], variables=variables)


@case
def what_the_driver_does_not_give_is_said_in_the_log():
    # 1,024 MiB, of which the headroom is 256; in the second life 32 are a memory pool's.
    found = logged({"SIM_MEMORY_MB": "1024", "POOL_PREALLOC_MB": "1000", "POOL_FIXED": "100MiB*3"})
    assert found == [f"POOL_PREALLOC_MB: {there} of 1000 MiB could be reserved" for there in (468, 436)], found
    found = logged({"SIM_MEMORY_MB": "1024", "POOL_FIXED": "100MiB*9"})
    assert found == ["POOL_FIXED: 7 of 9 blocks of 104857600 bytes could be reserved"] * 2, found
    assert logged(AHEAD) == []


@case
def a_bad_list_costs_one_line_and_is_not_used():
    variables = environment(variables={"POOL_FIXED": "64MiB*0"})
    done = subprocess.run(**launch(["preload_fill"], variables), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done
    assert done.stderr == ("poolcuda: POOL_FIXED=64MiB*0: 64MiB*0 has a count that is not 1 to 1048576; accepted is none, "
                           "or up to 16 different SIZE*COUNT with B, KiB, MiB or GiB, as 64MiB*32,1MiB*256; using none\n"), done.stderr


main()

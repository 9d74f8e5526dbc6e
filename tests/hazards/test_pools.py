# SPDX-License-Identifier: MIT
"""The program's own memory pools (row 21): as natively, whatever the program does with them."""
from preload import run, same
from tap import case, main

TWO = {"SIM_DEVICES": "2"}
EVENT = {"POOL_FREE": "event"}


def as_natively(*part, variables=None):
    for more in {}, EVENT:
        lines = same(["hazard_pools", *part], variables={**(variables or {}), **more})
    return lines


@case
def hazard_21_a_pool_set_as_current_serves_from_then_on_and_none_mixes():
    lines = as_natively("current")
    assert sum(line.endswith("8 of 8 from that pool") for line in lines) == 7, lines
    as_natively("current", variables={"SIM_RACES": "1"})


@case
def hazard_21_each_device_has_its_own_current_pool():
    lines = as_natively("devices", variables=TWO)
    assert sum(line.endswith("8 of 8 from that pool") for line in lines) == 4, lines


@case
def hazard_21_access_is_that_of_the_pool_that_memory_came_from():
    lines = as_natively("access", variables=TWO)
    assert "may be used: 3 3, by its own device: 3" in lines and "may be used: 0 0, by its own device: 3" in lines, lines
    assert lines.count("a kernel of the other device: 0 0") == 1 and "a kernel of the other device: 700" in lines, lines


@case
def hazard_21_a_trimmed_pool_gives_back_what_nobody_uses():
    lines = as_natively("trim")
    assert "reserved: 0, taken as before: 1" in lines, lines


@case
def hazard_21_a_destroyed_pools_memory_goes_and_its_live_blocks_stay():
    lines = as_natively("destroyed")
    assert "the default one: 1, taken as before: 1" in lines and lines.count("taken as before: 1") == 2, lines


@case
def hazard_21_a_pool_whose_end_is_refused_goes_on():
    lines = as_natively("kept")
    assert "cuMemPoolDestroy(own): 900" in lines, lines


@case
def hazard_21_a_pool_of_a_most_is_filled_to_the_last_as_natively():
    lines = as_natively("limited")
    assert lines[0] == "8 of 1 MiB, then 2; they hold: 8, used: 8388608", lines


@case
def hazard_21_what_the_default_pool_says_is_used_is_what_the_program_uses():
    lines = as_natively("attributes")
    assert "used of two blocks: 3146733" in lines, lines


@case
def hazard_21_pointers_of_a_pool_that_can_be_exported_are_the_drivers():
    lines = as_natively("exported")
    imports = [line for line in lines if line.startswith("import:")]
    assert imports == [f"import: 0, byte {10 + i} of 5000" for i in range(8)], imports
    native = run(["hazard_pools", "exported"], pool=False)
    assert run(["hazard_pools", "exported", "native"]) == native, "where the importer has no pool"


main()

# SPDX-License-Identifier: MIT
"""Every pointer in every free function, wrong frees, NULL and nothing, attributes, memory that runs out: as natively."""
import os

from every_hook import hooks
from preload import run, same
from tap import case, main, skip

RUNTIMES = ["hazard_pointers_runtime", "hazard_pointers_static"]
SMALL = {"SIM_MEMORY_MB": "64", "POOL_HEADROOM_MB": "0"}
MODES = [{}, {"POOL_FREE": "event"}, {"POOL_ASYNC": "0"}]


def checked(command, variables):
    """As natively, and over the library with a door to its invariants."""
    lines = same(command, variables=variables)
    if not os.path.exists(os.environ["HAZARDS_CHECKED"]):
        skip("the library with a door to its invariants is not built")
    over = run(command, pool=False, variables=variables, beside=[os.environ["HAZARDS_CHECKED"]]).splitlines()
    different = [f"native: {a}\nchecked: {b}" for a, b in zip(lines, over) if a != b]
    assert not different and len(lines) == len(over), "\n".join(different) or f"{len(lines)} lines, {len(over)} checked"
    return lines


@case
def hazard_15_driver_frees_of_every_producer_as_natively():
    for variables in MODES:
        lines = checked(["hazard_pointers", "every_producer"], variables)
        assert len(lines) == 225, len(lines)


@case
def hazard_15_runtime_frees_of_every_producer_as_natively():
    for guest in RUNTIMES:
        lines = same([guest, "every_producer"])
        assert len(lines) == 183, len(lines)
    checked([RUNTIMES[0], "every_producer"], MODES[1])


@case
def hazard_16_out_of_memory_answers_2_and_leaves_its_error_once():
    for guest in RUNTIMES:
        lines = same([guest, "out_of_memory"], variables=SMALL)
        failed = [line for line in lines if "impossible" in line or ("full" in line and "Managed" not in line)]
        assert len(failed) > 12 and all(": 2 (last error 2 2 0)" in line for line in failed), failed
        again = [line for line in lines if "fits again" in line]
        assert len(again) == 6 and all(": 0 (last error 0 0 0)" in line for line in again), again
    lines = same(["hazard_pointers", "out_of_memory"], variables=SMALL)
    assert lines[0] == "full: 2, filled 1", lines


@case
def hazard_16_beyond_the_limit_answers_2_and_leaves_its_error_once():
    for guest in RUNTIMES:
        lines = run([guest, "out_of_limit"], variables={"POOL_LIMIT_MB": "32"}).splitlines()
        beyond = [line for line in lines if "beyond" in line]
        within = [line for line in lines if "beyond" not in line]
        assert len(beyond) == 3 and all(": 2 (last error 2 2 0)" in line for line in beyond), lines
        assert within and all(": 0 (last error 0 0 0)" in line for line in within), lines


@case
def hazard_17_nothing_in_every_argument_of_every_hook_as_natively():
    for variables in MODES[:2]:
        lines = checked(["hazard_every_hook", "null", *hooks()], variables)
        assert lines[-1] == "invariants broken: none", lines[-1]
        for when in "before cuInit", "current context":
            assert sum(line.startswith(when + ", ") for line in lines) == len(hooks()), when


@case
def hazard_18_attributes_of_blocks_as_natively():
    for guest in ["hazard_pointers", *RUNTIMES]:
        lines = same([guest, "attributes"])
        aligned = [line for line in lines if "bytes: 0, aligned" in line]
        assert len(aligned) == 12 and all("aligned 1" in line for line in aligned), aligned


@case
def hazard_20_wrong_frees_answer_1_and_harm_nobody():
    for variables in MODES:
        lines = checked(["hazard_pointers", "wrong_frees"], variables)
        wrong = [line for line in lines if "again 1 1; inside it 1; inside others 1 1; garbage 1; neighbours whole 1" not in line
                 or not line.endswith("neighbours whole 1; invariants broken: none; the others freed 0")]
        assert len(lines) == 72 and not wrong, wrong
    for guest in RUNTIMES:
        lines = checked([guest, "wrong_frees"], {})
        assert len(lines) == 48 and all("neighbours whole 1" in line for line in lines), lines


@case
def hazard_20_a_free_of_what_went_back_to_the_driver_is_the_drivers():
    lines = checked(["hazard_pointers", "anothers"], {"POOL_TRIM_MB": "0"})
    assert len(lines) == 2 and all("same address 1" in line for line in lines), lines


main()

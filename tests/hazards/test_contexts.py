# SPDX-License-Identifier: MIT
"""Contexts that are missing, dead, another's, or come back; devices that are not the current one; ends: as natively."""
import signal
import tempfile

from every_hook import hooks
from preload import run, same
from tap import case, main

TWO = {"SIM_DEVICES": "2"}
EVENT = {"POOL_FREE": "event"}
PLAIN = {"POOL_ASYNC": "0"}
OLD = {"SIM_RUNTIME_VERSION": "11080"}
RUNTIMES = ["hazard_contexts_runtime", "hazard_contexts_static"]


@case
def hazard_23_every_hook_from_a_bare_thread_as_natively():
    for variables in {}, EVENT:
        lines = same(["hazard_every_hook", "bare", *hooks()], variables=variables)
        assert lines[-1] == "invariants broken: none", lines[-1]
        assert sum(line.startswith("no context, ") for line in lines) == len(hooks())


@case
def hazard_23_the_driver_refuses_a_bare_thread_and_the_block_stands():
    lines = same(["hazard_every_hook", "bare", *hooks()])
    for call in "cuMemFree_v2(plain)", "cuMemFree_v2(async)", "cuMemAlloc_v2(TO(p), 4096)":
        answers = [line.rpartition(" ")[2] for line in lines if line.startswith(call + ":")]
        assert "201" in answers, f"{call}: {answers}"


@case
def hazard_24_a_driver_free_finds_its_own_device():
    for variables in {}, EVENT, PLAIN:
        lines = same(["hazard_contexts", "devices"], variables={**TWO, **variables})
        assert lines.count("plain: free memory as before: 1 1") == 1, lines
        assert lines.count("async: free memory as before: 1 1") == 1, lines
        assert lines.count("plain with none current: 201") == 1 and lines.count("it stands: 0") == 2, lines


@case
def hazard_24_a_free_waits_for_its_own_device_alone():
    lines = same(["hazard_contexts", "waits"], variables=TWO)
    assert lines == ["freed with the other current: 0, left on its device 0, on the other 1", "the other's: 0"], lines


@case
def hazard_24_a_runtime_free_finds_its_own_device():
    for guest in RUNTIMES:
        for variables in {}, EVENT, PLAIN, OLD:
            lines = same([guest, "devices"], variables={**TWO, **variables})
            assert len(lines) == 2 and all("on device 0, with the other chosen: 0" in line for line in lines), lines


@case
def hazard_25_blocks_end_with_their_context():
    for variables in {}, EVENT, PLAIN:
        lines = same(["hazard_contexts", "lives"], variables=variables)
        assert len(lines) == 8 and all(line.count("new ones work 1 1 1") == 2 for line in lines[0:3]), lines


@case
def hazard_25_blocks_end_with_a_reset_and_those_of_the_async_kind_do_not():
    for guest in RUNTIMES:
        for variables in {}, EVENT, PLAIN, OLD:
            lines = same([guest, "lives"], variables=variables)
            assert len(lines) == 4 and all(line.endswith("reads 5; invariants broken: none") for line in lines), lines


@case
def hazard_25_a_context_that_others_hold_goes_on_and_nobody_is_waited_for():
    lines = same(["hazard_contexts", "held"], variables={"SIM_ALLOC_WAITS": "1"})
    assert lines.count("works on: 1") == 4 and "kept: 0, 5, freed 0" in lines, lines


@case
def hazard_25_threads_hold_a_context_now_and_then():
    for variables in {}, EVENT:
        lines = same(["hazard_contexts", "threads"], variables=variables)
        assert lines == ["bad: 0 0 0 0, active 0, invariants broken: none"], lines


@case
def hazard_25_a_dead_context_is_answered_for_as_natively():
    for variables in {}, EVENT, PLAIN:
        lines = same(["hazard_contexts", "dead"], variables={**TWO, **variables})
        assert lines[1].startswith("after it: async 709, plain of the other device 709"), lines
        assert lines[2].startswith("retained: async 0"), lines


@case
def hazard_25_the_pool_retains_no_context():
    for variables in {}, EVENT:
        lines = same(["hazard_contexts", "retains"], variables={**TWO, **variables})
        assert lines == ["retained 2 times, released 0 times; works 1"], lines


# ---- ends ----

ENDS = {"exit": 10, "_exit": 11, "quick_exit": 12, "return": 6, "abort": -signal.SIGABRT}


@case
def hazard_26_every_end_as_natively():
    for guest in "hazard_ends", "hazard_ends_static":
        for how, status in ENDS.items():
            for variables in {}, EVENT:
                said = run([guest, how], status=status, variables=variables)
                native = run([guest, how], status=status, variables=variables, pool=False)
                assert said == native, f"{guest} {how} {variables}: native:\n{native}pooled:\n{said}"
                assert len(said.splitlines()) == {"exit": 2, "return": 2, "quick_exit": 1}.get(how, 0), said


@case
def hazard_26_ends_amid_calls_of_other_threads():
    for how, status in ENDS.items():
        for variables in {}, EVENT:
            run(["hazard_ends", how, "busy"], status=status, variables=variables)


@case
def hazard_26_no_driver_call_comes_after_the_programs_last():
    for how in "exit", "return":
        for variables in {}, EVENT:
            with tempfile.NamedTemporaryFile("r", suffix=".counts") as counts:
                same(["hazard_ends", how], status=ENDS[how], variables={**variables, "SIM_COUNTS_FILE": counts.name})
                calls = counts.read()
                assert calls == "", f"{how} {variables}: called after the program's end:\n{calls}"


main()

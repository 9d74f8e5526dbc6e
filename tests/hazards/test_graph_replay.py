# SPDX-License-Identifier: MIT
"""Graphs that were captured with the pool's memory, launched while other memory comes and goes."""
import os

from preload import same
from tap import case, main

JUDGED = {"SIM_RACES": "1"}
SETTINGS = {"POOL_FREE": "event", "SIM_DRIVER_VERSION": "12040"}, {"POOL_ASYNC": "0"}, {}, {"POOL_FREE": "event"}
if os.environ["PRELOAD_SANITIZER"] == "thread":
    SETTINGS = SETTINGS[-1:]  # it makes all slower by far


def replays(part, count):
    for variables in SETTINGS:
        lines = same(["hazard_graph_replay", part], variables={**JUDGED, **variables})
        assert lines[-1] == "races: 0 ", (variables, lines[-1])
        assert lines.count("right: 24 of 24") == count, (variables, lines)
    return lines


@case
def hazard_31_a_graph_captured_after_a_refused_call_touches_its_own_memory_only():
    lines = replays("refused", 2 * (3 + 2 + 3 + 3))
    for answer in "0", "1", "900":
        assert f"tried: {answer}" in lines, lines


@case
def hazard_31_a_graph_captured_amid_frees_touches_its_own_memory_only():
    replays("freed", 8)


main()

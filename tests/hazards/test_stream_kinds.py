# SPDX-License-Identifier: MIT
"""Memory goes from one kind of stream to another only when the first one's work has ended, and on one stream at once."""
from preload import run
from tap import case, main

GUEST = "hazard_stream_kinds"
KINDS = 8
SAME = {"the thread's own": "its stream 0", "its stream 0": "the thread's own"}  # two names of one stream
SETTINGS = {}, {"POOL_FREE": "event"}, {"SIM_DRIVER_VERSION": "12040"}, {"SIM_DRIVER_VERSION": "11080"}


def judged(part, variables):
    lines = run([GUEST, part], variables={"SIM_RACES": "1", **variables}).splitlines()
    assert lines[-1] == "races: 0 ", (variables, lines[-1])
    return lines[:-1]


@case
def hazard_28_what_a_stream_frees_is_its_own_until_its_work_has_ended():
    for variables in SETTINGS:
        lines = judged("ordered", variables)
        assert len(lines) == KINDS * KINDS, len(lines)
        for line in lines:
            streams, memory = line.split(": ")
            one, other = streams.split(", then ")
            expected = "the same memory" if one == other or SAME.get(one) == other else "other memory"
            assert memory == expected, (variables, line)


@case
def hazard_28_plain_memory_is_given_out_when_the_work_of_every_kind_of_stream_has_ended():
    for variables in SETTINGS:
        judged("plain", variables)


main()

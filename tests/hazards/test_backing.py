# SPDX-License-Identifier: MIT
"""An address that somebody holds on to, by its handle, keeps what lies behind it as long as its block lives."""
from preload import same
from tap import case, main


def hold(**variables):
    lines = same(["hazard_backing"], variables=variables)
    rounds = [line for line in lines if line.startswith("round")]
    assert lines[0] == "opened: 0" and lines[-1] == "the other: 0, freed: 0", lines
    assert len(rounds) == 6, lines
    for line in rounds:
        assert line.endswith(": wrong bytes 0, its range 1, its handle as before 1"), lines


@case
def hazard_35_an_exported_address_keeps_its_backing_while_memory_comes_and_goes():
    hold()


@case
def hazard_35_an_exported_address_keeps_its_backing_when_cached_memory_is_given_back():
    hold(POOL_TRIM_MB="1")
    hold(POOL_TRIM_MB="1", POOL_FREE="event")


@case
def hazard_35_an_exported_address_keeps_its_backing_where_memory_is_short():
    hold(SIM_MEMORY_MB="1024", POOL_HEADROOM_MB="0")
    hold(SIM_MEMORY_MB="1024", POOL_LIMIT_MB="900")


main()

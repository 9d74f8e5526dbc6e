# SPDX-License-Identifier: MIT
"""What cudaMemGetInfo says is free: what is cached counts."""
from preload import same
from tap import case, main


def memory(**variables):
    lines = same(["hazard_process_memory"], variables={"SIM_DEVICES": "2", **variables})
    wrong = [line for line in lines if not line.endswith("done 1, less amid 1, as before: 1 1 1")]
    assert len(lines) == 32 and not wrong, "\n".join(wrong)


@case
def hazard_38_free_memory_after_the_frees_is_as_before_the_allocations():
    memory(POOL_FREE="sync")


@case
def hazard_38_free_memory_comes_back_without_waiting_frees_too():
    memory(POOL_FREE="event")


@case
def hazard_38_free_memory_comes_back_whatever_the_segments():
    memory(POOL_SEGMENT_MB="2")
    memory(POOL_SEGMENT_MB="64")


main()

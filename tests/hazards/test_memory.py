# SPDX-License-Identifier: MIT
"""Memory: what one thread's wait for the driver means to another."""
from preload import run
from tap import case, main


def beside_a_long_allocation(kind, **variables):
    """What a thread does while another one is inside the driver. A machine may be too busy to show it."""
    for _ in range(5):
        text = run(["hazard_memory", kind], variables=variables)
        if text != "late\n":
            break
    return text


@case
def hazard_42_hits_go_on_while_another_thread_is_in_the_driver():
    for kind, variables in (("plain", {"SIM_ALLOC_US": "300000"}),
                            ("plain", {"SIM_ALLOC_US": "300000", "POOL_FREE": "event"}),
                            ("async", {"SIM_LATENCY": "cuMemAllocFromPoolAsync:300000"})):
        text = beside_a_long_allocation(kind, **variables)
        assert text == "100 pairs, and the other one is in the driver\n", (kind, variables, text)


main()

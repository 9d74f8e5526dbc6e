# SPDX-License-Identifier: MIT
"""How these programs end: with one line of JSON, and then waiting while the pool's figures are read."""

import json
import statistics
import sys
import time


def finish(found):
    print(json.dumps(found), flush=True)
    print("ready", flush=True)
    sys.stdin.readline()


def median_ms(work, rounds, warm_up=3):
    """Of one round of `work`, which returns when the device has finished."""
    times = []
    for i in range(warm_up + rounds):
        begun = time.perf_counter()
        work()
        if i >= warm_up:
            times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times)

# SPDX-License-Identifier: MIT
"""Long: mixed work in four threads near the end of the device's memory, while memory of another kind is taken and given
back in large pieces: no error, nothing overwritten, nothing live at the end."""

import json
import threading

from programs import program
from stage import Watched, total

SECONDS = 60
SHARE = 60  # percent that is live at most: with what is cached and the pressure, 90 and more are in use
ENOUGH = 0.8
REFUSED = 0.02  # so near the end a pool of segments, and the driver too, must refuse some


def most_reserved(watched):
    """The most that the pools were seen to hold together, until the program is ready."""
    most, done = 0, threading.Event()

    def watch():
        nonlocal most
        while not done.wait(0.1):
            figures = watched.figures()
            most = max(most, total(figures, "reserved_bytes") if figures else 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        watched.until_ready()
    finally:
        done.set()
        watcher.join()
    return most


def run(stage, part):
    stage.need_device()
    duration = 3 if stage.simulated else int(max(5, min(SECONDS, part.limit_s - 15)))
    with Watched(
        stage, "long", [program(stage, "long"), duration, SHARE], **({"SIM_MEMORY_MB": 4096} if stage.simulated else {})
    ) as watched:
        most = most_reserved(watched)
        figures = watched.figures()
        status = watched.end()
    found = json.loads(next(line for line in watched.lines if line.startswith("{")))
    part.data("found", found)
    peak = most / found["total"]
    part.table(
        f"{duration} s",
        ["", ""],
        [
            *found.items(),
            *(
                (name, total(figures, name))
                for name in (
                    "hits",
                    "misses",
                    "segment_allocs",
                    "segment_releases",
                    "trims",
                    "oom_retries",
                    "oom_failures",
                    "waits",
                    "fences",
                    "live_bytes",
                    "peak_live_bytes",
                    "peak_reserved_bytes",
                    "peak_waiting_bytes",
                    "bad_frees",
                )
            ),
        ],
    )
    part.say(
        f"{found['allocations']:,} allocations in {duration} s; the pool held up to {100 * peak:.0f} % of the memory; {found['refused']} "
        f"allocations refused for want of memory, {found['pressures_refused']} of {found['pressures']} pieces of other memory."
    )
    part.expect(status == 0 and found["first_error"] == 0, f"a call failed with {found['first_error']}")
    part.expect(found["wrong"] == 0, f"{found['wrong']} blocks did not hold what was written to them")
    part.expect(
        found["live"] == 0 and total(figures, "live_bytes") == 0,
        f"live at the end: {found['live']} by the program, " f"{total(figures, 'live_bytes')} by the figures",
    )
    part.expect(
        found["refused"] <= found["allocations"] * REFUSED,
        f"{found['refused']} of {found['allocations']} allocations were refused",
    )
    part.expect(peak >= ENOUGH, f"the pool held {100 * peak:.0f} % of the memory at most: too little to prove anything")

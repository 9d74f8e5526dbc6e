# SPDX-License-Identifier: MIT
"""Long: mixed work in four threads near the end of the device's memory, while memory of another kind is taken and given
back in large pieces: no error, nothing overwritten, nothing live at the end."""
import json

from programs import program
from stage import Watched, total

SECONDS = 60
SHARE = 70  # percent that is live at most; with what is cached, and the pressure of a twelfth, 90 and more are in use
ENOUGH = 0.9


def run(stage, part):
    stage.need_device()
    duration = 3 if stage.simulated else int(max(5, min(SECONDS, part.limit_s - 15)))
    with Watched(stage, "long", [program(stage, "long"), duration, SHARE], **({"SIM_MEMORY_MB": 1024} if stage.simulated else {})) as watched:
        watched.until_ready()
        figures = watched.figures()
        status = watched.end()
    found = json.loads(next(line for line in watched.lines if line.startswith("{")))
    part.data("found", found)
    peak = total(figures, "peak_reserved_bytes") / found["total"]
    part.table(f"{duration} s", ["", ""], [*found.items(), *((name, total(figures, name)) for name in (
        "hits", "misses", "segment_allocs", "segment_releases", "trims", "oom_retries", "oom_failures", "waits", "fences", "live_bytes",
        "peak_live_bytes", "peak_reserved_bytes", "peak_waiting_bytes", "bad_frees"))])
    part.say(f"{found['allocations']:,} allocations in {duration} s; the pool's peaks come to {100 * peak:.0f} % of the memory; {found['refused']} "
             f"allocations refused for want of memory, {found['pressures_refused']} of {found['pressures']} pieces of other memory.")
    part.expect(status == 0 and found["first_error"] == 0, f"a call failed with {found['first_error']}")
    part.expect(found["wrong"] == 0, f"{found['wrong']} blocks did not hold what was written to them")
    part.expect(found["live"] == 0 and total(figures, "live_bytes") == 0, f"live at the end: {found['live']} by the program, "
                f"{total(figures, 'live_bytes')} by the figures")
    part.expect(found["refused"] <= found["allocations"] / 100, f"{found['refused']} of {found['allocations']} allocations were refused")
    part.expect(peak >= ENOUGH - 0.1, f"the pool held {100 * peak:.0f} % of the memory at most: too little to prove anything")

# SPDX-License-Identifier: MIT
"""Doors: the same program by the shared runtime, the static one, the driver, and a runtime that it opens. All show the
same counts, and nothing that it allocates goes around the pool: free device memory falls by what the pool reserved."""

from part import Skip
from programs import program
from stage import MIB, Watched, total

ALLOCATIONS, FREES = 47, 7  # of tests/gpu/door.c when it waits to be looked at
STEP = 2 * MIB
WAYS = {
    "shared runtime": "door-shared",
    "static runtime": "door-static",
    "static runtime, by nvcc": "door-nvcc",
    "driver": "door-driver",
    "runtime, opened": "door-dlopen",
}
COUNTS = (
    "allocs",
    "frees",
    "hits",
    "misses",
    "segment_allocs",
    "requested_bytes",
    "live_bytes",
    "reserved_bytes",
    "bad_frees",
)


def look(stage, way, pooled=True):
    """(counts, the program's values, the figures) of one way."""
    name = WAYS[way]
    with Watched(stage, f"{name}-{'pooled' if pooled else 'native'}", [program(stage, name)], pooled) as watched:
        watched.until_ready()
        figures = watched.figures()
        watched.end()
        values = watched.values()
    if values.get("failed") != 0:
        raise RuntimeError(f"{way}: the program failed: {' / '.join(watched.lines)}")
    if not pooled:
        return None, values, figures
    if figures is None:
        raise RuntimeError(f"{way}: the program was not pooled: poolstat knows no figures of it")
    return {count: total(figures, count) for count in COUNTS}, values, figures


def ways(stage):
    # Programs of the real static runtime do not run on the simulated driver; what nvcc is asked for there is the shared one.
    return [way for way in WAYS if way != "static runtime, by nvcc" or (stage.nvcc and not stage.simulated)]


def run(stage, part):
    stage.need_device()
    rows, seen, free_at_ends = [], {}, []
    for way in ways(stage):
        try:
            counts, values, figures = look(stage, way)
            _, native, _ = look(stage, way, pooled=False)
        except (RuntimeError, Skip) as reason:
            part.fail(f"{way}: {reason}" if way not in str(reason) else str(reason))
            continue
        seen[way] = counts
        taken = values["before"] - values["live"]
        # What the pool could give back counts as free there.
        held = counts["reserved_bytes"] - total(figures, "releasable_bytes")
        around = taken - held
        rows.append(
            [
                way,
                *(counts[name] for name in ("allocs", "frees", "hits", "segment_allocs")),
                total(figures, "runtime_door"),
                f"{taken / MIB:.0f}",
                f"{held / MIB:.0f}",
                f"{(native['before'] - native['live']) / MIB:.0f}",
            ]
        )
        free_at_ends.append(values["after"])
        part.expect(
            (counts["allocs"], counts["frees"]) == (ALLOCATIONS, FREES),
            f"{way}: {counts['allocs']} allocations and {counts['frees']} frees, not {ALLOCATIONS} and {FREES}",
        )
        part.expect(
            abs(around) <= STEP,
            f"{way}: free memory fell by {taken} bytes, the pool holds {held}: {around} went around it",
        )
        passed = {
            reason: count for reason, count in figures["pass_through"].items() if count and reason != "zero_or_null"
        }
        part.expect(not passed, f"{way}: passed through: {passed}")
    part.table(
        "One program by each door, while it holds 400 MiB",
        [
            "door",
            "allocations",
            "frees",
            "hits",
            "segments",
            "by the runtime door",
            "free memory fell, MiB",
            "held by the pool",
            "natively fell",
        ],
        rows,
    )
    part.data("counts", seen)
    if seen:
        first = next(iter(seen.values()))
        for way, counts in seen.items():
            part.expect(counts == first, f"{way}: counts differ from those of {next(iter(seen))}: {counts} and {first}")

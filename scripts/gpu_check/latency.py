# SPDX-License-Identifier: MIT
"""Latency: the same program natively and pooled, by turns, so that what changes on the machine meets all alike; medians
and 99th percentiles of each call, and the cost of a hit by each door."""

import statistics

from part import Skip
from programs import CompileError, program

TURNS = 3
WAYS = {"native": {}, "POOL_FREE=sync": {"POOL_FREE": "sync"}, "POOL_FREE=event": {"POOL_FREE": "event"}}
HIT_DOORS = {
    "shared runtime": "hits-shared",
    "static runtime": "hits-static",
    "driver": "hits-driver",
    "runtime, opened": "hits-dlopen",
}
CALLS = {"plain": ("cudaMalloc", "cudaFree"), "async": ("cudaMallocAsync", "cudaFreeAsync")}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def size_name(size):
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def microseconds(values):
    return f"{statistics.median(values) / 1000:.1f} / {percentile(values, 0.99) / 1000:.1f}"


def kernels(stage):
    """The variable that names the kernels, where they can be compiled."""
    try:
        return {"GPU_CHECK_KERNELS": program(stage, "kernels.cubin")}
    except (Skip, CompileError):
        return {}


def measure_pairs(stage, part):
    """{(calls, device, bytes): {way: {"take": [ns], "give_back": [ns]}}}"""
    times, variables = {}, kernels(stage)
    command = [program(stage, "latency"), 64 if stage.simulated else 1024]
    busy = True
    for turn in range(1 if stage.simulated else TURNS):
        for way, settings in WAYS.items():
            found = stage.run_json(
                f"latency-{way.replace('=', '-')}-{turn}", command, pooled=bool(settings), **variables, **settings
            )
            part.expect(found["good"], f"{way}: a call failed")
            busy = busy and found["kernels"]
            for case in found["cases"]:
                of_way = times.setdefault((case["calls"], case["device"], case["bytes"]), {}).setdefault(
                    way, {"take": [], "give_back": []}
                )
                of_way["take"] += case["take"]
                of_way["give_back"] += case["give_back"]
    if not busy:
        part.say("Not measured behind a kernel: the kernels are not compiled (nvcc).")
    return times


def measure_hits(stage, part):
    rows = []
    for door, name in HIT_DOORS.items():
        try:
            cells = []
            for pooled in False, True:
                pairs = 10000 if pooled else 500
                status, out, err = stage.run(
                    f"{name}-{'pooled' if pooled else 'native'}", [program(stage, name), pairs], pooled=pooled
                )
                if status != 0:
                    raise RuntimeError(f"{door}: ended with status {status}: {(out + err).strip()[-200:]}")
                values = [float(line) for line in out.split()]
                cells += [f"{statistics.median(values):,.0f}", f"{percentile(values, 0.99):,.0f}"]
            rows.append([door, *cells])
        except (RuntimeError, Skip, CompileError) as reason:
            part.fail(f"hits by {door}: {reason}")
    part.table(
        "A pair of 64 KiB that is a hit, by each door, nanoseconds",
        ["door", "native: median", "p99", "pooled: median", "p99"],
        rows,
    )


def run(stage, part):
    stage.need_device()
    times = measure_pairs(stage, part)
    header = ["", "device", "size", *WAYS]
    rows, gains = [], []
    for (calls, device, size), ways in times.items():
        for call, which in zip(CALLS[calls], ("take", "give_back")):
            rows.append(
                [
                    call,
                    "idle" if device == "idle" else "200 µs kernel",
                    size_name(size),
                    *(microseconds(ways[way][which]) if way in ways else "–" for way in WAYS),
                ]
            )
        whole = {way: statistics.median(map(sum, zip(of["take"], of["give_back"]))) for way, of in ways.items()}
        gains.append(
            [calls, device, size, whole["native"] / whole["POOL_FREE=sync"], whole["native"] / whole["POOL_FREE=event"]]
        )
    part.table("Microseconds of a call: median / 99th percentile", header, rows)
    part.data("gains", [dict(zip(("calls", "device", "bytes", "sync", "event"), gain)) for gain in gains])
    idle = [gain for gain in gains if gain[:2] == ["plain", "idle"]]
    part.say(
        f"cudaMalloc and cudaFree on an idle device: pooled {min(gain[3] for gain in idle):.1f} to {max(gain[3] for gain in idle):.1f} "
        "times faster (sync)."
    )
    part.data("times", {" ".join(map(str, case)): ways for case, ways in times.items()})
    measure_hits(stage, part)

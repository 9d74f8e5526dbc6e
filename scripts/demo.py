#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The demonstration behind scripts/demo.sh: one allocation trace, played natively and pooled, while poolstat watches."""
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
FEWEST_TIMES_FEWER = 30
SECTIONS_SHOWN = ("Derived", "Size classes", "Latency")  # of `poolstat show`, which says much more
STANDSTILL_S = 10
STREAMS = 4
DRIVER_ALLOCATIONS = ("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync")
MIB = 1024 * 1024

# What cudaMalloc and cudaFree cost on GPUs, for the simulated one: the lower of the published figures.
LATENCY_US = 33
LATENCY_SOURCE = "33 µs an operation for random sizes up to 2 MB: github.com/rapidsai/rmm/issues/284"


class Failure(Exception):
    """Ends the demonstration with a message."""


def gpu_name():
    """The first GPU's name, None when there is none that can be used."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    cuda.cuDeviceGetName(name, len(name), device)
    return name.value.decode(errors="replace")


@dataclass
class Stage:
    """Where the program runs."""
    build: Path
    trace: str
    simulated: bool

    def command(self, arguments, pooled, counts_file, settings=None):
        environment = {}
        library_path = [self.build / "src"] if pooled else []
        if self.simulated:
            environment = {"SIM_ALLOC_US": LATENCY_US, "SIM_FREE_US": LATENCY_US, "SIM_COUNTS_FILE": counts_file}
            library_path += [self.build / "src/sim/driver", self.build / "src/sim/runtime"]
        # By its name alone: LD_PRELOAD could not hold a path with a space.
        if pooled:
            environment["LD_PRELOAD"] = ":".join(filter(None, ["libpoolcuda.so", os.environ.get("LD_PRELOAD")]))
        environment["LD_LIBRARY_PATH"] = ":".join(
            [*map(str, library_path), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        environment.update(settings or {})
        return ["env", *(f"{name}={value}" for name, value in environment.items()), self.build / "bench/replay", "--json", *arguments, self.trace]


@dataclass
class Run:
    """What one run of the replay program reported."""
    report: dict
    driver_allocations: int

    @property
    def seconds(self):
        return self.report["repetition_seconds"][0]

    @property
    def reserved_at_peak(self):
        return self.report["memory"]["free_before_bytes"] - self.report["memory"]["free_at_peak_bytes"]

    def violations(self):
        return self.report["stamps"]["violated"] + self.report["stamps"]["overlaps"]

    def failures(self):
        return sum(self.report["failures"].values())


def finish(replay, counts_file):
    """The report of a replay that ends by itself, and the simulator's counts, {} where there is none."""
    stdout, stderr = replay.communicate()
    try:
        report = json.loads(stdout)
    except ValueError:
        raise Failure(f"replay ended with status {replay.returncode} and no report\n{stdout}{stderr}") from None
    counts = {}
    if counts_file.exists():
        for line in counts_file.read_text().splitlines():
            name, count = line.split()[:2]
            counts[name] = int(count)
    return report, counts


def start(command, **options):
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **options)


def driver_allocations(counts, otherwise):
    """By any of the driver's calls, as the simulator counted them."""
    return sum(counts.get(name, 0) for name in DRIVER_ALLOCATIONS) if counts else otherwise


def run_native(stage, folder, *arguments):
    counts_file = folder / "native-counts"
    report, counts = finish(start(stage.command(arguments, False, counts_file)), counts_file)
    # On a GPU nobody counts for us: every allocation of the program is one of the driver.
    return Run(report, driver_allocations(counts, report["operations"]["allocs"]))


def run_on_streams(stage, folder, free, *arguments):
    """Pooled, with nobody watching: the program itself reports the pool's figures."""
    counts_file = folder / f"pooled-counts-{free}{len(arguments)}"
    command = stage.command(["--streams", STREAMS, *arguments], True, counts_file, {"POOL_FREE": free})
    report, counts = finish(start(command), counts_file)
    if not report["pool"]:
        raise Failure("the program on streams published no figures: it did not run on the pool")
    return Run(report, driver_allocations(counts, report["pool"]["segment_allocs"]))


class Watch:
    """poolstat, run from outside while the pooled program plays."""

    def __init__(self, build, pid):
        self.poolstat, self.pid = build / "src/poolstat/poolstat", pid

    def ask(self, *arguments):
        done = subprocess.run([self.poolstat, *map(str, arguments)], capture_output=True, text=True)
        # 4: another process's segment is damaged; the others are shown all the same.
        return done.stdout if done.returncode in (0, 4) else None

    def device(self):
        """The figures of the program's device; None while there are none."""
        for process in json.loads(self.ask("--json") or "{}").get("processes", []):
            if process["pid"] == self.pid and process["devices"]:
                return process["devices"][0]
        return None


@dataclass
class Seen:
    """What poolstat said of the pooled program: its table and `show` half-way, and its figures at the end."""
    pid: int
    table: str = ""
    details: str = ""
    figures: dict = None


def run_pooled(stage, folder, allocations):
    counts_file = folder / "pooled-counts"
    may_end, release = os.pipe()
    replay = start(stage.command(["--wait-fd", may_end], True, counts_file), pass_fds=[may_end])
    os.close(may_end)
    watch, seen = Watch(stage.build, replay.pid), Seen(replay.pid)
    allocated, changed = 0, time.monotonic()
    try:
        # It waits at its end to be looked at; one that failed to allocate would never get as far as expected.
        while replay.poll() is None and time.monotonic() - changed < STANDSTILL_S:
            seen.figures = watch.device() or seen.figures
            if seen.figures and seen.figures["allocs"] != allocated:
                allocated, changed = seen.figures["allocs"], time.monotonic()
            if allocated >= allocations / 2 and not seen.details:
                seen.table, seen.details = watch.ask(), watch.ask("show", replay.pid)
            if allocated >= allocations:
                break
            time.sleep(0.03)
    finally:
        os.close(release)
    report, counts = finish(replay, counts_file)
    if not seen.figures:
        raise Failure("poolstat saw no figures of the pooled program: it did not run on the pool")
    return Run(report, driver_allocations(counts, seen.figures["segment_allocs"])), seen


def times(larger, smaller):
    return f"{larger / smaller:.1f}" if smaller else "∞"


def in_allocator(run):
    return (run.report["operations"]["alloc_ns"] + run.report["operations"]["free_ns"]) / 1e9


def print_table(native, pooled, figures, simulated):
    rows = [
        ("", "native", "pooled", ""),
        ("time", f"{native.seconds:.3f} s", f"{pooled.seconds:.3f} s",
         "" if simulated else f"{times(native.seconds, pooled.seconds)} times faster"),
        ("of it in cudaMalloc and cudaFree", f"{in_allocator(native):.3f} s", f"{in_allocator(pooled):.3f} s", ""),
        ("driver allocations", f"{native.driver_allocations:,}", f"{pooled.driver_allocations:,}",
         f"{times(native.driver_allocations, pooled.driver_allocations)} times fewer"),
        ("peak reserved", f"{native.reserved_at_peak / MIB:,.0f} MiB", f"{figures['peak_reserved_bytes'] / MIB:,.0f} MiB",
         f"peak live {figures['peak_live_bytes'] / MIB:,.0f} MiB"),
        ("hit rate", "–", "–" if figures["hit_rate"] is None else f"{100 * figures['hit_rate']:.2f} %",
         f"{figures['hits']:,} of {figures['allocs']:,}"),
        ("live blocks overwritten", f"{native.violations()}", f"{pooled.violations()}",
         f"{pooled.report['stamps']['checked']:,} checked"),
    ]
    for name, left, right, remark in rows:
        print(f"  {name:<34}{left:>12}{right:>12}   {remark}".rstrip())
    if simulated:
        print("\n  The times are the simulation's: its device memory is host memory, and to map and first touch fresh memory\n"
              "  costs it more than a GPU. The counts and sizes are those that a GPU would show.")


def print_streams_table(native, ways):
    """`ways`: (heading, run) of each pooled one."""
    def figure(name, unit=1):
        return [f"{run.report['pool'][name] // unit:,}" for _, run in ways]

    runs = [native, *(run for _, run in ways)]
    pools = [run.report["pool"] for _, run in ways]
    fences = [f"{pool['fences']:,} / {pool['stream_marks']:,}" for pool in pools]
    rows = [
        ("", ["native", *(heading for heading, _ in ways)]),
        ("time", [f"{run.seconds:.3f} s" for run in runs]),
        ("of it in allocations and frees", [f"{in_allocator(run):.3f} s" for run in runs]),
        ("driver allocations", [f"{run.driver_allocations:,}" for run in runs]),
        ("peak reserved, MiB", [f"{native.reserved_at_peak / MIB:,.0f}", *figure("peak_reserved_bytes", MIB)]),
        ("hit rate", ["–", *(f"{100 * pool['hits'] / max(pool['allocs'], 1):.2f} %" for pool in pools)]),
        ("reuses across streams", ["–", *(f"{run.report['crossed_streams']:,}" for _, run in ways)]),
        ("waits in frees", ["–", *figure("waits")]),
        ("fences / marks on streams", ["–", *fences]),
        ("live blocks overwritten", [f"{run.violations()}" for run in runs]),
    ]
    for name, cells in rows:
        print(f"  {name:<32}" + "".join(f"{cell:>17}" for cell in cells))
    print(f"  {runs[-1].report['stamps']['checked']:,} blocks checked in each.")


def indent(text):
    return "".join(f"  {line}".rstrip() + "\n" for line in text.splitlines())


def sections(details):
    """The sections of `poolstat show` that the demonstration prints; all, should none of them be found."""
    chosen = [section for section in re.split(r"\n\s*\n", details) if section.strip().startswith(SECTIONS_SHOWN)]
    return "\n\n".join(chosen) or details


def check_calls(run, which):
    if run.failures():
        raise Failure(f"{run.failures()} calls of the {which} run failed: {'; '.join(run.report['messages'])}")


def check_gain(native, pooled, where=""):
    if native.driver_allocations < FEWEST_TIMES_FEWER * pooled.driver_allocations:
        raise Failure(f"expected at least {FEWEST_TIMES_FEWER} times fewer driver allocations{where}")


def check_pooled(run, which):
    check_calls(run, which)
    if run.violations():
        raise Failure(f"{run.violations()} live blocks of the {which} run were overwritten")


def show_streams(stage, folder):
    native = run_native(stage, folder, "--streams", STREAMS)
    check_calls(native, f"native run over {STREAMS} streams")
    kernel_us = native.report["options"]["kernel_us"]
    work = f"a kernel of {kernel_us} µs" if kernel_us else "a memset"
    print(f"The same trace over {STREAMS} streams, which have its blocks in turn; {work} uses each block in its stream, and nothing\n"
          "waits but what cudaFree itself waits for:\n", flush=True)
    ways = [("POOL_FREE=sync", run_on_streams(stage, folder, "sync")),
            ("POOL_FREE=event", run_on_streams(stage, folder, "event")),
            ("cudaMallocAsync", run_on_streams(stage, folder, "sync", "--async"))]
    print_streams_table(native, ways)
    for heading, run in ways:
        check_pooled(run, f"pooled ({heading}, {STREAMS} streams)")
        check_gain(native, run, f" with {heading} over {STREAMS} streams")


def main():
    build, trace, device = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    name = gpu_name() if device != "sim" else None
    if device == "gpu" and name is None:
        raise Failure("no GPU here that the CUDA driver (libcuda.so.1) can use")
    stage = Stage(build, trace, name is None)
    if name:
        print(f"GPU: {name}")
    else:
        print(f"Simulated CUDA, in which cudaMalloc and cudaFree take {LATENCY_US} µs each in the driver\n"
              f"({LATENCY_SOURCE}).")
    with tempfile.TemporaryDirectory(prefix="poolcuda-demo-") as name:
        folder = Path(name)
        native = run_native(stage, folder)
        check_calls(native, "native")
        allocations = native.report["operations"]["allocs"]
        print(f"Trace: {Path(trace).name}: {native.report['trace']['events']:,} events, {allocations:,} allocations, peak "
              f"{native.report['trace']['peak_live_bytes'] / MIB:,.0f} MiB. The program sets each block by a memset.\n",
              flush=True)
        pooled, seen = run_pooled(stage, folder, allocations)
        print_table(native, pooled, seen.figures, stage.simulated)
        if seen.details:
            print(f"\nMeanwhile, from another process, poolstat:\n\n{indent(seen.table)}")
            print(f"and of poolstat show {seen.pid}:\n\n{indent(sections(seen.details))}", flush=True)
        check_pooled(pooled, "pooled")
        check_gain(native, pooled)
        show_streams(stage, folder)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        main()
    except Failure as failure:
        print(f"demo.sh: {failure}", file=sys.stderr)
        sys.exit(1)

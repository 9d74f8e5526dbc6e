#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs random programs natively or over the pool, a few dozen in one process after another, and says which failed.

Programs of neighbouring seeds share a process and its settings (memory, limits, sizes of segments), which follow from
the seed too. So a seed says all, but for what its predecessors in the process left in the pool.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import subprocess
import sys

BATCH = 25  # programs that share a process
LIMIT_S = 60  # for one program
SANITIZER_SLOWDOWN = 5
MODES = ("sync", "event")


class Failure:
    def __init__(self, seed, mode, lines):
        self.seed, self.mode, self.lines = seed, mode, lines

    def text(self):
        first = self.seed - self.seed % BATCH
        repeat = f"scripts/test.sh --random {{}} {{}} --mode {self.mode}"
        if self.mode == "natively":
            repeat = "tests/random/programs.py BUILD {} {} --mode natively"
        return "\n".join([f"program {self.seed} ({self.mode}):", *("  " + line for line in self.lines),
                          "  repeat: " + repeat.format(self.seed, 1),
                          "  with those before it in its process: " + repeat.format(first, self.seed - first + 1)])


# What the driver has not in a batch, by the batch's number modulo their count; programs do without it.
ASYNC = ("cuMemAllocAsync,cuMemFreeAsync,cuMemAllocFromPoolAsync,cuMemPoolCreate,cuMemPoolDestroy,cuMemPoolTrimTo,"
         "cuMemPoolSetAttribute,cuMemPoolGetAttribute,cuMemPoolSetAccess,cuMemPoolGetAccess,cuMemPoolExportPointer,"
         "cuDeviceGetDefaultMemPool,cuDeviceGetMemPool,cuDeviceSetMemPool,cuMemGetDefaultMemPool,cuMemGetMemPool,"
         "cuMemSetMemPool")
SHAPES = [
    {},
    {"SIM_MISSING": "cuThreadExchangeStreamCaptureMode"},
    {"SIM_MISSING": ASYNC},
    {"SIM_RUNTIME_LOOKUP": "v1"},
    {},
    {"SIM_MISSING": "cuStreamGetId"},
    {},
    {"SIM_DRIVER_VERSION": "12020", "SIM_RUNTIME_VERSION": "12020"},
    {"POOL_ASYNC": "0"},
    {"SIM_MISSING": "cuStreamGetId,cuThreadExchangeStreamCaptureMode,cuGetProcAddress_v2"},
    {},
    {"SIM_DRIVER_VERSION": "11080", "SIM_RUNTIME_VERSION": "11080"},
]


def batch_settings(batch):
    """(environment, options of the runner) of the batch with this number."""
    chosen = random.Random(batch)
    variables = {"SIM_DEVICES": "3", "POOL_SEGMENT_MB": chosen.choice(["2", "2", "4", "16"])}
    kind = chosen.randrange(12)
    options = []
    if kind == 0:
        variables["SIM_MEMORY_MB"] = str(chosen.randrange(64, 256, 2))
        options.append("--scarce")
    elif kind == 1:
        variables["POOL_LIMIT_MB"] = str(chosen.randrange(32, 128))
        options.append("--scarce")
    elif kind == 2:
        variables["SIM_QUEUE_DEPTH"] = str(chosen.randrange(1, 8))
        options.append("--no-holds")
    elif kind == 3:
        variables["SIM_MISSING"] = "cuCtxRecordEvent"
        options.append("--no-holds")
    elif kind == 4:
        variables["POOL_TRIM_MB"] = str(chosen.randrange(0, 64))
    elif kind == 5:
        variables["POOL_FILL"] = chosen.choice(["zero", "poison"])
        options.append("--no-holds")
    if kind in (6, 8) or (kind < 2 and chosen.random() < 0.3):
        variables["POOL_PREALLOC_MB"] = str(chosen.choice([8, 40, 200]))
    if kind in (7, 8):
        variables["POOL_FIXED"] = chosen.choice(["512B*3", "512B*40,3KiB*8,1MiB*4", "1B*12,8KiB*2,7KiB*2,6KiB*2"])
    for name, value in SHAPES[batch % len(SHAPES)].items():
        variables[name] = ",".join(filter(None, [variables.get(name), value]))
    # Without fences a free of any kind may wait, and one on a stream that cannot be told from others does.
    lacks = variables.get("SIM_MISSING", "") + ("cuCtxRecordEvent" if "SIM_DRIVER_VERSION" in variables else "")
    if ("cuCtxRecordEvent" in lacks or "cuStreamGetId" in lacks) and "--no-holds" not in options:
        options.append("--no-holds")
    return variables, options


class Run:
    """Where things were built, and what they are to do."""

    def __init__(self, build, mode, sanitizer="none", library=None, gpu=False):
        build = os.path.abspath(build)
        self.mode, self.gpu = mode, gpu
        self.runner = os.path.join(build, "tests", "random", "random_programs_cuda" if gpu else "random_programs")
        self.library = library or os.path.join(build, "tests", "random", "libpoolcuda_checked.so")
        self.sim = ":".join(os.path.join(build, "src", "sim", part) for part in ("driver", "runtime"))
        self.slowdown = 1 if sanitizer == "none" else SANITIZER_SLOWDOWN

    def environment(self, variables):
        result = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "SIM_"))}
        # Found by its name: LD_PRELOAD could not hold a path with a blank.
        path = [os.path.dirname(self.library), os.environ.get("LD_LIBRARY_PATH") if self.gpu else self.sim]
        result["LD_LIBRARY_PATH"] = ":".join(filter(None, path))
        pooled = self.mode != "natively"
        result.update({name: value for name, value in variables.items() if pooled or name.startswith("SIM_")})
        if pooled:
            result["LD_PRELOAD"] = os.path.basename(self.library)
            result["POOL_FREE"] = self.mode
        return result

    def command(self, seed, count, options=()):
        mode = ["--mode", "event", "--natively"] if self.mode == "natively" else ["--mode", self.mode]
        if self.gpu:
            mode.append("--no-sharing")
        return [self.runner, *mode, "--limit", str(LIMIT_S * self.slowdown), *options, str(seed), str(count)]

    def start(self, seed, count, more=()):
        variables, options = batch_settings(seed // BATCH)
        return subprocess.Popen(self.command(seed, count, [*options, *more]), env=self.environment(variables),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                errors="replace")

    def batch(self, seed, count):
        """(failures, what was done) of programs that share a process; after a failed one a new process goes on."""
        failures, tally, end = [], collections.Counter(), seed + count
        while seed < end:
            process = self.start(seed, end - seed)
            out, err = process.communicate()
            last, lines, failed = seed - 1, [], set()
            for line in out.splitlines():
                words = line.split()
                if line.startswith("#"):
                    lines.append(line[1:].strip())
                elif words[:1] == ["program"]:
                    last, lines = int(words[1]), []
                elif words[:1] == ["failed"]:
                    failed.add(int(words[1]))
                    failures.append(Failure(int(words[1]), self.mode, lines))
                elif len(words) == 2:
                    tally[words[0]] += int(words[1])
            last = max(last, seed)
            whole = process.returncode == 1 if last in failed else last == end - 1 and process.returncode == 0
            if not whole or err.strip():
                code = process.returncode
                how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
                failures.append(Failure(last, self.mode, [*lines, how, *err.strip().splitlines()[:60]]))
            seed = last + 1
        return failures, tally

    def programs(self, seed, count):
        """(failures, what was done): each batch in its own process, as many at once as there are processors."""
        parts, end = [], seed + count
        while seed < end:
            size = min(end, seed - seed % BATCH + BATCH) - seed
            parts.append((seed, size))
            seed += size
        failures, tally = [], collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as executor:
            for found, done in executor.map(lambda part: self.batch(*part), parts):
                failures += found
                tally += done
        return failures, tally


def failed_programs(failures):
    return len({failure.seed for failure in failures})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="a build folder, built")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--mode", choices=[*MODES, "natively"], action="append",
                        help="the value of POOL_FREE, or no pool (default: sync, then event)")
    parser.add_argument("--sanitizer", default="none", help="with which all was built")
    parser.add_argument("--library", help="preload this one")
    parser.add_argument("--gpu", action="store_true", help="on the GPUs of this machine, not on the simulated CUDA")
    parser.add_argument("--expect-reported", type=int, metavar="N",
                        help="the library is known to be wrong: at least N programs must fail")
    arguments = parser.parse_args()
    passed = failed = 0
    for mode in arguments.mode or MODES:
        run = Run(arguments.build, mode, arguments.sanitizer, arguments.library, arguments.gpu)
        failures, tally = run.programs(arguments.seed, arguments.count)
        for failure in failures if arguments.expect_reported is None else failures[:3]:
            print(failure.text())
        print(f"{mode}: " + ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in tally.items()))
        failed += failed_programs(failures)
        passed += arguments.count - failed_programs(failures)
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    if arguments.expect_reported is not None:
        return 0 if failed >= arguments.expect_reported else 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

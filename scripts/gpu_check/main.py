#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Behind scripts/gpu-check.sh: runs the parts one after the other, each in a process of its own with a time limit, and
writes the report after each."""

import argparse
import importlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
sys.path.insert(0, str(HERE))

import report  # noqa: E402
from part import FAILED, LATE, PASSED, SKIPPED, Part  # noqa: E402
from stage import Stage  # noqa: E402

BUDGET_S = 290  # for all parts, and the build before them
LEAST_S = 5  # a part that has less left is not begun

# part: (module, time limit in seconds, programs that are compiled ahead)
PARTS = {
    "identity": ("identity", 30, []),
    "doors": ("doors", 40, ["door-shared", "door-static", "door-nvcc", "door-driver", "door-dlopen"]),
    "facts": ("facts", 100, ["late", "injected.so", "kernels.cubin"]),
    "latency": (
        "latency",
        60,
        ["latency", "hits-shared", "hits-static", "hits-driver", "hits-dlopen", "kernels.cubin"],
    ),
    "thrust": ("thrust", 50, ["thrust"]),
    "races": ("races", 30, []),
    "graphs": ("graphs", 25, ["graphs", "kernels.cubin"]),
    "ipc": ("ipc", 25, []),
    "pytorch": ("frameworks", 80, []),
    "cupy": ("frameworks", 40, []),
    "jax": ("frameworks", 50, []),
    "numba": ("frameworks", 40, []),
    "recording": ("frameworks", 40, []),
    "long": ("long", 75, ["long"]),
}


def probe(stage):
    """The first device, asked for in another process: (device, None), or (None, why there is none)."""
    status, out, err = stage.run("device", stage.python("device.py"), timeout=60, toolkit=True)
    if status == 0:
        return json.loads(out), None
    return None, (
        (err or out).strip().splitlines()[-1] if (err or out).strip() else f"the driver ended the process ({status})"
    )


def run_part(name, stage_words, path, limit_s):
    """In the part's own process."""
    stage = Stage(**stage_words)
    work = importlib.import_module(PARTS[name][0])
    Part(name, path, limit_s).run(lambda part: work.run(stage, part))


def supervise(name, stage, limit_s):
    """What the part found; ended with all it started when its time is over."""
    path = stage.out / "parts" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    begun = time.monotonic()
    command = [
        sys.executable,
        "-B",
        str(HERE / "main.py"),
        "--part",
        name,
        json.dumps(stage.words()),
        str(path),
        str(limit_s),
    ]
    with open(stage.out / "logs" / f"part-{name}.txt", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    late = False
    try:
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        late = True
    end_group(process)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {"part": name, "state": None, "reason": None, "failures": [], "lines": [], "tables": [], "data": {}}
    found["seconds"] = round(time.monotonic() - begun, 2)
    if found["state"] is None:
        found["state"] = LATE if late else FAILED
        found["reason"] = (
            f"ended after its {limit_s:.3g} s" if late else f"its process ended with status {process.returncode}"
        )
    return found


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def version():
    done = subprocess.run(
        ["git", "-C", str(TREE), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def totals(parts):
    counts = {state: sum(found["state"] == state for found in parts) for state in (PASSED, FAILED, LATE, SKIPPED)}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count or state in (PASSED, FAILED))


def compile_ahead(stage, names):
    wanted = [program for name in names for program in PARTS[name][2]]
    if not wanted or (not stage.simulated and not stage.device):
        return None
    return subprocess.Popen(
        [sys.executable, "-B", str(HERE / "programs.py"), json.dumps(stage.words()), *dict.fromkeys(wanted)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run_all(stage, names, most_s, spent_s):
    begun, found = time.monotonic() - spent_s, []
    document = {
        "schema": "gpu-check/1",
        "when": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "host": f"{platform.machine()}, {os.cpu_count()} processors, " f"{platform.system()} {platform.release()}",
        "version": version(),
        "simulated": stage.simulated,
        "device": stage.device,
        "why_no_device": stage.why_not,
        "parts": found,
    }
    ahead = compile_ahead(stage, names)
    try:
        for name in names:
            left = BUDGET_S - (time.monotonic() - begun)
            if left < LEAST_S:
                found.append(
                    {
                        "part": name,
                        "state": LATE,
                        "reason": f"not begun: the check's {BUDGET_S} s are over",
                        "seconds": 0.0,
                        "failures": [],
                        "lines": [],
                        "tables": [],
                        "data": {},
                    }
                )
            else:
                found.append(supervise(name, stage, min(PARTS[name][1], left, most_s)))
            if stage.simulated or stage.device:  # else all has been said
                print(report.one_line(found[-1]), flush=True)
            document["seconds"], document["totals"] = round(time.monotonic() - begun, 1), totals(found)
            report.write(document, stage.out)
    finally:
        if ahead:
            end_group(ahead)
    return document


def main():
    if sys.argv[1:2] == ["--part"]:
        run_part(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
        return 0
    if sys.argv[1:] == ["--list"]:
        print("\n".join(PARTS))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--spent", type=float, default=0)
    parser.add_argument("--limit", type=float, default=BUDGET_S)
    parser.add_argument("--sim", action="store_true")
    arguments = parser.parse_args()
    out = Path(arguments.out).resolve()
    for name in "programs", "parts", "logs":
        shutil.rmtree(out / name, ignore_errors=True)  # of another run, or other sources
    (out / "logs").mkdir(parents=True)
    stage = Stage(TREE, Path(arguments.build).resolve(), out, arguments.sim)
    device, why_not = probe(stage)
    stage = Stage(TREE, Path(arguments.build).resolve(), out, arguments.sim, device, why_not)
    print(
        f"{'The simulated CUDA' if arguments.sim else 'GPU: ' + device['name'] if device else 'No GPU: ' + why_not}"
        + (f", driver {device['driver']}, {device['memory'] >> 20:,} MiB" if device else ""),
        flush=True,
    )
    document = run_all(
        stage,
        [name for name in PARTS if not arguments.only or name in arguments.only],
        arguments.limit,
        arguments.spent,
    )
    print(f"{document['totals']} in {document['seconds']:.0f} s; {out}/report.md, report.json", flush=True)
    states = [found["state"] for found in document["parts"]]
    if FAILED in states or LATE in states:
        return 1
    return 0 if PASSED in states else 3


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())

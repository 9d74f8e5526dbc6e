#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What is behind scripts/bench-peers.sh: fetches RMM from the package registry, and measures it beside the pool.

    bench-peers.py fetch FOLDER
    bench-peers.py measure BUILD text|json REPETITIONS
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
TRACES = sorted((TREE / "tests" / "data").glob("*.csv.xz"))
# The last RMM whose pools are in its headers. Later ones have the same lists in a library with a CUDA runtime of its own
# inside, which no simulated driver can serve.
PACKAGES = {"librmm-cu12": "25.4.0", "rapids-logger": "0.1.19"}
LEAST_PYTHON = (3, 10)
LEAST_RATIO = {1000: 4, 10000: 20}  # of RMM's pool to the pool's cudaMallocAsync, by live blocks


def fail(text):
    sys.exit(f"bench-peers.sh: {text}")


def fetch(folder):
    """Unpacks the packages in `folder`, unless they are there."""
    stamp = folder / "packages.json"
    if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) == PACKAGES:
        return
    if sys.version_info < LEAST_PYTHON:
        fail(f"needs Python {'.'.join(map(str, LEAST_PYTHON))} or newer, and python3 is {sys.version.split()[0]}")
    names = " and ".join(f"{name} {version}" for name, version in PACKAGES.items())
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries=1",
                   "--timeout=20", "--disable-pip-version-check", "--dest", wheels,
                   *(f"{name}=={version}" for name, version in PACKAGES.items())]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if "No module named pip" in done.stderr:
            fail(f"{sys.executable} has no pip to fetch {names} with: install python3-pip")
        if done.returncode != 0:
            fail(f"cannot get {names} from the package registry; pip says:\n{done.stderr.strip()}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for wheel in Path(wheels).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
    stamp.write_text(json.dumps(PACKAGES), encoding="utf-8")


def play(build, repetitions):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "SIM_"))}
    folders = [build / "src", build / "src/sim/driver", build / "src/sim/runtime"]
    # By its name alone: LD_PRELOAD could not hold a path with a space.
    environment |= {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "LD_PRELOAD": "libpoolcuda.so",
                    "SIM_MEMORY_MB": "131072"}
    done = subprocess.run([build / "bench" / "peers" / "rmm_pool", str(repetitions), *TRACES], env=environment,
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail(f"rmm_pool ended with status {done.returncode}")
    return done.stdout


def rows_of(output):
    """(machine, a row for each load) from what rmm_pool printed."""
    machine, found = "", {}
    for line in output.splitlines():
        name, *rest = line.split("\t")
        if name == "machine":
            machine = rest[0]
        else:
            order, live, ns = rest
            found.setdefault((order, int(live)), {})[name] = float(ns)
    rows = []
    for (order, live), ns in found.items():
        rows.append({"order": order, "live": live, "async_ns": ns["async"], "sync_ns": ns["sync"],
                     "rmm_pool_ns": ns["rmm_pool"], "rmm_arena_ns": ns["rmm_arena"], "event_record_ns": ns["record"],
                     "ratio": round(ns["rmm_pool"] / ns["async"], 2),
                     "ratio_without_event": round((ns["rmm_pool"] - ns["record"]) / ns["async"], 2),
                     "arena_ratio": round(ns["rmm_arena"] / ns["async"], 2)})
    return machine, rows


def bounds(rows):
    return [{"order": row["order"], "live": row["live"], "least": LEAST_RATIO[row["live"]], "ratio": row["ratio"],
             "holds": row["ratio"] >= LEAST_RATIO[row["live"]]} for row in rows]


def print_text(machine, rows, repetitions):
    packages = ", ".join(f"{name} {version}" for name, version in PACKAGES.items())
    print(f"machine  {machine}\n\nNanoseconds per pair, medians of {repetitions} repetitions, all in one process and by turns. cudaMallocAsync and cudaMalloc with"
          f" their frees: the pool's;\nRMM's ({packages}) allocate and deallocate on the same stream, the sizes told at each."
          " Event: what one record of an event\ncosts on this simulated runtime, of which each deallocate makes one (in"
          " traces of real devices about 2 us). Ratio: of RMM's pool to cudaMallocAsync;\nless: the event taken off.\n")
    print(f"{'order':<7} {'live':>6} {'cudaMallocAsync':>15} {'cudaMalloc':>10} {'RMM pool':>9} {'event':>6} {'ratio':>6}"
          f" {'less':>6} {'RMM arena':>10} {'ratio':>6}")
    for row in rows:
        print(f"{row['order']:<7} {row['live']:>6} {row['async_ns']:>15.1f} {row['sync_ns']:>10.1f} {row['rmm_pool_ns']:>9.1f}"
              f" {row['event_record_ns']:>6.1f} {row['ratio']:>6.2f} {row['ratio_without_event']:>6.2f}"
              f" {row['rmm_arena_ns']:>10.1f} {row['arena_ratio']:>6.2f}")
    print()
    for bound in bounds(rows):
        print(f"bound  {bound['least']:>2} times as fast as RMM's pool at {bound['live']} live, {bound['order']}:"
              f" {'holds' if bound['holds'] else 'MISSED'} ({bound['ratio']:.2f})")
    print("\nRMM keeps its free blocks in one list, by address, which each call walks. Blocks that are freed in the order of"
          " their allocation, or against it, are\nneighbours and merge, so that the list stays of one or two; freed at random,"
          " it grows with the live blocks.")


def measure(build, form, repetitions):
    machine, rows = rows_of(play(build, repetitions))
    if form == "json":
        print(json.dumps({"schema": 1, "machine": machine, "packages": PACKAGES, "repetitions": repetitions, "pairs": rows,
                          "bounds": bounds(rows)}, indent=2))
    else:
        print_text(machine, rows, repetitions)


def main():
    if sys.argv[1] == "fetch":
        fetch(Path(sys.argv[2]))
    else:
        measure(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))


if __name__ == "__main__":
    main()

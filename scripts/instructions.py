#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The measurement behind scripts/instructions.sh: how many instructions a pair of calls costs, and whose they are.

bench/instructions plays the loads under valgrind's callgrind over the simulated CUDA; what is counted is summed by the
library that it ran in. bench/instructions.json keeps what was counted last, and by which compiler.
"""
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
TRACES = sorted((TREE / "tests" / "data").glob("*.csv.xz"))
RECORD = TREE / "bench" / "instructions.json"
# Way: the calls that bench/instructions makes, the setting of POOL_FREE.
WAYS = {"async": ("async", "sync"), "sync": ("plain", "sync"), "event": ("plain", "event"), "malloc": ("malloc", "sync")}
LIVE = (100, 1000, 10000)
# Whose an instruction is, by the name of the file that it is in; all else is the loop's. valgrind 3.19 cannot tell the
# file of a library whose .bss is aligned to more than a page, and the pool's is the only one here.
OWNERS = {"libpoolcuda": "pool", "???": "pool", "libcuda": "simulator", "libcudart": "simulator", "libc": "libc", "libpthread": "libc",
          "ld-linux-x86-64": "libc", "ld-linux-aarch64": "libc"}
SHARES = ("pool", "simulator", "libc", "loop")
MEMORY_MB = "12288"  # more is not to be had under valgrind


class CannotCount(Exception):
    """valgrind is not here, or cannot read what this compiler made."""


def toolchain(build):
    """What the number of instructions depends on: of the build folder, as it was configured."""
    made_by = json.loads((build / "bench" / "toolchain.json").read_text(encoding="utf-8"))
    return {**made_by, "libc": " ".join(platform.libc_ver())}


def shares(path):
    """The instructions in one of callgrind's files, by whose they are."""
    names, found, owner, inclusive = {}, dict.fromkeys(SHARES, 0), "loop", False
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, _, rest = line.partition("=")
        if kind in ("ob", "cob"):
            number, _, name = rest.partition(" ")
            if name:
                names[number] = name if name == "???" else Path(name).name.split(".")[0]
            if kind == "ob":
                owner = OWNERS.get(names[number], "loop")
        elif line.startswith("calls="):
            inclusive = True  # the next line is what was called, which stands in its own place
        elif line and line[0].isdigit():
            if not inclusive:
                found[owner] += int(line.split()[1])
            inclusive = False
    return found


def play(build, free, ways, live, traces):
    """One process, which plays all loads of the ways that go with this setting of POOL_FREE."""
    folders = [build / "src", build / "src/sim/driver", build / "src/sim/runtime"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "SIM_"))}
    # By its name alone: LD_PRELOAD could not hold a path with a space.
    environment |= {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "LD_PRELOAD": "libpoolcuda.so",
                    "POOL_FREE": free, "SIM_MEMORY_MB": MEMORY_MB}
    way_of = {WAYS[way][0]: way for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--compress-pos=no",
                   "--toggle-collect=instructions_measured", "--dump-after=instructions_measured",
                   build / "bench" / "instructions", *(f"--calls={calls}" for calls in way_of),
                   "--live", ",".join(map(str, live)), *traces]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if "debuginfo reader" in done.stderr:
            raise CannotCount(f"valgrind cannot read what {toolchain(build)['compiler']} made")
        if done.returncode != 0:
            raise RuntimeError(f"bench/instructions ended with status {done.returncode} under valgrind:\n{done.stderr}")
        for number, line in enumerate(done.stdout.splitlines(), 1):
            calls, order, count, pairs, misses, fences = line.split("\t")
            row = {"way": way_of[calls], "order": order, "live": int(count), "pairs": int(pairs), "misses": int(misses),
                   "fences": int(fences)}
            row |= {owner: round(sum_ / row["pairs"], 1) for owner, sum_ in shares(Path(f"{folder}/out.{number}")).items()}
            yield row


def measure(build, live=LIVE, ways=tuple(WAYS), traces=tuple(TRACES)):
    """One row for each way, number of live blocks and order; instructions are those of a pair."""
    if shutil.which("valgrind") is None:
        raise CannotCount("valgrind is not installed")
    rows = []
    for free in dict.fromkeys(WAYS[way][1] for way in ways):
        rows += play(build, free, [way for way in ways if WAYS[way][1] == free], live, traces)
    return sorted(rows, key=lambda row: ways.index(row["way"]))


def recorded():
    return json.loads(RECORD.read_text(encoding="utf-8"))


def other_toolchain(build):
    """Empty, or what is not as it was when the numbers were recorded, so that they cannot be compared."""
    now, then = toolchain(build), recorded()["toolchain"]
    return ", ".join(f"{name}: {now[name]}, recorded with {then[name]}" for name in then if now[name] != then[name])


def key(row):
    return row["way"], row["order"], row["live"]


def caused(row):
    """What the pool causes: its own, and what it calls of the C library. The driver's is not the pool's to mend."""
    return round(row["pool"] + row["libc"], 1)


def compared(rows):
    """(row, what the pool caused when it was recorded), of the rows that were recorded."""
    then = {key(row): caused(row) for row in recorded()["pairs"]} if RECORD.exists() else {}
    return [(row, then[key(row)]) for row in rows if row["way"] != "malloc" and key(row) in then]


def text(rows, made_by):
    then = {key(row): count for row, count in compared(rows)}
    lines = [f"{made_by['compiler']}, {made_by['processor']}, {made_by['buildtype']}, {made_by['flags']}, {made_by['libc']}", "",
             "Instructions per pair, by whose they are; recorded: of the pool and libc, in bench/instructions.json.", "",
             f"{'way':<7} {'order':<7} {'live':>7} {'pool':>8} {'simulator':>10} {'libc':>8} {'loop':>8} {'all':>8}"
             f" {'misses':>7} {'fences':>7} {'recorded':>9}"]
    for row in rows:
        before = f"{then[key(row)]:.1f}" if key(row) in then else "-"
        lines.append(f"{row['way']:<7} {row['order']:<7} {row['live']:>7} {row['pool']:>8.1f} {row['simulator']:>10.1f}"
                     f" {row['libc']:>8.1f} {row['loop']:>8.1f} {sum(row[owner] for owner in SHARES):>8.1f}"
                     f" {row['misses']:>7} {row['fences']:>7} {before:>9}")
    return "\n".join(lines)


def write_record(document):
    """A row a line, so that a change shows which."""
    pairs = ",\n".join("  " + json.dumps(row) for row in document["pairs"])
    RECORD.write_text(f'{{"toolchain": {json.dumps(document["toolchain"])},\n "pairs": [\n{pairs}\n]}}\n', encoding="utf-8")


def main():
    build, form, live = Path(sys.argv[1]), sys.argv[2], [int(count) for count in sys.argv[3].split(",")]
    try:
        document = {"toolchain": toolchain(build), "pairs": measure(build, live)}
    except (CannotCount, RuntimeError) as reason:
        sys.exit(f"instructions.sh: {reason}")
    print(json.dumps(document, indent=2) if form == "json" else text(document["pairs"], document["toolchain"]))
    if form == "record":
        write_record(document)


if __name__ == "__main__":
    main()

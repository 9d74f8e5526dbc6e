# SPDX-License-Identifier: MIT
"""Races: random programs (tests/random) whose kernels stamp and check the blocks that they use, in both modes of
POOL_FREE, and natively first, so that a fault of the programs themselves is not the pool's."""

import re
import sys
import time

from part import Skip

SHARES = {"natively": 0.2, "sync": 0.4, "event": 0.4}
AT_ONCE = 100
LEAST = 25  # programs share a process by 25


def programs(stage, mode, seed, count, timeout):
    """(passed, failed, what is told) of some."""
    command = [sys.executable, "-B", stage.tree / "tests/random/programs.py", stage.build, seed, count, "--mode", mode]
    status, out, err = stage.run(
        f"races-{mode}-{seed}", [*command, *([] if stage.simulated else ["--gpu"])], timeout=timeout
    )
    found = re.search(r"(\d+) passed, (\d+) failed", out)
    if not found:
        return (0, 0, None) if status is None else (0, 1, (err or out).strip()[-500:])
    told = "\n".join(line for line in out.splitlines() if not re.match(r"\w+: \d|\d+ passed", line))
    return int(found[1]), int(found[2]), told


def run(stage, part):
    stage.need_device()
    runner = stage.build / "tests/random" / ("random_programs" if stage.simulated else "random_programs_cuda")
    if not runner.exists():
        raise Skip(f"{runner.name} is not built: nvcc, or the toolkit's libcudart, is missing")
    whole = 8 if stage.simulated else part.limit_s * 0.85
    rows, seed = [], 0
    for mode, share in SHARES.items():
        begun, passed, failed = time.monotonic(), 0, 0
        count, seed = LEAST, 0
        while time.monotonic() - begun < whole * share and not failed:
            good, bad, told = programs(stage, mode, seed, count, whole * share * 2)
            passed, failed, seed = passed + good, failed + bad, seed + count
            count = AT_ONCE
            if bad:
                part.fail(f"{mode}: {' '.join((told or 'a program failed').split())[:300]}")
                part.say(told or "")
            if not good and not bad:
                break
        rows.append([mode, passed, failed, f"{time.monotonic() - begun:.1f}"])
        part.expect(passed + failed > 0, f"{mode}: no program ended in {whole * share * 2:.0f} s")
    part.table("Random programs", ["mode", "passed", "failed", "seconds"], rows)

# SPDX-License-Identifier: MIT
"""A model of this folder (MODEL), checked exhaustively by spin: it holds and has no step that is never taken, what waits
comes to an end, and each fault that it can be given is found by the property that it violates."""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from tap import case, main, skip

MODEL = os.environ["MODEL"]
SOURCE = Path(__file__).parent / f"{MODEL}.pml"
COMPILER = shlex.split(os.environ.get("CC", "cc"))
TIMEOUT_S = 300

# What pan says of a violated property.
EARLY = r"assertion violated .*\bused\["  # a block was given out before the work on it had ended
CAPTURED = r"assertion violated .*\bcapturing\b"  # a recording or a wait met a capture
MISPLACED = r"assertion violated .*\ba?live\[(on|context)\]"  # a call for a stream or context that is not there
NEVER = r"acceptance cycle"  # somebody waits for ever

FAULTS = {
    "capture": {
        "CAPTURES_NOT_READ_AGAIN": CAPTURED,
        "WAIT_NOT_ANNOUNCED": CAPTURED,
        "BEGUN_READ_FIRST": CAPTURED,
        "BEGIN_DOES_NOT_WAIT": CAPTURED,
        "ANNOUNCEMENT_ENDS_FIRST": CAPTURED,
        "REFUSED_BEGIN_COUNTS": NEVER,
    },
    "fence": {
        "RECORDED_BEFORE_SEALED": EARLY,
        "FAILED_RECORD_COUNTS": EARLY,
        "FAILED_RECORD_FORGOTTEN": NEVER,
        "PASSED_IS_OPEN": EARLY,
        "PASSED_IS_OLDEST_NOW": EARLY,
        "MERGED_HAS_EARLIER_BATCH": EARLY,
        "BATCH_READ_BEFORE_WORK": EARLY,
    },
    "ordered": {
        "RECORDED_BEFORE_SEALED": EARLY,
        "BATCH_READ_BEFORE_WORK": EARLY,
        "ORDERED_FOR_ALL": EARLY,
        "LIST_PASSES_FOR_ALL": EARLY,
        "STREAM_NOT_FORGOTTEN": EARLY,
        "STREAM_FORGOTTEN_LATE": EARLY,
        "DESTROY_DOES_NOT_AWAIT_RECORD": MISPLACED,
        "RECORDED_DURING_DESTROY": MISPLACED,
        "FENCE_FOR_WAITING_ONLY": NEVER,
    },
    "contexts": {
        "PEER_LEFT_OUT": EARLY,
        "LISTED_BEFORE_SEALED": EARLY,
        "CLOSING_LEFT_OUT": EARLY,
        "CLOSING_HAS_PASSED": EARLY,
        "DESTROY_DOES_NOT_AWAIT_CALLS": MISPLACED,
        "GENERATION_IGNORED": MISPLACED,
    },
}


def run(directory, *command):
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def check(*definitions, thorough=False):
    """What pan says; with LIVENESS defined, of the temporal property, else of assertions and deadlocks."""
    if not shutil.which("spin"):
        skip("spin is not installed")
    live = "LIVENESS" in definitions
    options = [f"-D{name}" for name in definitions]
    with tempfile.TemporaryDirectory() as directory:
        run(directory, "spin", f"-P{shlex.join(COMPILER)} -E -x c", *options, "-a", str(SOURCE))
        run(directory, *COMPILER, *(["-O1", "-DCOLLAPSE"] if thorough else ["-O0"]), "-w",
            "-DNFAIR=3" if live else "-DSAFETY", "-o", "pan", "pan.c")
        said = run(directory, "./pan", "-m1000000", *(["-a", "-f"] if live else []))
    assert "max search depth too small" not in said, said
    return said


def expect_no_error(said):
    assert "errors: 0" in said and "search not completed" not in said.lower(), said
    states = int(re.search(r"(\d+) states, stored", said)[1])
    assert states > 1000, f"a model of {states} states shows nothing\n{said}"
    print(f"# {states:,} states")


@case
def holds():
    said = check(thorough=True)
    expect_no_error(said)
    never = [line.strip() for line in said.splitlines() if re.search(r"\.pml:\d+, state \d+", line)]
    never = [line for line in never if not line.endswith('"-end-"')]
    assert not never, "steps that are never taken:\n" + "\n".join(never)


@case
def comes_to_an_end():
    expect_no_error(check("LIVENESS", thorough=True))


@case
def has_the_faults_that_are_looked_for():
    known = set(re.findall(r"\bFAULT_(\w+)", SOURCE.read_text(encoding="utf-8")))
    assert known == set(FAULTS[MODEL]), f"in the model {sorted(known)}, here {sorted(FAULTS[MODEL])}"


def add_fault(fault, expected):
    def is_found():
        said = check(f"FAULT_{fault}", *(["LIVENESS"] if expected == NEVER else []))
        assert re.search(expected, said), f"{expected} expected, not found in:\n{said}"

    is_found.__name__ = f"finds_{fault.lower()}"
    case(is_found)


for name, violated in FAULTS[MODEL].items():
    add_fault(name, violated)
main()

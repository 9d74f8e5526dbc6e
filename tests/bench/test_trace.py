#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""POOL_TRACE over the simulated CUDA: programs whose calls are known, what their recordings hold, and what bench/ makes
of those.

In the environment: TRACE_GUEST, REPLAY, TRACE_CSV and CAPACITY, the programs.
"""
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main  # noqa: E402

DATA = TREE / "tests" / "data"
KILLED = "the process was killed, its disk was full, or it still runs"


def run(command, status=0, **variables):
    """Under the pool."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "SIM_"))}
    environment.update(variables, LD_PRELOAD="libpoolcuda.so")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout.splitlines(), done.stderr


def tool(program, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POOL_")}
    done = subprocess.run([os.environ[program], *map(str, arguments)], env=environment, capture_output=True, text=True,
                          check=False, timeout=100)
    assert done.returncode == 0, (program, done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def calls(path, note=""):
    """Of a recording, as dictionaries."""
    text, said = tool("TRACE_CSV", "--calls", path)
    assert (said == "") if note == "" else (note in said), (said, note)
    return list(csv.DictReader(text.splitlines()))


def equal(found, wanted, what):
    assert found == wanted, f"{what}: found {found}, expected {wanted}"


def expect(recorded, lines, columns):
    """The recorded calls are those that the guest printed; `columns`: what else is known of each of them."""
    printed, thread = [], None
    for line in lines:
        words = line.split()
        if words[0] == "thread":
            thread = words[1]
        else:
            printed.append((words[0], 0 if words[1] == "(nil)" else int(words[1], 16), words[2], words[3], thread))
    found = [(call["op"], int(call["address"], 16), call["size"], call["code"], call["thread"]) for call in recorded]
    equal(found, printed, "calls")
    for name, wanted in columns.items():
        equal([call[name] for call in recorded], wanted.split(), name)


def record(folder, mode, note="", **variables):
    path = os.path.join(folder, "recording")
    lines, stderr = run([os.environ["TRACE_GUEST"], mode], POOL_TRACE=path, **variables)
    equal(stderr, "", "stderr")
    return calls(path, note), lines


@case
def every_field_of_every_call_by_the_runtime_door_is_right():
    with tempfile.TemporaryDirectory() as folder:
        recorded, lines = record(folder, "calls")
    expect(recorded, lines, {
        "served": "miss hit miss hit refused refused driver driver miss hit hit hit hit hit hit hit",
        "memory": "plain " * 8 + "async " * 4 + "plain " * 4,
        "door": "runtime " * 16,
        "device": "0 " * 16,
    })
    numbers = [call["number"] for call in recorded]
    equal(numbers[3], numbers[0], "number of the first free")
    equal([numbers[i] for i in (4, 5, 6, 7)], ["0"] * 4, "numbers of what the pool did not serve")
    equal([numbers[9], numbers[11], numbers[12], numbers[14], numbers[15]],
          [numbers[8], numbers[10], numbers[1], numbers[13], numbers[2]], "numbers of frees")
    equal(len(set(numbers) - {"0"}), 6, "allocations")
    streams = [call["stream"] for call in recorded]
    equal([streams[i] for i in (0, 3, 4, 5, 6, 7, 11, 12, 15)], [""] * 9, "streams of calls without one")
    assert streams[8].startswith("#") and streams[9].startswith("#") and streams[8] != streams[9], streams
    equal(streams[10], streams[9], "the second stream")
    times = [int(call["t_ns"]) for call in recorded]
    equal(times, sorted(times), "times")


@case
def calls_by_the_driver_door_are_told_apart():
    with tempfile.TemporaryDirectory() as folder:
        recorded, lines = record(folder, "driver")
    equal((recorded[0]["op"], recorded[0]["address"], recorded[0]["door"]), ("f", "0x0", "runtime"), "cudaFree(NULL)")
    expect(recorded[1:], lines, {"served": "miss hit miss hit", "memory": "plain plain async async",
                                 "door": "driver " * 4, "device": "0 " * 4})


@case
def frees_that_wait_for_a_fence_are_recorded_alike():
    with tempfile.TemporaryDirectory() as folder:
        recorded, lines = record(folder, "calls", POOL_FREE="event")
    # What is freed meanwhile waits; the calls are the same.
    equal([call["op"] for call in recorded], [line[0] for line in lines if not line.startswith("thread")], "operations")
    equal({call["door"] for call in recorded}, {"runtime"}, "doors")


@case
def calls_amid_a_capture_are_the_drivers_and_recorded_once():
    with tempfile.TemporaryDirectory() as folder:
        recorded, lines = record(folder, "capture")
    equal(recorded[0]["address"], "0x0", "cudaFree(NULL)")
    expect(recorded[1:], lines, {"served": "driver " * 4, "memory": "async async plain plain", "door": "runtime " * 4})
    streams = [call["stream"] for call in recorded[1:]]
    assert streams[0].startswith("0x") and streams[1] == streams[0] and streams[2:] == ["", ""], streams


@case
def a_process_that_is_not_pooled_is_recorded():
    with tempfile.TemporaryDirectory() as folder:
        recorded, lines = record(folder, "calls", POOL_ENABLE="0")
    expect(recorded, lines, {"served": "driver " * 16, "door": "runtime " * 16, "number": "0 " * 16})


@case
def a_killed_process_loses_its_last_block_alone():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recording")
        run([os.environ["TRACE_GUEST"], "kill"], status=-9, POOL_TRACE=path)
        killed = calls(path, KILLED)
        path = os.path.join(folder, "whole")
        run([os.environ["TRACE_GUEST"], "many"], POOL_TRACE=path)
        whole = calls(path)
    equal(len(whole), 64 + 2 * 20000, "calls")
    assert len(whole) - 8192 <= len(killed) < len(whole), (len(killed), len(whole))
    keys = ("op", "number", "size", "served")
    equal([[call[key] for key in keys] for call in killed], [[call[key] for key in keys] for call in whole[:len(killed)]],
          "calls before the end")


@case
def children_and_programs_that_follow_have_files_of_their_own():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recording")
        # A child that exits has none of the threads that the leak checker would stop.
        no_leaks = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        lines, _ = run([os.environ["TRACE_GUEST"], "fork"], POOL_TRACE=path, ASAN_OPTIONS=no_leaks)
        children = [line.split()[1] for line in lines if line.startswith("child")]
        equal(len(os.listdir(folder)), 3, "files")
        sizes = {name: [(call["size"], call["served"], call["code"]) for call in calls(os.path.join(folder, name))]
                 for name in os.listdir(folder)}
        # The first child came first, and so has the name.
        equal(sizes["recording"], [("7000", "miss", "0")], "the first child's")
        equal(sizes[f"recording.{children[1]}"], [("8000", "driver", "3")], "the second child's")
        equal([sizes[name] for name in sizes if name not in ("recording", f"recording.{children[1]}")],
              [[("1000", "miss", "0"), ("2000", "hit", "0")]], "the parent's")
    with tempfile.TemporaryDirectory() as folder:
        run([os.environ["TRACE_GUEST"], "exec"], POOL_TRACE=os.path.join(folder, "recording-%p"))
        names = sorted(os.listdir(folder), key=len)
        equal(len(names), 2, "files")
        equal(names[1], f"{names[0]}.{names[0].split('-')[1]}", "the second's name")
        equal(len(calls(os.path.join(folder, names[0]), KILLED)), 0, "calls of a program that ended by exec")
        equal(len(calls(os.path.join(folder, names[1]))), 64 + 2 * 20000, "calls of the one that followed")


@case
def a_recording_of_a_replay_is_the_trace_that_was_played():
    trace = DATA / "train_resnet50.csv.xz"
    with tempfile.TemporaryDirectory() as folder:
        path, text = os.path.join(folder, "recording"), os.path.join(folder, "text.csv")
        run([os.environ["REPLAY"], "--no-work", str(trace)], POOL_TRACE=path)
        recorded, said = tool("TRACE_CSV", path)
        equal(said, "", "the reader's note")
        Path(text).write_text(recorded, encoding="ascii")
        again, _ = tool("TRACE_CSV", text)
        equal(again.splitlines(), recorded.splitlines(), "the converted trace, read again")
        original, _ = tool("TRACE_CSV", trace)
        found, wanted = [list(csv.DictReader(each.splitlines())) for each in (recorded, original)]
        # What is live at the trace's end the player frees.
        keys = ("op", "id", "size")
        equal([[event[key] for key in keys] for event in found[:len(wanted)]],
              [[event[key] for key in keys] for event in wanted], "events")
        equal({event["op"] for event in found[len(wanted):]} <= {"f"}, True, "only frees follow")
        played, _ = run([os.environ["REPLAY"], "--no-work", "--threads", "2", path])
        equal(f"{len(found)} events" in played[0], True, played[0])
        capacity, said = tool("CAPACITY", path)
        equal(said, "", "capacity's note")
        equal("recording" in capacity, True, capacity)


if __name__ == "__main__":
    main()

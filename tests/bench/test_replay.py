#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/replay on the simulated CUDA (or whatever LD_LIBRARY_PATH names), without the pool but in one case.

In the environment: REPLAY, the program; CORRUPT_LIBRARY, the library of corrupt.c.
"""
import json
import math
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main  # noqa: E402

DATA = TREE / "tests" / "data"
HEADER = "seq,op,id,size,stream,thread,t_us\n"
TWO_BLOCKS = HEADER + "0,a,1,8192,0,0,0\n1,a,2,1024,0,0,1\n2,f,2,1024,0,0,2\n3,f,1,8192,0,0,3\n"


def replay(*arguments, trace=None, environment=None, **options):
    """Run it on a bundled trace (a path) or on a text; answers status, stdout, stderr."""
    with tempfile.TemporaryDirectory() as folder:
        if not isinstance(trace, Path):
            text, trace = trace, Path(folder) / "trace.csv"
            trace.write_text(text, encoding="ascii")
        done = subprocess.run([os.environ["REPLAY"], *arguments, str(trace)], capture_output=True, text=True,
                              check=False, timeout=200, env={**os.environ, **(environment or {})}, **options)
    return done.returncode, done.stdout, done.stderr


def replay_json(*arguments, status=0, **options):
    found, stdout, stderr = replay("--json", *arguments, **options)
    expect_equal((found, stderr), (status, ""), "exit status and stderr")
    return json.loads(stdout)


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


def recorded(name):
    return json.loads((DATA / "traces.json").read_text(encoding="utf-8"))["traces"][name]


def expect_clean(report, allocations):
    expect_equal(report["failures"], {"allocs": 0, "other_calls": 0}, "failures")
    expect_equal(report["stamps"], {"checked": allocations, "violated": 0, "overlaps": 0}, "stamps")
    operations, used = report["operations"], "kernels" if report["options"]["kernel_us"] > 0 else "memsets"
    expect_equal([operations[key] for key in ("allocs", "frees", used)], [allocations] * 3, "operations")
    expect_equal(operations["memsets"] + operations["kernels"], allocations, "memsets and kernels")
    memory = report["memory"]
    expect_equal(memory["free_after_bytes"], memory["free_before_bytes"], "free memory after, and before")


@case
def training_trace_plays_without_failure_or_violation():
    name = "train_resnet50.csv.xz"
    report = replay_json(trace=DATA / name)
    expect_clean(report, recorded(name)["allocations"])
    memory, peak = report["memory"], recorded(name)["peak_live_bytes"]
    expect_equal(report["trace"]["peak_live_bytes"], peak, "peak")
    if memory["free_before_bytes"] - memory["free_at_peak_bytes"] < peak:
        raise AssertionError(f"at the peak {peak} bytes are live, but cudaMemGetInfo said {memory}")


@case
def every_bundled_trace_is_read():
    for name, record in json.loads((DATA / "traces.json").read_text(encoding="utf-8"))["traces"].items():
        report = replay_json("--no-work", trace=DATA / name)["trace"]
        found = {key: report[key] for key in ("events", "allocations", "peak_live_bytes", "live_at_end")}
        expect_equal(found, {key: record[key] for key in found}, name)


@case
def synthetic_threads_play_all_blocks_and_are_called_so():
    name = "serve_transformer.csv.xz"
    report = replay_json("--threads", "4", trace=DATA / name)
    expect_clean(report, recorded(name)["allocations"])
    expect_equal((report["options"]["threads"], report["options"]["threads_synthetic"]), (4, True), "threads")
    status, stdout, _ = replay("--threads", "4", trace=TWO_BLOCKS)
    expect_equal((status, "4 synthetic threads" in stdout), (0, True), stdout)


def pooled(*arguments, free="sync", environment=None, **options):
    environment = {"LD_PRELOAD": ":".join(filter(None, ["libpoolcuda.so", os.environ.get("LD_PRELOAD")])),
                   "POOL_FREE": free, **(environment or {})}
    return replay_json(*arguments, environment=environment, **options)


@case
def pooled_threads_overwrite_nothing():
    name = "serve_transformer.csv.xz"
    for free in ("sync", "event"):
        report = pooled("--threads", "4", trace=DATA / name, free=free)
        expect_clean(report, recorded(name)["allocations"])


# What a trace needs of a device, over its peak of live memory.
CAPACITY = {"train_resnet50.csv.xz": 1.06, "train_transformer.csv.xz": 1.28, "serve_transformer.csv.xz": 1.20}


@case
def hazard_41_traces_fit_on_a_device_little_larger_than_their_peak():
    for name, ratio in CAPACITY.items():
        memory = math.ceil(recorded(name)["peak_live_bytes"] * ratio / 2**20)
        small = {"SIM_MEMORY_MB": str(memory), "POOL_HEADROOM_MB": "0"}
        report = pooled("--no-work", trace=DATA / name, environment=small)
        expect_equal(report["failures"], {"allocs": 0, "other_calls": 0}, f"failures of {name} in {memory} MiB")
        expect_equal(report["pool"]["allocs"], recorded(name)["allocations"], f"allocations of {name} on the pool")


@case
def synthetic_streams_have_the_blocks_in_turn():
    text = HEADER + "".join(f"{2 * i},a,{i},4096,0,0,0\n{2 * i + 1},f,{i},0,0,0,0\n" for i in range(10))
    report = replay_json("--streams", "5", trace=text)
    expect_clean(report, 10)
    options = report["options"]
    expect_equal((options["streams"], options["streams_synthetic"], options["kernel_us"]), (5, True, 10), "options")
    # One block at a time, at one address: each but the first has the memory of the stream before.
    expect_equal(pooled("--streams", "5", trace=text)["crossed_streams"], 9, "reuses across streams")
    expect_equal(pooled("--streams", "1", trace=text)["crossed_streams"], 0, "reuses across streams on one")
    _, stdout, _ = replay("--streams", "5", trace=text)
    if "over 5 synthetic streams, kernels of 10 us" not in stdout:
        raise AssertionError(stdout)


@case
def streams_of_the_trace_are_kept():
    # Blocks 0 and 2 on one stream, 1 on another, whatever their numbers: dealt in turn, none would follow its own.
    text = HEADER + "".join(f"{2 * i},a,{i},4096,{stream},0,0\n{2 * i + 1},f,{i},0,{stream},0,0\n"
                            for i, stream in enumerate((7, 7, 7, 1 << 40, 1 << 40)))
    report = pooled("--streams", "2", trace=text)
    expect_clean(report, 5)
    expect_equal((report["options"]["streams_synthetic"], report["crossed_streams"]), (False, 1), "streams")


@case
def kernels_may_have_another_duration_or_be_memsets():
    for arguments, kernels in ((["--kernel-us", "3"], 2), (["--streams", "2", "--kernel-us", "0"], 0)):
        report = replay_json(*arguments, trace=TWO_BLOCKS)
        expect_clean(report, 2)
        expect_equal(report["operations"]["kernels"], kernels, f"kernels with {arguments}")


def every_way_on_streams():
    """(name of the trace, the way, its report) of each bundled trace over 8 streams, pooled."""
    for name in json.loads((DATA / "traces.json").read_text(encoding="utf-8"))["traces"]:
        for way, free, arguments in (("sync", "sync", []), ("event", "event", []), ("async", "sync", ["--async"])):
            yield name, way, pooled("--streams", "8", *arguments, trace=DATA / name, free=free)


@case
def bundled_traces_over_8_streams_keep_the_bounds_of_fences_and_waiting():
    for name, way, report in every_way_on_streams():
        what, allocations, pool = f"{name}, {way}", recorded(name)["allocations"], report["pool"]
        expect_equal(report["stamps"], {"checked": allocations, "violated": 0, "overlaps": 0}, f"stamps: {what}")
        expect_equal((pool["allocs"], pool["frees"]), (allocations, allocations), f"on the pool: {what}")
        by_frees = pool["fences"] - pool["miss_fences"]
        # At most one per 64 frees, or 256 MiB that wait. Before a miss one, with which the miss comes or a block is proved;
        # likewise where a free finds that too much waits, and in a cudaMemGetInfo.
        most = pool["frees"] / 64 + pool["freed_live_bytes"] / 2**28
        most_for_misses = pool["misses"] + pool["proved_blocks"] + 3
        if way == "event":
            if not 0 < by_frees <= most or pool["miss_fences"] > most_for_misses:
                raise AssertionError(f"{what}: {by_frees} fences, at most {most}; for misses at most {most_for_misses}: {pool}")
        else:
            expect_equal(pool["fences"], 0, f"fences: {what}")
        if way == "async" and pool["stream_marks"] == 0 or way != "async" and pool["stream_marks"] > 0:
            raise AssertionError(f"{what}: marks on streams: {pool}")
        # A free that finds more waiting than is live, and than 256 MiB, waits itself: beyond it is the one block at most.
        largest = 2**28 + recorded(name)["peak_live_bytes"]
        if pool["peak_waiting_bytes"] > largest or way != "event" and pool["peak_waiting_bytes"] > 0:
            raise AssertionError(f"{what}: {pool['peak_waiting_bytes']} bytes waited")
        # A fence has 16 places, and each stream one for its mark: their events are used again.
        created = report["events_created"]
        if created["first"] + created["later"] > 16 + 8:
            raise AssertionError(f"{what}: events created: {created}")


@case
def repetitions_and_scale_count():
    report = replay_json("--repeat", "3", "--scale", "0.001", trace=TWO_BLOCKS)
    expect_clean(report, 6)
    expect_equal(len(report["repetition_seconds"]), 3, "times")


@case
def blocks_live_at_the_end_are_checked_and_freed():
    report = replay_json(trace=HEADER + "0,a,1,100,0,0,0\n1,a,2,1,0,0,0\n2,a,3,33,0,0,0\n")
    expect_equal(report["trace"]["live_at_end"], 3, "live at the end")
    expect_clean(report, 3)


@case
def trace_without_events_plays():
    expect_clean(replay_json(trace=HEADER), 0)


@case
def without_work_nothing_is_written_or_checked():
    report = replay_json("--no-work", trace=TWO_BLOCKS)
    expect_equal((report["operations"]["allocs"], report["operations"]["memsets"]), (2, 0), "operations")
    expect_equal(report["stamps"]["checked"], 0, "stamps checked")


def corrupted(way):
    # By its name alone: LD_PRELOAD could not hold a path with a blank.
    folder, library = os.path.split(os.environ["CORRUPT_LIBRARY"])
    environment = {"CORRUPT": way}
    for variable, value in (("LD_PRELOAD", library), ("LD_LIBRARY_PATH", folder)):
        environment[variable] = ":".join(filter(None, [value, os.environ.get(variable)]))
    report = replay_json(trace=TWO_BLOCKS, status=1, environment=environment)
    return report["stamps"], report["messages"]


@case
def block_overwritten_at_its_end_is_found_by_its_stamp():
    stamps, messages = corrupted("write")
    expect_equal(stamps, {"checked": 2, "violated": 1, "overlaps": 0}, "stamps")
    if "seq 3: the block of 8192 bytes at" not in messages[0] or "overwritten by another" not in messages[0]:
        raise AssertionError(messages)


@case
def block_given_twice_is_found_by_stamp_and_address():
    stamps, messages = corrupted("start")
    expect_equal(stamps, {"checked": 2, "violated": 1, "overlaps": 1}, "stamps")
    if "seq 1: cudaMalloc gave 1024 bytes at" not in messages[0] or "are live" not in messages[0]:
        raise AssertionError(messages)


@case
def block_inside_another_is_found_by_its_address():
    stamps, _ = corrupted("middle")
    expect_equal(stamps, {"checked": 2, "violated": 0, "overlaps": 1}, "stamps")


@case
def failed_allocations_are_counted_listed_and_not_freed():
    size = 1 << 62
    text = HEADER + "".join(f"{i},a,{i},{size if i < 2 else 512},0,0,0\n" for i in range(3)) + f"3,f,1,{size},0,0,0\n"
    report = replay_json(trace=text)
    expect_equal(report["failures"], {"allocs": 2, "other_calls": 0}, "failures")
    expect_equal((report["operations"]["allocs"], report["operations"]["frees"]), (1, 1), "allocations and frees")
    expect_equal(report["messages"], [f"seq {i}: cudaMalloc of {size} bytes: cudaErrorMemoryAllocation" for i in (0, 1)],
                 "messages")
    status, stdout, _ = replay(trace=text)
    expect_equal((status, "failures     2 allocations" in stdout, "seq 0: cudaMalloc of" in stdout), (0, True, True),
                 stdout)


@case
def held_blocks_are_live_until_the_descriptor_closes():
    ours, theirs = os.pipe()
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(HEADER + "0,a,1,100,0,0,0\n")
        file.flush()
        with subprocess.Popen([os.environ["REPLAY"], "--json", "--wait-fd", str(ours), file.name], pass_fds=[ours],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            line = process.stderr.readline()
            early, _, _ = select.select([process.stdout], [], [], 0.2)
            os.close(theirs)
            stdout, _ = process.communicate(timeout=60)
    os.close(ours)
    expect_equal((line, early), ("replay: every event was played; holding\n", []), "held")
    expect_clean(json.loads(stdout), 1)


@case
def malformed_line_is_named_with_file_and_line():
    status, stdout, stderr = replay(trace=HEADER + "0,a,1,many,0,0,0\n")
    expect_equal((status, stdout), (2, ""), "exit status and stdout")
    if not stderr.endswith('trace.csv:2: size is "many": expected a whole number from 0 to 2^64 - 1\n'):
        raise AssertionError(stderr)


@case
def wrong_usage_says_what_was_expected():
    for arguments, expected in ((["--threads", "0"], '--threads is "0": expected a whole number from 1 to 256'),
                                (["--repeat", "x"], '--repeat is "x": expected a whole number from 1 to 1000000'),
                                (["--scale", "-1"], '--scale is "-1": expected a number from 1e-9 to 1000'),
                                (["--streams", "0"], '--streams is "0": expected a whole number from 1 to 1024'),
                                (["--kernel-us", "-1"], '--kernel-us is "-1": expected a whole number from 0 to 1000000'),
                                (["--hold-at-end", "nan"], '--hold-at-end is "nan": expected seconds from 0 to 86400'),
                                (["--nonsense"], "Usage: replay"), (["other.csv"], "Usage: replay")):
        status, stdout, stderr = replay(*arguments, trace=TWO_BLOCKS)
        expect_equal((status, stdout, expected in stderr), (2, "", True), f"{arguments}: {stderr}")
    status, stdout, _ = replay("--help", trace=TWO_BLOCKS)
    expect_equal((status, stdout.startswith("Usage: replay")), (0, True), "--help")


@case
def missing_device_ends_with_a_message():
    status, stdout, stderr = replay(trace=TWO_BLOCKS, environment={"SIM_DEVICES": "0"})
    expect_equal((status, stdout), (3, ""), "exit status and stdout")
    if not stderr.startswith("replay: cudaMemGetInfo: "):
        raise AssertionError(stderr)


main()

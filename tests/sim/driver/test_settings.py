# SPDX-License-Identifier: MIT
"""The SIM_* variables and CUDA_VISIBLE_DEVICES, through a small program that makes the calls it is told to.

    test_settings.py PROBE
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
from tap import case, main

PROBE = sys.argv.pop(1)


def run(*words, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("SIM_") and name != "CUDA_VISIBLE_DEVICES"}
    return subprocess.run([PROBE, *words], env={**environment, **variables}, capture_output=True, text=True, timeout=60)


def lines(*words, **variables):
    result = run(*words, **variables)
    assert result.returncode == 0, f"status {result.returncode}: {result.stderr}"
    return [line.split() for line in result.stdout.splitlines()]


def codes(*words, **variables):
    """The answer of each call."""
    return [int(line[1]) for line in lines(*words, **variables)]


def equal(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


def buses(**variables):
    answers = lines("init", "devices", **variables)
    equal(answers[0][1], "0")
    return [bus[5:7] for bus in answers[1][1:]]


@case
def number_and_memory_of_devices():
    equal(buses(SIM_DEVICES="3"), ["17", "18", "19"])
    equal(lines("init", "total", SIM_MEMORY_MB="100")[1][1], str(100 << 20))
    equal(codes("init", SIM_DEVICES="0"), [100])


@case
def visible_devices_are_picked_and_ordered():
    equal(buses(SIM_DEVICES="4", CUDA_VISIBLE_DEVICES="2,0"), ["19", "17"])
    equal(buses(SIM_DEVICES="4", CUDA_VISIBLE_DEVICES="1,7,2"), ["18"])
    equal(codes("init", SIM_DEVICES="4", CUDA_VISIBLE_DEVICES=""), [100])
    equal(codes("init", SIM_DEVICES="4", CUDA_VISIBLE_DEVICES="-1,0"), [100])
    equal(codes("init", SIM_DEVICES="4", CUDA_VISIBLE_DEVICES="0,0"), [100])


@case
def visible_devices_by_uuid():
    uuid = lines("init", "uuid", SIM_DEVICES="4", CUDA_VISIBLE_DEVICES="2")[1][1]
    equal(buses(SIM_DEVICES="4", CUDA_VISIBLE_DEVICES=uuid), ["19"])
    equal(codes("init", SIM_DEVICES="4", CUDA_VISIBLE_DEVICES="GPU-"), [100])
    equal(buses(SIM_DEVICES="1", CUDA_VISIBLE_DEVICES="GPU-"), ["17"])


@case
def the_nth_call_of_a_name_fails():
    equal(codes("init", "current", "alloc:1", "alloc:1", "alloc:1", SIM_FAIL="cuMemAlloc:2:2"), [0, 0, 0, 2, 0])
    equal(codes("init", "current", "alloc:1", "alloc:1", SIM_FAIL="cuMemAlloc_v2:*:719"), [0, 0, 719, 719])
    equal(codes("init", "init", SIM_FAIL="cuInit:1:999"), [999, 0])


@case
def a_wrong_failure_is_reported_and_ignored():
    result = run("init", SIM_FAIL="cuMemAlloc:two")
    equal(result.stdout.split()[:2], ["init", "0"])
    assert "SIM_FAIL" in result.stderr and "cuMemAlloc:two" in result.stderr, result.stderr


@case
def an_unknown_name_is_reported():
    result = run("init", SIM_MEMRY_MB="5", SIM_RUNTIME_LOOKUP="v1")
    equal(result.stdout.split()[:2], ["init", "0"])
    assert "unknown variable SIM_MEMRY_MB;" in result.stderr and "LOOKUP" not in result.stderr, result.stderr


@case
def calls_take_the_time_that_is_set():
    words = "init", "current", "alloc:1", "free", "query"
    for variable, call in ("SIM_ALLOC_US", 2), ("SIM_FREE_US", 3):
        slow = lines(*words, **{variable: "20000"})
        assert float(slow[call][2]) >= 20000, slow
    slow = lines(*words, SIM_LATENCY="cuStreamQuery:30000")
    assert float(slow[4][2]) >= 30000, slow


@case
def alloc_and_free_wait_for_the_device_as_set():
    words = "init", "current", "alloc:1", "busy", "free", "busy", "alloc:1"
    for free, alloc in ("1", "0"), ("0", "1"):
        answers = lines(*words, SIM_FREE_WAITS=free, SIM_ALLOC_WAITS=alloc)
        for call, waits in (4, free), (6, alloc):
            if waits == "1":
                assert float(answers[call][2]) >= 25000, answers
            else:
                assert float(answers[call][2]) < 25000, answers


@case
def a_submission_waits_for_room_in_the_queue():
    answers = lines("init", "current", "busy", "busy", SIM_QUEUE_DEPTH="1")
    assert float(answers[3][2]) >= 25000, answers
    answers = lines("init", "current", "busy", "busy", SIM_QUEUE_DEPTH="2")
    assert float(answers[3][2]) < 25000, answers


@case
def memory_ends_at_the_limit():
    equal(codes("init", "current", "alloc:60", "alloc:60", SIM_OOM_ABOVE_MB="100"), [0, 0, 0, 2])


@case
def calls_take_the_memory_that_is_set():
    words = "init", "current", "query", "query", "query", "alloc:60"
    equal(codes(*words, SIM_MEMORY_MB="100", SIM_TAKES="cuStreamQuery:40"), [0, 0, 0, 0, 2, 2])
    equal(codes(*words, SIM_MEMORY_MB="100", SIM_TAKES="cuStreamQuery:10"), [0, 0, 0, 0, 0, 0])
    assert "SIM_TAKES" in run("init", SIM_TAKES="cuStreamQuery:some").stderr


@case
def an_old_driver_lacks_what_came_later():
    answers = lines("init", "version", "find:cuCtxRecordEvent", "find:cuMemAllocAsync", "find:cuMemAlloc", "record",
                    SIM_DRIVER_VERSION="12000")
    equal([answer[1] for answer in answers], ["0", "12000", "missing", "found", "found", "801"])


@case
def each_age_of_driver_has_what_it_had():
    """What the pool can do hangs on these; both ways to find them agree."""
    since = {"cuMemAllocAsync": 11020, "cuMemFreeAsync_ptsz": 11020, "cuGetProcAddress": 11030,
             "cuDeviceGraphMemTrim": 11040, "cuStreamGetId": 12000, "cuGetProcAddress_v2": 12000,
             "cuGreenCtxCreate": 12040, "cuCtxRecordEvent": 12050, "cuStreamGetCtx_v2": 12050, "cuMemAlloc_v2": 3020,
             "cuMemGetDefaultMemPool": 13000, "cuStreamGetId_ptsz": 12000, "cuGraphLaunch": 10000}
    words = [word for name in since for word in ("export:" + name, "find:" + name)]
    for version in 11010, 11080, 12000, 12040, 12050, 13000:
        answers = lines("init", *words, SIM_DRIVER_VERSION=str(version))[1:]
        for (name, least), exported, found in zip(since.items(), answers[::2], answers[1::2]):
            expected = "found" if version >= least else "missing"
            equal((version, name, exported[1]), (version, name, expected))
            if version >= 12000 and "_v2" not in name and "_ptsz" not in name:  # where cuGetProcAddress_v2 is
                equal((version, name, found[1]), (version, name, expected))


@case
def an_old_driver_works_with_what_it_has():
    equal(codes("init", "current", "alloc:1", "busy", "query", "free", SIM_DRIVER_VERSION="11010"),
          [0, 0, 0, 0, 600, 0])


@case
def missing_names_are_not_found():
    answers = lines("init", "find:cuCtxRecordEvent", "find:cuStreamGetId", "find:cuMemAlloc", "record",
                    SIM_MISSING="cuCtxRecordEvent,cuStreamGetId")
    equal([answer[1] for answer in answers], ["0", "missing", "missing", "found", "801"])
    equal(answers[1][2], "1")
    answers = lines("export:cuCtxRecordEvent", "export:cuStreamGetId_ptsz", "export:cuMemAlloc", "export:cuMemAlloc_v2",
                    "export:cuMemAllocAsync", SIM_MISSING="cuStreamGetId,cuMemAlloc_v2")
    equal([answer[1] for answer in answers], ["found", "missing", "found", "missing", "found"])


@case
def counts_are_written_at_the_end():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "counts")
        run("init", "current", "alloc:1", "free", "alloc:1", SIM_COUNTS_FILE=path)
        with open(path, encoding="ascii") as file:
            counts = dict((line.split()[0], line.split()[1:]) for line in file)
    equal(counts["cuMemAlloc_v2"], ["2", "simulated"])
    equal(counts["cuMemFree_v2"], ["1", "simulated"])
    assert "cuStreamQuery" not in counts, counts


@case
def help_names_every_variable():
    result = run(SIM_HELP="1")
    for name in "SIM_DEVICES", "SIM_MEMORY_MB", "SIM_FAIL", "SIM_COUNTS_FILE", "SIM_KERNEL_US", "SIM_FREE_WAITS", "SIM_RUNTIME_LOOKUP", "SIM_HELP":
        assert name in result.stderr, name


@case
def a_wrong_number_is_reported_and_replaced():
    for value in "many", "-1", "99":
        result = run("init", "devices", SIM_DEVICES=value)
        equal(result.stdout.split()[3:], ["devices", "0000:17:00.0"])
        assert f"SIM_DEVICES={value}" in result.stderr, result.stderr


main()

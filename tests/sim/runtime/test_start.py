# SPDX-License-Identifier: MIT
"""The start and the end of the simulated runtime in a process, on a driver that only notes how it is looked up.

    test_start.py SHARED_PROBE STATIC_PROBE RUNTIME STATIC_RUNTIME STAND_IN EXPORTS TOOLKIT
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
from tap import case, main, skip

SHARED, STATIC, RUNTIME, ARCHIVE, STAND_IN, EXPORTS, TOOLKIT = map(os.path.abspath, sys.argv[1:8])
del sys.argv[1:8]


def run(probe, wanted, driver=True, **variables):
    folders = [os.path.dirname(RUNTIME)] + ([os.path.dirname(STAND_IN)] if driver else [])
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders), **variables}
    result = subprocess.run([probe, wanted], env=environment, capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, (result.returncode, result.stderr)
    return [tuple(line.rsplit(" ", 1)) for line in result.stdout.splitlines()]


def look_ups(probe, **variables):
    rows = []
    for head, form in run(probe, "look-ups", **variables):
        name, version, flags, status, initialised = head.split()
        rows.append((name, int(version), int(flags), int(status), int(initialised), int(form)))
    return rows


def exported_names():
    with open(EXPORTS, encoding="ascii") as lines:
        return sorted(line.split()[0] for line in lines if not line.startswith("#"))


def dynamic_names(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], check=True,
                             capture_output=True, text=True).stdout
    return sorted(word[2] for word in map(str.split, listing.splitlines()) if word[1] != "A")


def equal(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


@case
def the_start_probes_the_empty_name_then_asks_for_cuInit():
    rows = look_ups(SHARED)
    equal(rows[0], ("-", 0, 0, 0, 0, 2))
    equal(rows[1][0], "cuInit")
    equal({row[4] for row in rows[:2]}, {0})


@case
def every_other_look_up_comes_after_cuInit_without_a_status():
    rows = look_ups(SHARED)[2:]
    assert len(rows) > 100, len(rows)
    equal({(row[3], row[4], row[5]) for row in rows}, {(0, 1, 2)})


@case
def allocation_calls_are_asked_at_their_versions_in_both_stream_forms():
    rows = {row[:3] for row in look_ups(SHARED)}
    for wanted in [("cuMemAlloc", 3020, 0), ("cuMemFree", 3020, 0), ("cuMemAllocAsync", 11020, 0),
                   ("cuMemAllocAsync", 11020, 2), ("cuMemFreeAsync", 11020, 0), ("cuMemFreeAsync", 11020, 2),
                   ("cuStreamSynchronize", 2000, 0), ("cuStreamSynchronize", 7000, 2)]:
        assert wanted in rows, wanted
    equal({row[2] for row in rows}, {0, 2})


@case
def no_look_up_is_made_twice():
    rows = [row[:3] for row in look_ups(SHARED)]
    equal(sorted(rows), sorted(set(rows)))


@case
def the_static_runtime_makes_the_same_look_ups():
    equal(look_ups(STATIC), look_ups(SHARED))


@case
def the_old_form_is_asked_for_the_same_names():
    old = look_ups(SHARED, SIM_RUNTIME_LOOKUP="v1")
    equal({row[5] for row in old}, {1})
    equal([row[:3] for row in old], [row[:3] for row in look_ups(SHARED)])


@case
def arguments_are_looked_at_after_the_initialisation():
    for probe in SHARED, STATIC:
        answers = run(probe, "answers")
        equal(answers, [("cudaPeekAtLastError()", "0"), ("cudaMalloc(NULL, 1)", "1"), ("cudaMalloc(&pointer, 0)", "0"),
                        ("pointer", "0"), ("cudaSetDevice(-1)", "101"), ("cudaGetLastError()", "101"),
                        ("cudaGetLastError()", "0"), ("cudaMalloc(&pointer, 16)", "0"), ("cudaFree(pointer)", "0"),
                        ("cudaEventSynchronize(NULL)", "801"), ("cudaGetLastError()", "801"),
                        ("cudaDriverGetVersion(&version)", "0"), ("driver", "13000"),
                        ("cudaRuntimeGetVersion(&version)", "0"), ("runtime", "13000")])


def refused(answers, code):
    """Every call answers the code, again and again; the pointer stays, and the versions are told all the same."""
    expected = {"pointer": "1", "driver": "0", "runtime": "13000", "cudaDriverGetVersion(&version)": "0",
                "cudaRuntimeGetVersion(&version)": "0"}
    for name, answer in answers:
        equal((name, answer), (name, expected.get(name, str(code))))


@case
def without_a_driver_every_call_answers_35():
    refused(run(SHARED, "answers", driver=False), 35)
    refused(run(STATIC, "answers", driver=False), 35)


@case
def a_failure_of_cuInit_is_never_cleared():
    refused(run(SHARED, "answers", STAND_IN_INIT="100"), 100)
    refused(run(SHARED, "answers", STAND_IN_INIT="803"), 803)


@case
def a_driver_of_an_older_major_version_is_insufficient():
    refused(run(SHARED, "answers", STAND_IN_VERSION="12080"), 35)
    answers = dict(run(SHARED, "answers", STAND_IN_VERSION="12080", SIM_RUNTIME_VERSION="12000"))
    equal((answers["cudaMalloc(&pointer, 16)"], answers["runtime"]), ("0", "12000"))


@case
def only_a_runtime_from_12_on_makes_the_chosen_device_current():
    for version, chosen in ("13000", "1"), ("12000", "1"), ("11080", "0"):
        answers = dict(run(SHARED, "choice", SIM_RUNTIME_VERSION=version))
        equal((version, answers["chosen"], answers["used"]), (version, chosen, "1"))


@case
def an_entry_point_that_the_driver_lacks_answers_36():
    answers = dict(run(SHARED, "answers", STAND_IN_MISSING="cuEventSynchronize"))
    equal(answers["cudaEventSynchronize(NULL)"], "36")
    equal(answers["cudaMalloc(&pointer, 16)"], "0")


@case
def a_forked_child_of_an_initialised_process_is_answered_3():
    for probe in SHARED, STATIC:
        equal(run(probe, "child"), [("cudaFree(NULL)", "0"), ("child", "3"), ("cudaFree(NULL)", "0")])


@case
def after_the_end_of_the_runtime_calls_answer_4():
    for probe in SHARED, STATIC:
        equal(run(probe, "end"), [("cudaFree(NULL)", "0"), ("handler", "4"), ("destructor", "4")])


@case
def unsimulated_names_answer_801_and_their_calls_are_written():
    for probe in SHARED, STATIC:
        with tempfile.TemporaryDirectory() as folder:
            counts = os.path.join(folder, "counts")
            equal([answer for _, answer in run(probe, "unsimulated", SIM_COUNTS_FILE=counts)],
                  ["801", "801", "801", "801"])
            with open(counts + ".runtime", encoding="ascii") as file:
                equal(sorted(file.read().splitlines()), ["cudaFreeArray 2 unsimulated",
                                                         "cudaMallocArray 1 unsimulated"])
            os.remove(counts + ".runtime")
            run(probe, "answers", SIM_COUNTS_FILE=counts)
            equal(os.listdir(folder), [])


@case
def every_name_is_exported_under_the_version_node():
    own = ["sim_runtime_unsimulated_calls"]
    equal(dynamic_names(RUNTIME), sorted(f"{name}@@libcudart.so.13" for name in exported_names() + own))


@case
def the_archive_defines_every_name():
    listing = subprocess.run(["nm", "--defined-only", ARCHIVE], check=True, capture_output=True, text=True).stdout
    defined = {word[2] for word in map(str.split, listing.splitlines()) if len(word) == 3 and word[1] == "T"}
    equal(set(exported_names()) - defined, set())


@case
def the_list_of_names_is_that_of_the_real_runtime():
    real = os.path.join(TOOLKIT, "lib64", "libcudart.so.13")
    if not os.path.exists(real):
        skip("no real libcudart.so.13 here")
    equal(exported_names(), sorted(name.split("@")[0] for name in dynamic_names(real)))


@case
def the_soname_is_the_real_one():
    listing = subprocess.run(["readelf", "-d", RUNTIME], check=True, capture_output=True, text=True).stdout
    equal([line.split("[")[1] for line in listing.splitlines() if "SONAME" in line], ["libcudart.so.13]"])


main()

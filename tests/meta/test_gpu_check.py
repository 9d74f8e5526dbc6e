# SPDX-License-Identifier: MIT
"""scripts/gpu-check.sh over the simulated CUDA: what the parts find there, and what is said where something lacks."""

import json
import os
import re
import shutil
import sys

from fixture import TREE, expect, folder, run
from tap import case, main, skip

sys.path.insert(0, str(TREE / "scripts" / "gpu_check"))
import facts  # noqa: E402
import programs  # noqa: E402
from stage import Stage  # noqa: E402

BUILD = os.environ["GPU_CHECK_BUILD"]
SCRIPT = TREE / "scripts" / "gpu-check.sh"
ENVIRONMENT = {name: "" for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")}


def check(*options, environment=None):
    """(exit status, output, what report.json says of each part)"""
    out = folder() / "a report"
    status, stdout, stderr = run(
        SCRIPT, "--build-dir", BUILD, "--out", out, *options, environment={**ENVIRONMENT, **(environment or {})}
    )
    report = json.loads((out / "report.json").read_text()) if (out / "report.json").exists() else {"parts": []}
    if report["parts"]:
        text = (out / "report.md").read_text()
        expect(all(f"| {part['part']} | {part['state']} |" in text for part in report["parts"]), text)
    return status, stdout + stderr, report, {part["part"]: part for part in report["parts"]}


@case
def functions_are_found_by_their_addresses():
    status, output, report, parts = check("--sim", "--only", "identity")
    expect((status, list(parts), report["simulated"]) == (0, ["identity"], True), output)
    part = parts["identity"]
    expect(
        part["state"] == "passed"
        and part["data"]["driver"]["lookups"] > 10000
        and part["data"]["pooled"]["inside"] > 100,
        part,
    )


@case
def a_part_that_fails_is_told_and_the_rest_goes_on():
    # A driver that lacks a variant: for it, cuGetProcAddress gives another.
    status, output, _, parts = check(
        "--sim", "--only", "identity", "--only", "doors", environment={"SIM_MISSING": "cuMemAllocAsync_ptsz"}
    )
    part = parts["identity"]
    expect(status == 1 and part["state"] == "failed" and parts["doors"]["state"] == "passed", (output, part))
    exceptions = part["data"]["driver"]["exceptions"]
    expect(
        exceptions and all(row["name"] == "cuMemAllocAsync" and row["flags"] == "per-thread" for row in exceptions),
        exceptions,
    )
    expect(part["data"]["driver"]["missing"] == ["cuMemAllocAsync_ptsz"], part["data"]["driver"])


@case
def a_part_that_takes_too_long_is_ended_and_the_rest_goes_on():
    status, output, _, parts = check("--sim", "--limit", "3", "--only", "identity", "--only", "facts")
    part = parts["facts"]
    expect(status == 1 and part["state"] == "out of time" and part["reason"] == "ended after its 3 s", (output, part))
    expect(parts["identity"]["state"] == "passed" and len(part["data"]["answers"]) > 0, part["data"])


@case
def every_door_shows_the_same_counts():
    status, output, _, parts = check("--sim", "--only", "doors")
    expect(status == 0 and parts["doors"]["state"] == "passed", (output, parts["doors"]["failures"]))
    counts = parts["doors"]["data"]["counts"]
    expect(set(counts) == {"shared runtime", "static runtime", "driver", "runtime, opened"}, counts)
    expect(all(of["allocs"] == 47 and of["segment_allocs"] > 0 for of in counts.values()), counts)


@case
def memory_that_goes_around_the_pool_is_told():
    status, output, _, parts = check("--sim", "--only", "doors", environment={"SIM_TAKES": "cuMemAlloc_v2:4"})
    expect(
        status == 1 and any("went around it" in failure for failure in parts["doors"]["failures"]),
        (output, parts["doors"]["failures"]),
    )


@case
def a_fact_that_is_not_as_assumed_is_told():
    status, stdout, stderr = run(
        "python3",
        "-B",
        TREE / "tests/gpu/facts/main.py",
        "5",
        "9",
        environment={"LD_LIBRARY_PATH": f"{BUILD}/src/sim/driver:{BUILD}/src/sim/runtime", "SIM_FREE_WAITS": "0"},
    )
    answers = {answer["number"]: answer for answer in map(json.loads, stdout.splitlines())}
    expect(status == 0 and set(answers) == {5, 9}, (status, stdout, stderr))
    verdicts = {number: facts.verdict(answer) for number, answer in answers.items()}
    expect(verdicts == {5: facts.AS_ASSUMED, 9: facts.DIFFERS}, answers)
    expect("a kernel on a non-blocking stream" in facts.found_text(answers[9]), facts.found_text(answers[9]))


@case
def every_fact_is_as_assumed():
    status, output, _, parts = check("--sim", "--only", "facts")
    part = parts["facts"]
    numbers = {
        int(number)
        for number in re.findall(r"^\| *(\d+) *\|", (TREE / "tests/driver-facts.md").read_text(), re.MULTILINE)
    }
    answers = {int(number): answer for number, answer in part["data"]["answers"].items()}
    expect(
        set(answers) == numbers and len(numbers) > 80, (sorted(numbers - set(answers)), sorted(set(answers) - numbers))
    )
    expect(status == 0 and not part["failures"], (output, part["failures"]))
    expect(all(answer["verdict"] != "DIFFERS" for answer in answers.values()), output)
    expect(all(answers[number]["answers"] for number in numbers), answers)
    expect(part["data"]["counts"]["not asked"] == 0, part["data"]["counts"])


@case
def a_part_that_cannot_run_is_skipped_and_the_rest_goes_on():
    status, output, _, parts = check("--sim", "--only", "thrust", "--only", "identity")
    expect(status == 0 and parts["identity"]["state"] == "passed", output)
    expect(parts["thrust"]["state"] == "skipped" and "simulated" in parts["thrust"]["reason"], output)


def part_on_a_device(name, environment=None):
    """What a part finds where a device is said to be, which it does not come to use."""
    out = folder()
    stage = {
        "tree": str(TREE),
        "build": BUILD,
        "out": str(out),
        "simulated": False,
        "device": {"name": "none", "driver": 13000, "memory": 1, "capability": "90"},
        "why_not": None,
    }
    run(
        "python3",
        "-B",
        TREE / "scripts/gpu_check/main.py",
        "--part",
        name,
        json.dumps(stage),
        out / "found.json",
        "30",
        environment=environment,
    )
    return json.loads((out / "found.json").read_text())


@case
def a_package_that_is_not_installed_is_told():
    found = part_on_a_device("cupy", {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"})
    if found["state"] == "failed":
        skip("CuPy is installed here")
    expect((found["state"], found["reason"]) == ("skipped", "the Python package cupy is not installed"), found)


@case
def a_compiler_that_is_missing_is_told():
    tools = folder()
    for tool in "python3", "cc", "env":
        (tools / tool).symlink_to(shutil.which(tool))
    found = part_on_a_device("thrust", {"PATH": str(tools)})
    expect((found["state"], found["reason"]) == ("skipped", "there is no nvcc here, or no g++ that it needs"), found)


@case
def the_programs_compile_for_a_device():
    """All but what nvcc takes long for; that is compiled where it runs."""
    out = folder()
    stage = Stage(TREE, BUILD, out, False, {"name": "none", "capability": "90"})
    if not (stage.runtime_folder / "libcudart_static.a").exists() or not stage.nvcc:
        skip("there is no CUDA Toolkit here")
    for name in programs.PROGRAMS:
        if name != "thrust":
            expect(programs.program(stage, name).exists(), name)


@case
def without_a_gpu_nothing_is_built():
    out = folder() / "report"
    status, stdout, stderr = run(SCRIPT, "--out", out, environment={**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "-1"})
    expect(status == 3 and "Nothing is built" in stdout + stderr, (status, stdout, stderr))
    expect(json.loads((out / "report.json").read_text())["device"] is None, stdout)


@case
def without_a_gpu_each_part_says_so():
    status, output, report, parts = check(environment={"CUDA_VISIBLE_DEVICES": "-1"})
    if report["device"]:
        expect(False, "CUDA_VISIBLE_DEVICES=-1 leaves a device")
    expect(status == 3 and len(parts) >= 14, (status, output))
    expect(output.count("No GPU: ") == 1 and "skipped  " not in output, output)
    for part in parts.values():
        expect(
            part["state"] == "skipped" and part["reason"].startswith("no GPU: "),
            (part["part"], part["state"], part["reason"]),
        )


@case
def help_names_every_part():
    _, names, _ = run("python3", "-B", TREE / "scripts/gpu_check/main.py", "--list")
    status, stdout, stderr = run(SCRIPT, "--help", directory="/")
    expect(status == 0 and stdout.startswith("Usage: scripts/gpu-check.sh") and not stderr, (status, stdout, stderr))
    expect(all(re.search(rf"^  .*\b{name}\b", stdout, re.MULTILINE) for name in names.split()), stdout)
    bundle = TREE / "scripts" / "bundle-deps.sh"
    status, stdout, stderr = run(bundle, "--help", directory="/")
    expect(status == 0 and stdout.startswith("Usage: scripts/bundle-deps.sh") and not stderr, (status, stdout, stderr))
    status, stdout, stderr = run(bundle, "--nonsense")
    expect(status == 2 and "Usage:" in stderr and not stdout, (status, stdout, stderr))


@case
def wrong_options_are_usage_errors():
    for options in (["--nonsense"], ["--only"], ["--only", "nothing"], ["--out"], ["--limit", "long"]):
        status, stdout, stderr = run(SCRIPT, "--build-dir", BUILD, *options)
        expect(status == 2 and stderr and not stdout, (options, status, stdout, stderr))


main()

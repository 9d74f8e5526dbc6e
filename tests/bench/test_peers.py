#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/bench-peers.sh as far as it needs no network: what it says of a wrong use, of a registry that cannot be reached,
of a missing compiler, and the sums that it makes of what is measured."""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))
from tap import case, main, skip  # noqa: E402

SCRIPT = TREE / "scripts" / "bench-peers.sh"


def expect_equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


def run(*command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def script_module():
    specification = importlib.util.spec_from_file_location("bench_peers", TREE / "scripts" / "bench-peers.py")
    module = importlib.util.module_from_spec(specification)
    sys.dont_write_bytecode = True
    specification.loader.exec_module(module)
    return module


@case
def wrong_usage_says_what_was_expected():
    for arguments in (["--repetitions", "0"], ["--repetitions=many"], ["--nonsense"], ["--build-dir"]):
        status, stdout, stderr = run(SCRIPT, *arguments)
        expect_equal((status, stdout, stderr.startswith("bench-peers.sh: ")), (2, "", True), stderr)
    status, stdout, stderr = run(SCRIPT, "--help")
    expect_equal((status, stdout.startswith("Usage: scripts/bench-peers.sh"), stderr), (0, True, ""), "--help")


@case
def a_registry_that_cannot_be_reached_is_said():
    if run("python3", "-m", "pip", "--version")[0] != 0:
        skip("python3 has no pip")
    with tempfile.TemporaryDirectory() as folder:
        status, stdout, stderr = run(SCRIPT, "--build-dir", f"{folder}/a build", PIP_NO_INDEX="1")
        expect_equal((status, stdout), (1, ""), stderr)
        for text in ("cannot get librmm-cu12 25.4.0 and rapids-logger 0.1.19 from the package registry", "pip says"):
            if text not in stderr:
                raise AssertionError(f"{text!r} is not in {stderr!r}")
        expect_equal((Path(folder) / "a build" / "build.ninja").exists(), False, "a build was begun")


@case
def a_python_without_pip_is_said():
    with tempfile.TemporaryDirectory() as folder:
        program = "import sys; sys.argv[1:] = ['fetch', sys.argv[1]]; import runpy; sys.executable = sys.argv.pop();" \
            f"sys.argv.append({folder + '/rmm'!r}); runpy.run_path({str(TREE / 'scripts' / 'bench-peers.py')!r}, run_name='__main__')"
        fake = Path(folder) / "python"
        fake.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n", encoding="utf-8")
        fake.chmod(0o755)
        status, stdout, stderr = run("python3", "-c", program, str(fake))
        expect_equal((status, stdout, stderr),
                     (1, "", f"bench-peers.sh: {fake} has no pip to fetch librmm-cu12 25.4.0 and rapids-logger 0.1.19 with:"
                      " install python3-pip\n"), "what is said")


@case
def a_missing_compiler_is_said():
    if run("python3", "-m", "pip", "--version")[0] != 0 or shutil.which("g++") is None:
        skip("something else is missing first")
    with tempfile.TemporaryDirectory() as folder:
        status, stdout, stderr = run(SCRIPT, "--build-dir", folder, CXX="no-such-compiler")
        expect_equal((status, stdout, "no C++ compiler that knows C++17 (no-such-compiler)" in stderr), (1, "", True), stderr)


@case
def what_was_fetched_is_not_fetched_again():
    with tempfile.TemporaryDirectory() as folder:
        module = script_module()
        (Path(folder) / "packages.json").write_text('{"librmm-cu12": "25.4.0", "rapids-logger": "0.1.19"}', encoding="utf-8")
        expect_equal(module.fetch(Path(folder)), None, "nothing is asked of a registry")
        status, _, stderr = run("python3", TREE / "scripts" / "bench-peers.py", "fetch", folder, PIP_NO_INDEX="1")
        expect_equal((status, stderr), (0, ""), "the same by itself")


@case
def ratios_are_of_rmm_to_the_pool_and_bounds_are_judged():
    module = script_module()
    lines = ["machine\tsome machine"]
    for live, rmm in ((1000, 400.0), (10000, 1999.0)):
        lines += [f"{name}\trandom\t{live}\t{ns}" for name, ns in
                  (("async", 100.0), ("sync", 120.0), ("rmm_pool", rmm), ("rmm_arena", 50.0), ("record", 60.0))]
    machine, rows = module.rows_of("\n".join(lines))
    expect_equal(machine, "some machine", "machine")
    expect_equal([(row["live"], row["ratio"], row["ratio_without_event"], row["arena_ratio"]) for row in rows],
                 [(1000, 4.0, 3.4, 0.5), (10000, 19.99, 19.39, 0.5)], "ratios")
    expect_equal([(bound["live"], bound["least"], bound["holds"]) for bound in module.bounds(rows)],
                 [(1000, 4, True), (10000, 20, False)], "bounds")


main()

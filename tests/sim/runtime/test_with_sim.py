# SPDX-License-Identifier: MIT
"""scripts/with-sim.sh, over folders that only look like builds.

    test_with_sim.py WITH_SIM BUILD

BUILD: where the simulated CUDA itself is.
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
from tap import case, main, skip

WITH_SIM, BUILD = sys.argv.pop(1), sys.argv.pop(1)
SHOW_PATH = ["sh", "-c", 'printf %s "$LD_LIBRARY_PATH"']


def run(script, *arguments, folder="/", **variables):
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("LD_LIBRARY_PATH", "POOLCUDA_BUILD")}
    return subprocess.run([script, *arguments], env={**environment, **variables}, cwd=folder, capture_output=True,
                          text=True, timeout=30)


def touch(*path):
    os.makedirs(os.path.dirname(os.path.join(*path)), exist_ok=True)
    open(os.path.join(*path), "w", encoding="ascii").close()


def fill_build(build):
    touch(build, "src/sim/driver/libcuda.so.1")
    touch(build, "src/sim/runtime/libcudart.so.13")
    return f"{build}/src/sim/driver:{build}/src/sim/runtime"


def copied_script(top):
    """The script in a tree of its own, whose path has a space."""
    os.makedirs(os.path.join(top, "a tree", "scripts"))
    return shutil.copy(WITH_SIM, os.path.join(top, "a tree", "scripts", "with-sim.sh"))


def in_scratch(function):
    def inside():
        with tempfile.TemporaryDirectory() as top:
            function(os.path.realpath(top))
    inside.__name__ = function.__name__
    return case(inside)


def equal(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


@in_scratch
def the_build_folder_of_the_tree_is_found_from_any_folder(top):
    script = copied_script(top)
    path = fill_build(os.path.join(top, "a tree", "build"))
    for folder in "/", top, os.path.join(top, "a tree"):
        result = run(script, *SHOW_PATH, folder=folder)
        equal((result.returncode, result.stdout), (0, path))


@in_scratch
def a_link_to_the_script_works(top):
    path = fill_build(os.path.join(top, "a tree", "build"))
    link = os.path.join(top, "link")
    os.symlink(copied_script(top), link)
    equal(run(link, *SHOW_PATH).stdout, path)


@in_scratch
def option_and_variable_name_another_build_folder(top):
    path, other = (fill_build(os.path.join(top, name)) for name in ("one build", "other"))
    equal(run(WITH_SIM, *SHOW_PATH, POOLCUDA_BUILD=os.path.join(top, "one build")).stdout, path)
    equal(run(WITH_SIM, "--build", "other", *SHOW_PATH, folder=top, POOLCUDA_BUILD="/nowhere").stdout, other)
    equal(run(WITH_SIM, "--build=other", "--", *SHOW_PATH, folder=top).stdout, other)


@in_scratch
def an_installed_script_finds_the_libraries_beside_it(top):
    os.makedirs(os.path.join(top, "bin"))
    script = shutil.copy(WITH_SIM, os.path.join(top, "bin", "poolcuda-with-sim"))
    touch(top, "lib/x86_64-linux-gnu/poolcuda/sim/libcuda.so.1")
    touch(top, "lib/x86_64-linux-gnu/poolcuda/sim/libcudart.so.13")
    equal(run(script, *SHOW_PATH).stdout, f"{top}/lib/x86_64-linux-gnu/poolcuda/sim")


@in_scratch
def an_existing_library_path_stays_behind(top):
    path = fill_build(top)
    equal(run(WITH_SIM, "--build", top, *SHOW_PATH, LD_LIBRARY_PATH="/x:/y").stdout, path + ":/x:/y")


@in_scratch
def the_exit_status_and_the_arguments_are_the_commands(top):
    fill_build(top)
    equal(run(WITH_SIM, "--build", top, "sh", "-c", "exit 7").returncode, 7)
    result = run(WITH_SIM, "--build", top, "printf", "<%s>", "--help", "a b", "")
    equal(result.stdout, "<--help><a b><>")


@in_scratch
def what_is_not_built_is_said(top):
    result = run(copied_script(top), "true")
    equal(result.returncode, 2)
    assert "neither built" in result.stderr and "a tree/build" in result.stderr, result.stderr
    result = run(WITH_SIM, "--build", top, "true")
    equal(result.returncode, 2)
    assert top in result.stderr, result.stderr


@case
def the_variables_are_listed_with_a_command_or_without():
    if os.environ.get("WITH_SIM_SANITIZER", "none") != "none":
        skip("a sanitizer's library cannot be loaded into any program")
    result = run(WITH_SIM, "--build", BUILD, SIM_HELP="1")
    equal((result.returncode, result.stderr), (0, ""))
    for name in "SIM_DEVICES", "SIM_FAIL", "SIM_HELP":
        assert f"  {name} " in result.stdout, result.stdout
    # Once, whatever the command loads.
    for command in ["printf", "done"], ["env", "LD_PRELOAD=libcuda.so.1", "printf", "done"]:
        beside = run(WITH_SIM, "--build", BUILD, *command, SIM_HELP="1")
        equal((beside.returncode, beside.stdout, beside.stderr), (0, "done", result.stdout))
    equal(run(WITH_SIM, "--build", BUILD, "printf", "done", SIM_HELP="0").stderr, "")


@case
def a_wrong_use_answers_2_and_help_0():
    for arguments in (), ("--build",), ("--nonsense", "true"):
        result = run(WITH_SIM, *arguments)
        equal((result.returncode, result.stdout), (2, ""))
        assert "--help" in result.stderr, result.stderr
    result = run(WITH_SIM, "--help")
    equal((result.returncode, result.stderr), (0, ""))
    assert "Usage:" in result.stdout, result.stdout


main()

# SPDX-License-Identifier: MIT
"""scripts/lib.sh and the options of scripts/test.sh: building from any place, and saying what is missing."""
import os
import shutil
from pathlib import Path

from fixture import TREE, expect, folder, project, run
from tap import case, main


def small_tree():
    """A tree of its own with a project that builds in no time and the scripts beside it."""
    top = folder() / "a tree"
    project(top, {"checks": (["one"], "print('1..1\\nok 1 - one')")})
    shutil.copytree(TREE / "scripts", top / "scripts")
    return top


def prepare(top, *options, as_user=(), environment=None):
    script = f'set -euo pipefail; . "{top}/scripts/lib.sh"; prepare build "$@"; echo "built in $build"'
    return run(*as_user, "bash", "-c", script, "script", *options, directory="/", environment=environment)


def path_with(*commands):
    """A folder to stand for PATH, holding only the commands named."""
    bin_folder = folder()
    for command in commands:
        (bin_folder / command).symlink_to(shutil.which(command))
    return bin_folder


SMALL_TOOLS = ("bash", "basename", "cat", "dirname", "env", "id", "mktemp", "readlink", "rm", "tail")


def require(path, *packages):
    script = f'set -euo pipefail; . "{TREE}/scripts/lib.sh"; require "$@"'
    return run(path / "bash", "-c", script, "script", *packages, environment={"PATH": str(path), "CC": "cc"})


@case
def tree_with_spaces_builds_from_any_folder():
    top = small_tree()
    status, stdout, stderr = prepare(top)
    expect((status, stdout) == (0, f"built in {top}/build\n"), (status, stdout, stderr))


@case
def second_build_configures_nothing():
    top = small_tree()
    prepare(top)
    before = (top / "build" / "meson-info" / "meson-info.json").stat().st_mtime_ns
    prepare(top)
    after = (top / "build" / "meson-info" / "meson-info.json").stat().st_mtime_ns
    expect(before == after, (before, after))


@case
def changed_options_configure_again():
    top = small_tree()
    prepare(top)
    status, stdout, stderr = prepare(top, "--buildtype=release")
    options = (top / "build" / "meson-info" / "intro-buildoptions.json").read_text()
    expect(status == 0 and '"value": "release"' in options, (stdout, stderr))


@case
def moved_tree_builds_again():
    top = small_tree()
    prepare(top)
    moved = top.parent / "moved tree"
    top.rename(moved)
    status, stdout, stderr = prepare(moved)
    expect((status, stdout) == (0, f"built in {moved}/build\n"), (status, stdout, stderr))


@case
def folder_that_is_no_build_is_left_alone():
    top = small_tree()
    (top / "build").mkdir()
    (top / "build" / "thesis.tex").write_text("years of work")
    status, _, stderr = prepare(top)
    expect(status == 1 and "holds something else than a build" in stderr, (status, stderr))
    expect((top / "build" / "thesis.tex").exists(), "the file is gone")


@case
def failed_build_shows_the_log():
    top = small_tree()
    (top / "meson.build").write_text("project('broken')\nerror('the reason why')\n")
    status, _, stderr = prepare(top)
    expect(status == 1 and "the reason why" in stderr, (status, stderr))
    project(top, {"checks": (["one"], "")})
    status, stdout, stderr = prepare(top)
    expect(status == 0, (status, stdout, stderr))


@case
def tree_that_cannot_be_written_builds_in_the_cache():
    top, cache = small_tree(), folder()
    as_nobody = []
    if os.geteuid() == 0:  # who can write everywhere
        as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        top.parent.chmod(0o755)
        shutil.chown(cache, 65534)
    top.chmod(0o555)
    status, stdout, stderr = prepare(top, as_user=as_nobody, environment={"XDG_CACHE_HOME": str(cache)})
    top.chmod(0o755)
    expect(status == 0 and f"built in {cache}/poolcuda/" in stdout, (status, stdout, stderr))


@case
def nothing_missing_needs_no_rights():
    script = f'set -euo pipefail; . "{TREE}/scripts/lib.sh"; install_packages() {{ echo "would install $*"; }}; require'
    status, stdout, stderr = run("bash", "-c", script)
    expect((status, stdout) == (0, ""), (status, stdout, stderr))


@case
def missing_packages_are_named_where_none_can_be_installed():
    status, _, stderr = require(path_with(*SMALL_TOOLS), "patch")
    expect(status == 1 and "gcc libc6-dev g++ python3 meson ninja-build pkg-config libcmocka-dev uthash-dev libjansson-dev liblzma-dev"
           in stderr and "patch" in stderr and "No apt-get" in stderr, (status, stderr))


@case
def missing_packages_are_installed_after_an_update():
    path = path_with(*SMALL_TOOLS)
    log = path / "log"
    for name, text in (("apt-get", f'echo "$DEBIAN_FRONTEND $*" >>"{log}"'), ("sudo", '[ "$1" != -n ] || shift; exec "$@"'),
                       ("true", "exit 0")):
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    status, stdout, stderr = require(path)
    calls = log.read_text().splitlines() if log.exists() else []
    expect(status == 0 and "Installing with apt-get" in stdout and "libcmocka-dev" in stdout, (status, stdout, stderr))
    expect(len(calls) == 2 and calls[0] == "noninteractive update"
           and calls[1].startswith("noninteractive install -y --no-install-recommends gcc"), calls)


@case
def help_is_printed_on_stdout():
    for script in sorted(Path(TREE / "scripts").glob("[dt]e*.sh")):
        status, stdout, stderr = run(script, "--help", directory="/")
        expect(status == 0 and stdout.startswith("Usage: scripts/") and not stderr, (script, status, stdout, stderr))


@case
def wrong_options_are_usage_errors():
    for options in (["--nonsense"], ["--sanitize", "everything"], ["--only"], ["--mutants", "x", "--list"],
                    ["--random", "1"], ["--random", "one", "2"], ["--random", "1", "0"], ["--mode", "sync"],
                    ["--random", "1", "2", "--mode", "often"], ["--random", "1", "2", "--only", "x"],
                    ["--random", "1", "2", "--mutants"], ["--cross", "sparc"],
                    ["--cross", "aarch64", "--sanitize", "thread"]):
        status, stdout, stderr = run(TREE / "scripts" / "test.sh", *options)
        expect(status == 2 and "Usage:" in stderr and not stdout, (options, status, stdout, stderr))


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tries the tests: each patch of tests/mutants breaks one guard of the code, and a test must notice.

The tree is copied; in the copy one patch at a time is applied, built and tested until a case fails. A case that is ended
by its time limit has noticed too. First the unpatched copy must pass, or nothing would be shown.

A patch begins with lines of text, among them:
    Breaks: what guard the patch takes away
    Run first: PATTERN …    cases (suite/program/case, with * and ?) that should notice; the others follow
    Sanitize: thread        build with this sanitizer, and run only the cases named by "Run first"
    Cross: aarch64          the same for this processor (see scripts/test.sh)
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import testcases

LEFT_OUT = shutil.ignore_patterns(".git", "build*", ".venv*", "__pycache__", "*.pyc")
SLOWDOWN = 5  # of sanitizers and emulators


@dataclass
class Mutant:
    name: str
    path: Path
    run_first: list = field(default_factory=list)
    sanitizer: str = ""
    cross: str = ""

    @property
    def variant(self):
        """The build that it is tried in."""
        return f"cross-{self.cross}" if self.cross else self.sanitizer


class Unusable(Exception):
    """A mutant that does not apply or build; or a copy that does not pass unpatched."""


def read_mutant(path):
    mutant = Mutant(path.stem, path)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("--- "):
            break
        key, _, value = line.partition(":")
        if key == "Run first":
            mutant.run_first = value.split()
        elif key == "Sanitize":
            mutant.sanitizer = value.strip()
        elif key == "Cross":
            mutant.cross = value.strip()
    if mutant.variant and not mutant.run_first:
        raise Unusable(f'{path}: "Sanitize" and "Cross" need "Run first"')
    return mutant


def copy_tree(source, target):
    """Makes the target equal to the source, and touches only what differs, so that the next build is short."""
    target.mkdir(parents=True, exist_ok=True)
    names = os.listdir(source)
    names = set(names) - LEFT_OUT(str(source), names)
    for name in set(os.listdir(target)) - names:
        path = target / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in names:
        from_path, to_path = source / name, target / name
        if from_path.is_dir():
            copy_tree(from_path, to_path)
        elif not to_path.exists() or to_path.read_bytes() != from_path.read_bytes():
            shutil.copyfile(from_path, to_path)
            shutil.copymode(from_path, to_path)


class Bench:
    """A copy of the tree with its build folders, one for each variant in use."""

    def __init__(self, tree, work):
        self.tree, self.copy, self.work = tree, work / "tree", work

    def restore(self):
        copy_tree(self.tree, self.copy)

    def patch(self, mutant):
        applied = subprocess.run(["patch", "-p1", "-F0", "--no-backup-if-mismatch", "-f", "-d", str(self.copy), "-i",
                                  str(mutant.path)], capture_output=True, text=True)
        if applied.returncode != 0:
            raise Unusable("does not apply\n" + applied.stdout + applied.stderr)

    def build(self, variant):
        build = self.work / (variant or "plain")
        cross = variant.removeprefix("cross-") if variant.startswith("cross-") else ""
        options = [f"-Db_sanitize={variant}", "-Db_lundef=false"] if variant else []
        if cross:
            options = ["--cross-file", str(self.copy / "scripts" / f"{cross}.cross"), "-Dlibc_only=true"]
        commands = [["ninja", "-C", str(build), "all", "meson-test-prereq"]]
        if not (build / "build.ninja").exists():
            shutil.rmtree(build, ignore_errors=True)
            commands.insert(0, ["meson", "setup", "--buildtype=debug", *options, str(build), str(self.copy)])
        for command in commands:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                raise Unusable("does not build\n" + (done.stdout + done.stderr)[-3000:])
        return build

    def failures(self, build, patterns, variant, only_patterns=False):
        """Failing cases: of those that match a pattern, and when all of them pass, of all."""
        options = ["--maxfail", "1", "--timeout-multiplier", str(SLOWDOWN if variant else 1)]
        programs = testcases.load_programs(build)
        for pattern in [*patterns, *([] if only_patterns else [None])]:
            chosen = programs if pattern is None else [
                program for program in programs
                if program.list_failure or any(testcases.matches(case, pattern) for case in program.case_ids())]
            if not chosen:
                raise Unusable(f'no case matches "Run first: {pattern}"')
            failed = [result for result in testcases.run_cases(build, chosen, pattern, options)
                      if result.status == testcases.FAILED]
            if failed:
                return failed
        return []


def check_pristine(bench, mutants):
    bench.restore()
    for variant in sorted({mutant.variant for mutant in mutants}):
        build = bench.build(variant)
        patterns = sorted({pattern for mutant in mutants if mutant.variant == variant for pattern in mutant.run_first})
        failed = bench.failures(build, patterns if variant else [], variant, only_patterns=bool(variant))
        if failed:
            raise Unusable("the tests fail without any mutant: " + ", ".join(result.case for result in failed))


def try_mutant(bench, mutant):
    """The case that notices, or None."""
    bench.restore()
    bench.patch(mutant)
    build = bench.build(mutant.variant)
    failed = bench.failures(build, mutant.run_first, mutant.variant, only_patterns=bool(mutant.variant))
    if not failed:
        return None
    limit = re.search("ended by its time limit", failed[0].text)
    return failed[0].case + (" (time limit)" if limit else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("work", type=Path, help="a folder of its own, for the copy and its builds")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    patches = {path.stem: path for path in sorted((arguments.tree / "tests" / "mutants").glob("*.patch"))}
    names = [name.removesuffix(".patch") for name in arguments.names] or list(patches)
    unknown = [name for name in names if name not in patches]
    if unknown or not names:
        print(f"no such mutant: {' '.join(unknown)}; there are: {' '.join(patches)}", file=sys.stderr)
        return 2
    os.environ.setdefault("TSAN_OPTIONS", "halt_on_error=1")  # so that the case is known
    bench = Bench(arguments.tree, arguments.work)
    caught = 0
    try:
        mutants = [read_mutant(patches[name]) for name in names]
        check_pristine(bench, mutants)
    except Unusable as reason:
        print(reason, file=sys.stderr)
        return 1
    for mutant in mutants:
        try:
            notices = try_mutant(bench, mutant)
            print(f"{mutant.name}: " + (f"caught by {notices}" if notices else "survived"), flush=True)
            caught += notices is not None
        except Unusable as reason:
            print(f"{mutant.name}: {reason}", flush=True)
    print(f"{caught} of {len(mutants)} caught")
    return 0 if caught == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())

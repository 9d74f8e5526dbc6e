# SPDX-License-Identifier: MIT
"""Small meson projects to try the scripts on, in a folder whose name has a space, and the tree that the scripts are in."""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests" / "support"))

PROGRAM = """
import os, sys, time
CASES = {cases!r}
if sys.argv[1:] == ["--list"]:
    print("\\n".join(CASES))
    sys.exit()
if sys.argv[1:2] == ["--only"]:
    CASES = [case for case in CASES if case in sys.argv[2:]]
{body}
"""


def folder():
    path = Path(tempfile.mkdtemp(prefix="poolcuda test "))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def project(top, programs, timeout_s=20):
    """A project in `top` with a TAP program for each name in `programs`: (its cases, the Python text that runs them)."""
    top.mkdir(parents=True, exist_ok=True)
    lines = ["project('fixture', meson_version: '>= 1.0')", "python = find_program('python3')"]
    for name, (cases, body) in programs.items():
        (top / f"{name}.py").write_text(PROGRAM.format(cases=cases, body=body))
        lines.append(f"test('{name}', python, args: files('{name}.py'), suite: 'some', protocol: 'tap', timeout: {timeout_s})")
    (top / "meson.build").write_text("\n".join(lines) + "\n")


def run(*command, environment=None, directory=None):
    """(exit status, stdout, stderr)"""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(environment or {})}, cwd=directory)
    return done.returncode, done.stdout, done.stderr


def expect(holds, found):
    if not holds:
        raise AssertionError(f"found:\n{found}")

# SPDX-License-Identifier: MIT
"""What the tests of poolstat share: the program, and processes with a synthetic segment each."""
import contextlib
import json
import os
import subprocess
import tempfile
from collections import namedtuple
from pathlib import Path

import schema

POOLSTAT = os.environ["POOLSTAT"]
SYNTHETIC = os.environ["SYNTHETIC"]
MIB = 1024 * 1024

Result = namedtuple("Result", "code out err")
Guest = namedtuple("Guest", "process pid path")


def expect(found, wanted, what=""):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, expected {wanted!r}")


def expect_in(part, whole):
    if part not in whole:
        raise AssertionError(f"{part!r} is not in {whole!r}")


def poolstat(*arguments, folder, wrapper=(), **settings):
    environment = dict(os.environ, POOLSTAT_SHM_DIR=str(folder))
    done = subprocess.run([*wrapper, POOLSTAT, *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=20, **settings)
    for line in ("Sanitizer", "runtime error:"):
        if line in done.stderr.decode(errors="replace"):
            raise AssertionError(done.stderr.decode(errors="replace"))
    out = done.stdout.decode("utf-8")
    if "--json" in arguments or "-j" in arguments:
        schema.check_text(out)
    return Result(done.returncode, out, done.stderr.decode("utf-8"))


def document(*arguments, folder, code=0, **settings):
    result = poolstat("--json", *arguments, folder=folder, **settings)
    expect(result.code, code, f"exit code ({result.err.strip()})")
    parsed = json.loads(result.out)
    expect(parsed["schema"], "poolstat/1", "schema")
    return parsed


@contextlib.contextmanager
def folder_of_segments():
    with tempfile.TemporaryDirectory(prefix="poolstat-test-") as name:
        yield Path(name)


@contextlib.contextmanager
def guest(folder, *words, wrapper=(), program=SYNTHETIC):
    """A process with a segment; it ends with the block."""
    process = subprocess.Popen([*wrapper, program, str(folder), *words], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline().split(maxsplit=2)
        if line[:1] != ["ready"]:
            raise AssertionError(f"the synthetic guest did not start: {line!r}")
        yield Guest(process, int(line[1]), Path(line[2].strip()))
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def one_guest(*words):
    with folder_of_segments() as folder, guest(folder, *words) as started:
        yield folder, started

# SPDX-License-Identifier: MIT
"""A file of figures that is garbled, cut short, made longer and replaced while every command reads it."""
import json
import os
import random
import re
import threading

from common import expect, folder_of_segments, one_guest, poolstat
from tap import case, main

# Those that read no figures, or never end by themselves.
OTHERS = {"run", "help", "serve", "ctl", "live"}
ROUNDS = 40


def commands(folder, pid):
    """Every command that reads figures, as --help names them, with what it needs to do so."""
    names = re.findall(r"^  poolstat ([a-z]+)", poolstat("--help", folder=folder).out, re.MULTILINE)
    known = {"check": ["hit_rate >= 0", "-p", str(pid)], "ls": []}
    for name in sorted({*names} - OTHERS):
        yield [name, *known.get(name, [str(pid)])]
        yield ["--json", name, *known.get(name, [str(pid)])]
    yield ["--csv"]
    yield ["doctor"]


class Changer(threading.Thread):
    """Does one thing after the other to the file, and in the end leaves it as it was."""

    def __init__(self, path, good, seed):
        super().__init__()
        self.path, self.good, self.generator, self.ended = path, good, random.Random(seed), threading.Event()

    def change(self, file):
        generator, size = self.generator, len(self.good)
        kind = generator.randrange(6)
        if kind == 0:
            os.ftruncate(file, generator.randrange(size + 1))
        elif kind == 1:
            os.ftruncate(file, size + generator.randrange(100000))
        elif kind == 2:
            os.pwrite(file, generator.randbytes(generator.randrange(1, 64)), generator.randrange(640))
        elif kind == 3:
            os.pwrite(file, generator.randbytes(generator.randrange(1, 2000)), generator.randrange(size))
        else:
            os.pwrite(file, self.good, 0)
            os.ftruncate(file, size)

    def run(self):
        while not self.ended.is_set():
            with open(self.path, "r+b", buffering=0) as file:
                for _ in range(20):
                    self.change(file.fileno())
            other = self.path.with_name("other")
            other.write_bytes(self.good)
            other.replace(self.path)

    def __exit__(self, *unused):
        self.ended.set()
        self.join()

    def __enter__(self):
        self.start()
        return self


@case
def every_command_survives_a_changing_file():
    codes = set()
    with one_guest() as (folder, started):
        good = started.path.read_bytes()
        copy = folder / "copy"
        copy.write_bytes(good)
        copy.replace(started.path)  # not the file that the guest has mapped: that one may not be cut
        for number, arguments in enumerate(commands(folder, started.pid)):
            with Changer(started.path, good, number):
                for _ in range(ROUNDS):
                    result = poolstat(*arguments, folder=folder)
                    if result.code not in (0, 1, 4, 5, 6):
                        raise AssertionError(f"{arguments}: code {result.code}: {result.err}")
                    if "--json" in arguments:
                        json.loads(result.out)
                    codes.add((arguments[-1] if arguments[0] == "--json" else arguments[0], result.code))
            expect(poolstat("ls", folder=folder).code, 0, f"the file as it was, after {arguments}")
    for wanted in ("ls", 0), ("ls", 4), ("show", 0), ("show", 4):
        if wanted not in codes:
            raise AssertionError(f"never {wanted}: the changes are too mild or too rough ({sorted(codes, key=str)})")


@case
def commands_that_read_are_found():
    with folder_of_segments() as folder:
        names = {arguments[-2] if arguments[-1] == "1" else arguments[0] for arguments in commands(folder, 1)}
    for name in ("ls", "show", "doctor"):
        if name not in names:
            raise AssertionError(f"{name} is not among {names}")


main()

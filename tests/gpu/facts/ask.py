# SPDX-License-Identifier: MIT
"""How a question of tests/driver-facts.md is written down: a function with its number, that says what was assumed and
what was found.

    @fact(5)
    def zero_bytes(answer):
        pointer = U64(1)
        answer("cudaMalloc(&q, 0)", 0, rt.cudaMalloc(byref(pointer), 0))

Each is asked in a process of its own, which is forked before it has called CUDA.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@dataclass
class Fact:
    number: int
    ask: Callable
    alone: bool  # it measures time, or fills the device: nothing else may run beside it
    bare: bool  # it makes its contexts itself
    variables: dict  # for the simulated driver


facts = {}


def fact(number, alone=False, bare=False, **variables):
    """`variables`: of the simulated driver (SIM_…), where the question needs them."""

    def decorate(function):
        assert number not in facts, number
        facts[number] = Fact(number, function, alone, bare, variables)
        return function

    return decorate


class Answers:
    """Sends what a question finds, at once: the driver may end the process at the next call."""

    def __init__(self, pipe):
        self.pipe = pipe

    def __call__(self, what, assumed, found):
        self.pipe.send({"what": what, "assumed": assumed, "found": found})

    def note(self, what, found):
        """Nothing is assumed of it."""
        self(what, None, found)

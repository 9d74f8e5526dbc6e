#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Some linear algebra and elementwise work in CuPy with its memory pool off, compared with NumPy's results."""

import cupy
import numpy

from waiting import finish, median_ms

SIZES = (64, 1000, 257, 512)


def work(library, seed):
    random = numpy.random.RandomState(seed)
    sums = []
    for size in SIZES:
        a = library.asarray(random.rand(size, size))
        b = library.asarray(random.rand(size, size))
        c = library.sqrt(library.abs(a @ b - a.T)) * 2 + b
        c = library.sort(c, axis=1)[:, ::2].cumsum(axis=0)
        sums += [float(c.sum()), float(library.linalg.norm(c - c.mean())), float(c.max())]
    return sums


def main():
    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
    wanted, found = work(numpy, 1), work(cupy, 1)
    right = bool(numpy.allclose(wanted, found, rtol=1e-9))

    def one_round():
        work(cupy, 2)
        cupy.cuda.Device().synchronize()

    finish(
        {
            "right": right,
            "wrong": None if right else [wanted, found],
            "ms": median_ms(one_round, 20),
            "cupy": cupy.__version__,
        }
    )


if __name__ == "__main__":
    main()

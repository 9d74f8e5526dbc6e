#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kernels of Numba over arrays that it allocates by its default memory manager, compared with NumPy's results."""

import numpy
from numba import cuda

from waiting import finish, median_ms

SIZES = (1000, 65536, 300000)


@cuda.jit
def scaled_sum(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i] * y[i]


def work(size):
    x, y = numpy.arange(size, dtype=numpy.float64), numpy.linspace(0, 1, size)
    on_device = cuda.to_device(x), cuda.to_device(y)
    out = cuda.device_array(size, numpy.float64)
    blocks = (size + 255) // 256
    scaled_sum[blocks, 256](2.0, *on_device, out)
    scaled_sum[blocks, 256](0.5, out, on_device[1], out)
    return x, y, out.copy_to_host()


def main():
    right = True
    for size in SIZES:
        x, y, found = work(size)
        right = right and bool(numpy.allclose(found, 0.5 * (2 * x + y * y) + y * y))

    def one_round():
        for size in SIZES:
            work(size)
        cuda.current_context().deallocations.clear()

    finish({"right": right, "ms": median_ms(one_round, 20)})


if __name__ == "__main__":
    main()

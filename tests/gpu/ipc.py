#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shares blocks with another process, with and without an offset, and prints one JSON object: for each answer what is
right, and what was found. Under the pool both processes have it."""

import json
import os
import sys
from ctypes import byref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "facts"))

from cuda import MIB, U64, cu, done, malloc, primary  # noqa: E402
from importer import Importer, first_byte, handle, range_of  # noqa: E402

SIZE = MIB


def main():
    importer, checks = Importer(), {}
    primary()
    # The first starts a segment, where there is a pool; the others lie inside it.
    blocks = [malloc(SIZE) for _ in range(3)]
    for number, block in enumerate(blocks):
        done(cu.cuMemsetD8(block, 10 + number, SIZE))
        done(cu.cuMemsetD8(block + 4096, 20 + number, 4096))
    for number, block in enumerate(blocks):
        name = f"block {number}"
        base, size = U64(), U64()
        done(cu.cuMemGetAddressRange(byref(base), byref(size), block + 4096))
        checks[f"{name}: range of an address inside it"] = [[0, SIZE], [base.value - block, size.value]]
        whole, inside = handle(block), handle(block + 4096)
        checks[f"{name}: without an offset"] = [10 + number, importer.ask("byte at", whole, 0)]
        checks[f"{name}: the interior pointer's handle, with the offset from the range"] = [
            20 + number,
            importer.ask("byte at", inside, block + 4096 - base.value),
        ]
        checks[f"{name}: what the importer writes is seen"] = [
            "written",
            importer.ask("write at", whole, 8192, 30 + number),
        ]
        checks[f"{name}: and where it should be"] = [30 + number, first_byte(block + 8192)]
        checks[f"{name}: its neighbours are as they were"] = [[10, 11, 12], [first_byte(other) for other in blocks]]
    checks["kept open: first byte"] = [11, importer.ask("keep open", handle(blocks[1]))]
    if "libpoolcuda" in os.environ.get("LD_PRELOAD", ""):  # CUDA alone does not promise it
        done(cu.cuMemFree(blocks[1]))
        for _ in range(4):
            done(cu.cuMemsetD8(malloc(SIZE), 99, SIZE))
        checks["what another process has open is not given out again"] = [11, importer.ask("read kept")]
    checks["range of a live block after it"] = [[0, SIZE], range_of(blocks[2])]
    print(json.dumps({"checks": checks}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the first device as one JSON object; exit status 1 and one line on stderr when there is none to be used."""

import ctypes
import json
import sys
from ctypes import byref

import cuda
from cuda import U64, cu


def attribute(number):
    value = ctypes.c_int()
    cuda.done(cu.cuDeviceGetAttribute(byref(value), number, 0), "cuDeviceGetAttribute")
    return value.value


def main():
    try:
        cuda.device()
        name, version, total, count = ctypes.create_string_buffer(256), ctypes.c_int(), U64(), ctypes.c_int()
        cuda.done(cu.cuDeviceGetName(name, 256, 0), "cuDeviceGetName")
        cuda.done(cu.cuDeviceTotalMem(byref(total), 0), "cuDeviceTotalMem")
        cu.cuDriverGetVersion(byref(version))
        cu.cuDeviceGetCount(byref(count))
        cuda.primary()
        print(
            json.dumps(
                {
                    "name": name.value.decode(errors="replace"),
                    "driver": version.value,
                    "memory": total.value,
                    "count": count.value,
                    "free": cuda.free_bytes(),
                    "capability": f"{attribute(75)}{attribute(76)}",
                }
            )
        )
    except (cuda.Lacking, cuda.Failed) as reason:
        print(reason, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which addresses the driver gives for the functions of a table: `identity.py TABLE`, where TABLE is src/entry/hooks.h.

Prints one JSON object: how many look-ups were made; for each exported symbol of the table its address by dlsym; and each
look-up by cuGetProcAddress that gave another address than dlsym does for the variant that the table says. With the pool
preloaded, all addresses must be the pool's: `inside` counts those that lie in libpoolcuda.so, `outside` names the others.
"""

import ctypes
import json
import re
import sys
from ctypes import byref

from cuda import U64, cu

FLAGS = {0: "default", 1: "legacy", 2: "per-thread"}
LEGACY, PER_THREAD = "ENTRY_LEGACY", "ENTRY_PER_THREAD"


def table(path):
    """[(symbol, name, version, per-thread)] of the hooks."""
    with open(path, encoding="utf-8") as file:
        found = re.findall(r'^ +X\((\w+), "(\w+)", (\d+), (ENTRY_\w+),', file.read(), re.MULTILINE)
    return [(symbol, name, int(version), flags == PER_THREAD) for symbol, name, version, flags in found]


def by_dlsym(symbol):
    try:
        return ctypes.cast(cu.raw(symbol), ctypes.c_void_p).value
    except AttributeError:
        return None


def pool_range():
    """[(from, to)] of the pool's library in this process."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        lines = [line.split() for line in maps if "libpoolcuda" in line]
    return [tuple(int(end, 16) for end in line[0].split("-")) for line in lines]


class Looks:
    """The two forms of cuGetProcAddress, by dlsym."""

    def __init__(self):
        cu.cuInit(0)
        version = ctypes.c_int()
        cu.cuDriverGetVersion(byref(version))
        self.version, self.count = version.value, 0

    def up(self, form, name, version, flags):
        """The address, None where there is none, or the code of a refusal as text."""
        self.count += 1
        found = U64(0)
        if form == "cuGetProcAddress":
            code = cu.raw(form)(name.encode(), byref(found), version, U64(flags))
        else:
            code = cu.raw(form)(name.encode(), byref(found), version, U64(flags), None)
        return f"code {code}" if code else found.value or None


def expected(hooks, name, version, flags):
    """The symbol of that variant: the newest that is not newer than asked; None if that is none of the table."""
    of_name = [hook for hook in hooks if hook[1] == name]
    wanted = [hook for hook in of_name if hook[3] == (flags == 2) and hook[2] <= version]
    if not wanted and flags == 2:
        wanted = [hook for hook in of_name if not hook[3] and hook[2] <= version]
    return max(wanted, key=lambda hook: hook[2])[0] if wanted else None


def compare(hooks, looks):
    """(exceptions, shared): look-ups whose answer is not dlsym's, and addresses that several symbols have."""
    addresses = {symbol: by_dlsym(symbol) for symbol, *_ in hooks}
    versions = sorted(
        {hook[2] for hook in hooks} | {2000, 3000, 5000, 6000, 8000, 9000, 11000, 12000, 13000, looks.version}
    )
    symbols = {}
    for symbol, address in addresses.items():
        if address:
            symbols.setdefault(address, []).append(symbol)
    exceptions = []
    forms = [form for form in ("cuGetProcAddress", "cuGetProcAddress_v2") if by_dlsym(form)]
    for name in sorted({hook[1] for hook in hooks}):
        for version in versions:
            for flags, flag_name in FLAGS.items():
                symbol = expected(hooks, name, version, flags)
                for form in forms:
                    found = looks.up(form, name, version, flags)
                    if symbol is None:  # a variant that is not hooked: it must not be the address of one that is
                        wrong = found in symbols
                    else:
                        wrong = version <= looks.version and found != addresses[symbol]
                    if wrong:
                        exceptions.append(
                            {
                                "form": form,
                                "name": name,
                                "version": version,
                                "flags": flag_name,
                                "expected": symbol,
                                "found": symbols.get(
                                    found, found if isinstance(found, (str, type(None))) else "another address"
                                ),
                            }
                        )
    shared = [names for names in symbols.values() if len(names) > 1]
    return addresses, exceptions, shared


def forms(looks):
    """Which of its two forms cuGetProcAddress gives of itself."""
    found = {version: looks.up("cuGetProcAddress_v2", "cuGetProcAddress", version, 0) for version in (11030, 12000)}
    return {
        str(version): [form for form in ("cuGetProcAddress", "cuGetProcAddress_v2") if by_dlsym(form) == address]
        for version, address in found.items()
    }


def main():
    hooks, looks = table(sys.argv[1]), Looks()
    addresses, exceptions, shared = compare(hooks, looks)
    ours = pool_range()
    inside = [
        symbol for symbol, address in addresses.items() if address and any(low <= address < high for low, high in ours)
    ]
    there = [symbol for symbol, address in addresses.items() if address]
    print(
        json.dumps(
            {
                "hooks": len(hooks),
                "version": looks.version,
                "lookups": looks.count,
                "exceptions": exceptions,
                "shared": shared,
                "missing": [symbol for symbol, address in addresses.items() if not address],
                "forms": forms(looks),
                "pooled": bool(ours),
                "inside": len(inside),
                "outside": sorted(set(there) - set(inside)),
            }
        )
    )


if __name__ == "__main__":
    main()

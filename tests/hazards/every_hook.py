# SPDX-License-Identifier: MIT
"""The names of all functions that the library hooks, from its table."""
import os
import re

from preload import SOURCE


def hooks():
    with open(os.path.join(SOURCE, "src", "entry", "hooks.h"), encoding="utf-8") as table:
        names = re.findall(r"^ +X\((cu\w+),", table.read(), re.MULTILINE)
    assert len(names) > 60, f"hooks.h: {len(names)} names found: {names}"
    return names

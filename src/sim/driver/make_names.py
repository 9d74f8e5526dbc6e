#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes names.def: every function that the toolkit's link library of the driver exports, with the version that a
look-up through cuGetProcAddress must at least ask for. Run by hand when a newer toolkit is to be followed:
make_names.py TOOLKIT > names.def"""
import collections
import pathlib
import re
import subprocess
import sys

# Exported, but without a function type in cudaTypedefs.h.
VERSIONS_NOT_IN_HEADER = {'cuProfilerInitialize': 4000, 'cuProfilerStart': 4000, 'cuProfilerStop': 4000}

toolkit = pathlib.Path(sys.argv[1])
listing = subprocess.run(['nm', '-D', '--defined-only', toolkit / 'lib64/stubs/libcuda.so'],
                         check=True, capture_output=True, text=True).stdout
exported = collections.defaultdict(list)
for symbol in (line.split()[2] for line in listing.splitlines()):
    base, revision, per_thread = re.fullmatch(r'(cu\w+?)(?:_v(\d+))?(_ptsz|_ptds)?', symbol).groups()
    exported[base, bool(per_thread)].append((int(revision or 1), symbol))

versions = collections.defaultdict(set)
header = (toolkit / 'include/cudaTypedefs.h').read_text()
for base, version, per_thread in re.findall(r'PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)', header):
    versions[base, bool(per_thread)].add(int(version))
for base, version in VERSIONS_NOT_IN_HEADER.items():
    versions[base, False].add(version)

print('/* SPDX-License-Identifier: MIT\n *\n'
      ' * Every function the driver exports, written by make_names.py: symbol, name to look it up by, version from which\n'
      ' * a look-up finds it, whether it is the form for per-thread default streams. The revisions of one name follow\n'
      ' * each other, oldest first. */')
for (base, per_thread), symbols in sorted(exported.items()):
    known = sorted(versions[base, per_thread])
    if len(known) != len(symbols):
        sys.exit(f'{base}: {len(symbols)} symbols, versions {known}')
    for (_, symbol), version in zip(sorted(symbols), known):
        print(f'DRIVER_NAME({symbol}, {base}, {version}, {int(per_thread)})')

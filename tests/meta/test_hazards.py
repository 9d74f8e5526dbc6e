#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every row of tests/hazards/rows.txt has test cases, and a mutant that breaks what guards it or a reason for none."""
import os
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests" / "support"), str(TOP / "scripts")]

import testcases
from tap import case, main

ROW = re.compile(r"^(\d\d): (.+)$")
REASON = re.compile(r"^    no mutant: (.+)$")


def rows():
    """{row: (title, reason for having no mutant)}"""
    result, last = {}, None
    for number, line in enumerate((TOP / "tests/hazards/rows.txt").read_text(encoding="utf-8").splitlines(), 1):
        row, reason = ROW.match(line), REASON.match(line)
        if row:
            last = row[1]
            assert last not in result, f"line {number}: row {last} stands twice"
            result[last] = [row[2], ""]
        elif reason:
            result[last][1] = reason[1]
        else:
            assert not line or line.startswith("#"), f"line {number} is neither a row nor a reason: {line}"
    return result


def cases():
    return [case.rpartition("/")[2] for program in testcases.load_programs(os.environ["HAZARDS_BUILD"])
            for case in program.case_ids()]


def mutants():
    """{row: [patch]} by the line "Hazard: NN, NN", and {patch: patterns of "Run first"}."""
    by_row, patterns = {}, {}
    for path in sorted((TOP / "tests/mutants").glob("*.patch")):
        head = path.read_text(encoding="utf-8").partition("\n--- ")[0]
        fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
        patterns[path.name] = fields.get("Run first", "").split()
        for row in fields.get("Hazard", "").replace(",", " ").split():
            by_row.setdefault(row, []).append(path.name)
    return by_row, patterns


@case
def the_rows_are_numbered_without_a_gap():
    expected = [f"{number:02}" for number in range(1, 49)]
    assert list(rows()) == expected, f"{list(rows())}, not {expected}"


@case
def every_row_has_a_case_and_every_case_a_row():
    of_case = {name: name.split("_")[1] for name in cases() if name.startswith("hazard_")}
    missing = [f"{row} ({title})" for row, (title, _) in rows().items() if row not in of_case.values()]
    strange = [name for name, row in of_case.items() if row not in rows()]
    assert not missing and not strange, f"rows without a case: {missing}; cases without a row: {strange}"


@case
def every_row_has_a_mutant_or_a_reason():
    by_row, _ = mutants()
    known = rows()
    bare = [f"{row} ({title})" for row, (title, reason) in known.items() if row not in by_row and not reason]
    both = [row for row, (_, reason) in known.items() if row in by_row and reason]
    strange = {row: names for row, names in by_row.items() if row not in known}
    assert not bare and not both and not strange, f"without either: {bare}; with both: {both}; no row: {strange}"


@case
def a_rows_mutant_is_tried_on_the_rows_cases():
    by_row, patterns = mutants()
    names = cases()
    wrong = [f"{patch} of row {row}: {patterns[patch]}" for row, patches in by_row.items() for patch in patches
             if not any(name.startswith(f"hazard_{row}_") and testcases.matches(name, pattern.rpartition("/")[2])
                        for name in names for pattern in patterns[patch])]
    assert not wrong, "\n".join(wrong)


main()

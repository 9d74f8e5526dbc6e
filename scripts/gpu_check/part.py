# SPDX-License-Identifier: MIT
"""What a part of the check finds: lines, tables, figures and failures, in a file that is written anew after each, so that
a part that is ended at its time limit leaves what it found."""

import json
import os
import time

PASSED, FAILED, SKIPPED, LATE = "passed", "failed", "skipped", "out of time"


class Skip(Exception):
    """The part cannot run here; the reason is its text."""


class Part:
    def __init__(self, name, path, limit_s):
        self.path, self.limit_s, self.begun = path, limit_s, time.monotonic()
        self.found = {
            "part": name,
            "state": None,
            "reason": None,
            "seconds": None,
            "failures": [],
            "lines": [],
            "tables": [],
            "data": {},
        }

    def write(self):
        self.found["seconds"] = round(time.monotonic() - self.begun, 2)
        with open(f"{self.path}.new", "w", encoding="utf-8") as file:
            json.dump(self.found, file, indent=1)
        os.replace(f"{self.path}.new", self.path)

    def say(self, line):
        self.found["lines"].append(line)
        self.write()

    def table(self, title, header, rows):
        self.found["tables"].append(
            {"title": title, "header": header, "rows": [[str(cell) for cell in row] for row in rows]}
        )
        self.write()

    def data(self, name, value):
        self.found["data"][name] = value
        self.write()

    def fail(self, text):
        self.found["failures"].append(text)
        self.write()

    def expect(self, holds, text):
        if not holds:
            self.fail(text)
        return holds

    def run(self, work):
        """Does the part's work, whatever becomes of it."""
        self.write()
        try:
            work(self)
            self.found["state"] = FAILED if self.found["failures"] else PASSED
            if self.found["failures"]:
                more = len(self.found["failures"]) - 1
                self.found["reason"] = self.found["failures"][0] + (f" (and {more} more)" if more else "")
        except Skip as reason:
            self.found["state"], self.found["reason"] = (FAILED if self.found["failures"] else SKIPPED), str(reason)
        except Exception as reason:  # pylint: disable=broad-except
            import traceback

            self.found["state"] = FAILED
            self.found["reason"] = f"{type(reason).__name__}: {str(reason).strip()[:300]}"
            self.found["lines"] += traceback.format_exc().splitlines()
        self.write()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lists, runs and counts test cases: the programs are run by `meson test`, the cases are read from their TAP output.

A case is named suite/program/case. Every program names its cases (`--list`) before it runs, so that a case that never
reports, because its program crashed, hung or stopped early, counts as failed and none can vanish. A program that speaks
no TAP is one case, suite/program.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

LIST_TIMEOUT_S = 60
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
RESULT_LINE = re.compile(r"^(?P<no>not )?ok\b *(?P<number>\d+)? *(?:- *)?(?P<name>.*?)"
                         r"(?: *# *(?P<skip>skip)\S* *(?P<reason>.*))?$", re.IGNORECASE)
SKIP_ALL_LINE = re.compile(r"^1\.\.0 *# *skip\S* *(?P<reason>.*)$", re.IGNORECASE)
PROGRESS_LINE = re.compile(r"^ *(?P<done>\d+)/(?P<total>\d+) (?P<name>.*?) +(?:OK|FAIL|SKIP|ERROR|TIMEOUT|INTERRUPT)\b")


@dataclass
class Program:
    """One test of the build."""
    suite: str
    name: str
    pretty_names: tuple  # what meson may call it in its log
    command: list
    environment: dict
    directory: str
    speaks_tap: bool
    cases: list = field(default_factory=list)
    list_failure: str = ""

    @property
    def id(self):
        return f"{self.suite}/{self.name}"

    def case_ids(self):
        return [f"{self.id}/{case}" for case in self.cases] if self.speaks_tap else [self.id]


@dataclass
class Result:
    case: str
    status: str
    text: str = ""  # output of a failed case, reason of a skipped one


def load_programs(build):
    introspected = subprocess.run(["meson", "introspect", "--tests", str(build)], check=True, capture_output=True).stdout
    programs = []
    for test in json.loads(introspected):
        project, _, suite = test["suite"][0].partition(":")
        programs.append(Program(
            suite=suite or project, name=test["name"],
            pretty_names=(test["name"], f"{test['suite'][0]} / {test['name']}"),
            command=test["cmd"], environment=test["env"], directory=test["workdir"] or str(build),
            speaks_tap=test["protocol"] == "tap"))
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as executor:
        list(executor.map(ask_cases, programs))
    return sorted(programs, key=lambda program: program.id)


def ask_cases(program):
    if not program.speaks_tap:
        return
    try:
        listed = subprocess.run(program.command + ["--list"], env={**os.environ, **program.environment},
                                cwd=program.directory, capture_output=True, text=True, errors="replace",
                                stdin=subprocess.DEVNULL, timeout=LIST_TIMEOUT_S)
        program.cases = listed.stdout.split()
        if listed.returncode != 0 or not program.cases:
            program.list_failure = f"--list: exit status {listed.returncode}\n{listed.stdout}{listed.stderr}"
    except (OSError, subprocess.TimeoutExpired) as error:
        program.list_failure = f"--list: {error}"


def matches(name, patterns):
    """Does the case's full name match one of the patterns? They are separated by blanks; one without wildcards names a
    part of it."""
    return any(fnmatch.fnmatchcase(name, pattern if any(c in pattern for c in "*?[") else f"*{pattern}*")
               for pattern in patterns.split())


def parse_tap(output):
    """[(case, status, the lines that belong to it)] and the reason if the whole program was skipped."""
    results, before, skip_all = [], [], None
    for line in output.splitlines():
        result = RESULT_LINE.match(line)
        if result:
            name, reason = result["name"], result["reason"] or ""
            if result["skip"] and not name:  # cmocka's form: not ok 3 # SKIP name
                name, reason = reason, "; ".join(text.lstrip("# ") for text in before)
            status = SKIPPED if result["skip"] else FAILED if result["no"] else PASSED
            results.append([name, status, [reason] if status == SKIPPED else before])
            before = []
        elif line.startswith("#") and results and results[-1][1] == FAILED and not before:
            results[-1][2].append(line)
        elif SKIP_ALL_LINE.match(line):
            skip_all = SKIP_ALL_LINE.match(line)["reason"]
        elif not re.match(r"^1\.\.\d+|^TAP version", line):
            before.append(line)
    return results, before, skip_all


def describe_end(entry):
    code = entry["returncode"]
    if entry["result"] == "TIMEOUT":
        return "ended by its time limit"
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"


def judge(program, expected, entry):
    """The results of the expected cases of one program that ran."""
    stderr = re.sub(r"\n?\(test program exited with status code -?\d+\)\n?$", "", entry.get("stderr") or "")
    end = describe_end(entry)
    if not program.speaks_tap:
        status = {0: PASSED, 77: SKIPPED}.get(entry["returncode"], FAILED)
        text = end + "\n" + (entry.get("stdout") or "") + stderr
        return [Result(program.id, status if entry["result"] != "TIMEOUT" else FAILED, text)]
    reported, rest, skip_all = parse_tap(entry.get("stdout") or "")
    if skip_all is not None and not reported and entry["returncode"] == 0:
        return [Result(f"{program.id}/{case}", SKIPPED, skip_all) for case in expected]
    results, waiting = [], list(expected)
    for case, status, lines in reported:
        if case in waiting:
            waiting.remove(case)
            results.append(Result(f"{program.id}/{case}", status, "\n".join(lines)))
        else:
            results.append(Result(f"{program.id}/{case}", FAILED, "reported, but not named by --list"))
    for number, case in enumerate(waiting):
        text = "\n".join([f"did not finish: {end}"] + rest) if number == 0 else f"did not run: {end}"
        results.append(Result(f"{program.id}/{case}", FAILED, text))
    failed = [result for result in results if result.status == FAILED]
    if not failed and (entry["returncode"] != 0 or entry["result"] == "TIMEOUT"):
        failed = [Result(f"{program.id}/(end)", FAILED, "\n".join([f"every case passed, but: {end}"] + rest))]
        results += failed
    if failed and stderr.strip():
        failed[-1].text += "\nstderr of the program:\n" + stderr.strip()
    return results


def run_meson(build, programs, options, on_progress=None):
    """Runs the programs by `meson test`; {program id: its entry in meson's log} of those that ran to an end."""
    logs = Path(build) / "meson-logs"
    log = logs / "cases.json"
    log.unlink(missing_ok=True)
    # A name that two suites have would run both twice if it were given twice.
    names = sorted({program.name for program in programs})
    with subprocess.Popen(["meson", "test", "-C", str(build), "--no-rebuild", "--logbase", "cases", *options, *names],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                          errors="replace") as meson:
        said = []
        for line in meson.stdout:
            said.append(line)
            progress = PROGRESS_LINE.match(line)
            if progress and on_progress:
                on_progress(progress)
    if not log.exists():
        sys.exit("meson test left no results:\n" + "".join(said[-40:]))
    entries = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        entry = json.loads(line)
        for program in programs:
            if entry["name"] in program.pretty_names and entry["result"] != "INTERRUPT":
                entries[program.id] = entry
    return entries


def show_progress(progress):
    width = shutil.get_terminal_size().columns - 1
    print(f"\r\033[K{'[{done}/{total}] {name}'.format(**progress.groupdict())[:width]}", end="", flush=True)


def share_runs(parts):
    """Groups of (program, some of its cases) that can be given the names of all cases in one run of meson: each runs
    those that it has, so none may have another program's."""
    named = {name for _, cases in parts for name in cases}
    together = [part for part in parts if named.intersection(part[0].cases) == set(part[1])]
    return ([together] if together else []) + [[part] for part in parts if part not in together]


def run_cases(build, programs, pattern=None, options=()):
    """The results of all cases, or of those that match the pattern. A program that meson did not run has none."""
    results, whole, parts = [], [], []
    on_progress = show_progress if sys.stdout.isatty() else None
    for program in programs:
        if program.list_failure:
            results.append(Result(f"{program.id}/(list)", FAILED, program.list_failure))
            continue
        chosen = [case for case in program.case_ids() if pattern is None or matches(case, pattern)]
        if len(chosen) == len(program.case_ids()):
            whole.append(program)
        elif chosen:
            parts.append((program, [case.removeprefix(program.id + "/") for case in chosen]))
    for group in share_runs(parts):
        names = " ".join(sorted({name for _, cases in group for name in cases}))
        entries = run_meson(build, [program for program, _ in group], [*options, f"--test-args=--only {names}"], on_progress)
        for program, cases in group:
            if program.id in entries:
                results += judge(program, cases, entries[program.id])
    if whole:
        entries = run_meson(build, whole, options, on_progress)
        for program in whole:
            if program.id in entries:
                results += judge(program, program.cases, entries[program.id])
    if on_progress:
        print("\r\033[K", end="")
    return results


def complete(results, programs, pattern):
    """Adds the chosen cases that have no result at all, as failed."""
    have = {result.case for result in results}
    for program in programs:
        for case in program.case_ids():
            if case not in have and not program.list_failure and (pattern is None or matches(case, pattern)):
                results.append(Result(case, FAILED, "has no result"))
    return results


def tally(results):
    return ", ".join(f"{sum(result.status == status for result in results)} {status}"
                     for status in (PASSED, FAILED, SKIPPED))


def report(results):
    for result in results:
        if result.status == FAILED:
            print(f"FAILED {result.case}")
            for line in result.text.strip().splitlines():
                print(f"    {line}")
    for result in results:
        if result.status == SKIPPED:
            print(f"skipped {result.case}: {result.text.strip() or 'no reason given'}")
    suites = {}
    for result in results:
        suites.setdefault(result.case.split("/")[0], []).append(result)
    if len(suites) > 1:
        for suite, members in sorted(suites.items()):
            print(f"{suite}: {tally(members)}")
    print(tally(results), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="a build folder, built")
    parser.add_argument("--list", action="store_true", help="name the cases, run nothing")
    parser.add_argument("--only", metavar="PATTERNS", help="cases whose suite/program/case matches one of them")
    parser.add_argument("--timeout-multiplier", default="1")
    arguments = parser.parse_args()
    programs = load_programs(arguments.build)
    if arguments.list:
        broken = [program for program in programs if program.list_failure]
        for program in programs:
            for case in program.case_ids():
                if arguments.only is None or matches(case, arguments.only):
                    print(case)
        for program in broken:
            print(f"{program.id}: {program.list_failure}", file=sys.stderr)
        return 1 if broken else 0
    results = run_cases(arguments.build, programs, arguments.only, ["--timeout-multiplier", arguments.timeout_multiplier])
    results = complete(results, programs, arguments.only)
    if not results:
        print("no case " + (f"matches {arguments.only}" if arguments.only else "to run"), file=sys.stderr)
    report(results)
    return 0 if results and all(result.status != FAILED for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())

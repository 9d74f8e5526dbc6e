# SPDX-License-Identifier: MIT
"""Forms of the list: columns, CSV, plain bytes, colour, and what never wraps."""
import contextlib
import csv
import io
import os
import pty
import re
import resource
import subprocess
from pathlib import Path

from common import MIB, POOLSTAT, document, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main

ESCAPE = "\x1b["


def records(*arguments, folder, **settings):
    """The CSV, read as RFC 4180 has it."""
    result = poolstat("--csv", *arguments, folder=folder, **settings)
    if not all(line.endswith("\r\n") for line in result.out.splitlines(keepends=True)):
        raise AssertionError(f"ends of lines in {result.out!r}")
    return list(csv.reader(io.StringIO(result.out, newline=""), strict=True))


def glossary(folder):
    return {line.split()[0] for line in poolstat("help", "fields", folder=folder).out.splitlines()
            if line.startswith("  ")}


@case
def csv_has_the_names_and_figures_of_json():
    with one_guest() as (folder, started):
        titles, *rows = records(folder=folder)
        [process] = document(folder=folder)["processes"]
        expect([title for title in titles if title not in glossary(folder)], [], "titles that are in no glossary")
        for row, device in zip(rows, process["devices"], strict=True):
            for title, text in zip(titles, row, strict=True):
                if title in ("time", "state", "stuck"):
                    continue
                value = device.get(title, process.get(title))
                wanted = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
                if isinstance(value, float):
                    wanted, text = round(value, 5), round(float(text), 5)
                expect(text.lower() if isinstance(value, bool) else text, wanted, title)


@case
def csv_has_its_titles_when_there_is_no_process():
    with folder_of_segments() as folder:
        result = poolstat("--csv", folder=folder)
        expect((result.code, result.out.count("\r\n")), (1, 1))
        expect(poolstat("--csv", "--no-header", folder=folder).out, "")


@case
def csv_quotes_what_needs_it():
    with folder_of_segments() as folder, guest(folder, '=a,"b"') as one, guest(folder, "=c d") as two, \
            guest(folder, "hostile") as three:
        commands = {row[0]: row[1] for row in records("-o", "pid,command", "--no-header", folder=folder)}
        expect((commands[str(one.pid)], commands[str(two.pid)]), ('a,"b"', "c d"))
        expect_in(r"a\x1b[31m\x0a" + '"' + r"\\", commands[str(three.pid)])
        expect_in('"a,""b"""', poolstat("--csv", folder=folder).out)


@case
def columns_are_chosen_by_name():
    with one_guest() as (folder, started):
        lines = poolstat("-o", "pid,reserved,hit_rate,driver,oom_failures", folder=folder).out.splitlines()
        expect(lines[0].split(), ["PID", "RESERVED", "HITS", "DRIVER", "OOM_FAILURES"])
        expect(lines[1].split(), [str(started.pid), "96.0", "MiB", "85.9%", "2.50", "ms", "0"])
        usual = poolstat(folder=folder).out.splitlines()
        more = poolstat("-o", "+peak_live,segments", folder=folder).out.splitlines()
        for line, longer in zip(usual, more, strict=True):
            expect(longer.startswith(line.rstrip()), True, f"{longer!r} begins as {line!r}")
        expect(more[0].split()[-2:], ["PEAK_LIVE", "SEGMENTS"])


@case
def every_column_is_in_the_glossary_and_can_be_shown():
    with one_guest() as (folder, started):
        error = poolstat("-o", "", folder=folder)
        expect((error.code, error.out), (2, ""))
        names = error.err.strip().split("columns: ")[1].split()
        expect([name for name in names if name not in glossary(folder)], [])
        shown, first, second = records("-o", ",".join(names), folder=folder)
        expect((shown, len(first)), (names, len(names)))
        for figure in ("live_bytes", "growth_ns", "alloc_live_bytes", "splits", "utilisation"):
            expect(figure in names, True, figure)
        expect(len(poolstat("-o", ",".join(names), folder=folder).out.splitlines()), 3)


@case
def unknown_columns_are_answered_with_those_there_are():
    with folder_of_segments() as folder:
        for names in ("frob", "pid,", "pid,frob", "+frob", "+", "pid live", ","):
            result = poolstat("-o", names, folder=folder)
            expect((result.code, result.out), (2, ""), names)
            expect_in("hit_rate", result.err)
        for name, meant in (("peak_lve", "peak_live_bytes"), ("hitrate", "hit_rate"), ("reservd_bytes", "reserved_bytes")):
            expect_in(f"did you mean {meant}?", poolstat("-o", name, folder=folder).err)
        expect(poolstat("-o", ",".join(["pid"] * 96), folder=folder).code, 1)
        expect_in("more than 96", poolstat("-o", ",".join(["pid"] * 97), folder=folder).err)


@case
def forms_that_exclude_each_other_answer_2():
    with folder_of_segments() as folder:
        for arguments in (["--json", "--csv"], ["--json", "-o", "pid"]):
            expect_in("does not go with", document(*arguments, folder=folder, code=2)["error"]["message"])


@case
def header_can_be_left_out():
    with one_guest() as (folder, started):
        for arguments in ([], ["--csv"]):
            with_titles = poolstat(*arguments, "-o", "pid,live", folder=folder).out.splitlines()
            expect(poolstat(*arguments, "-o", "pid,live", "--no-header", folder=folder).out.splitlines(),
                   with_titles[1:])


@case
def bytes_are_numbers_when_asked():
    with one_guest() as (folder, started):
        lines = poolstat("--bytes", "-o", "live,reserved,driver", folder=folder).out.splitlines()
        expect(lines[1].split(), [str(48 * MIB), str(96 * MIB), "2.50", "ms"])
        shown = poolstat("show", started.pid, "--bytes", folder=folder).out
        expect(re.search(r"\d\.\d+ [KMG]iB\b", shown), None, "units in show")
        expect_in(str(64 * MIB), shown)


@case
def colour_is_for_terminals_alone_unless_asked():
    with folder_of_segments() as folder, guest(folder), guest(folder, "stuck"):
        def is_coloured(*arguments, terminal=False, **environment):
            variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
            variables.update(environment, POOLSTAT_SHM_DIR=str(folder))
            command = [POOLSTAT, "ls", *arguments]
            if not terminal:
                return ESCAPE in subprocess.run(command, env=variables, capture_output=True, text=True).stdout
            leader, follower = pty.openpty()
            process = subprocess.Popen(command, stdout=follower, env=variables)
            os.close(follower)
            output = b""
            try:
                while chunk := os.read(leader, 65536):
                    output += chunk
            except OSError:  # the other side is closed
                pass
            os.close(leader)
            expect(process.wait(timeout=20), 0)
            return ESCAPE in output.decode()

        expect(is_coloured(), False, "piped")
        expect(is_coloured("--color=always"), True, "piped, always")
        expect(is_coloured("--color=always", NO_COLOR="1"), True, "piped, always, NO_COLOR")
        expect(is_coloured(terminal=True), True, "terminal")
        expect(is_coloured("--color", "auto", terminal=True), True, "terminal, auto")
        expect(is_coloured("--color", "never", terminal=True), False, "terminal, never")
        expect(is_coloured(terminal=True, NO_COLOR="1"), False, "terminal, NO_COLOR")
        expect(is_coloured(terminal=True, NO_COLOR=""), True, "terminal, NO_COLOR empty")
        expect(is_coloured(terminal=True, TERM="dumb"), False, "dumb terminal")
        plain = poolstat(folder=folder).out
        coloured = poolstat("--color=always", folder=folder).out
        # The time inside the driver goes on between the two.
        strip = lambda text: re.sub(r"\d\d\.\d s", "", text)
        expect(strip(re.sub(r"\x1b\[\d*m", "", coloured)), strip(plain))
        expect(coloured.count("\x1b[31m"), 2, "lines of the process that is stuck")
        expect(poolstat("--color", "frob", folder=folder).code, 2)


@case
def nothing_is_cut_when_piped():
    with one_guest("=" + "x" * 63) as (folder, started):
        expect_in("x" * 63, poolstat("-o", "+path,uuid,pci", folder=folder, ).out)


def is_sanitized():
    program = Path(POOLSTAT).read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


@case
def sixty_four_processes_are_listed_at_once():
    with folder_of_segments() as folder, contextlib.ExitStack() as stack:
        pids = sorted(stack.enter_context(guest(folder)).pid for _ in range(64))
        expect([process["pid"] for process in document(folder=folder)["processes"]], pids)
        expect(len(poolstat(folder=folder).out.splitlines()), 1 + 2 * 64)
        expect(len(records("--no-header", folder=folder)), 2 * 64)
        if is_sanitized():
            return
        # Time of the processor, of the best of 20: the machine may be busy.
        least = 1.0
        for _ in range(20):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            poolstat("--json", folder=folder)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if least >= 0.02:
            raise AssertionError(f"{least * 1000:.1f} ms for 64 processes")


main()

# SPDX-License-Identifier: MIT
"""Answers given again and again: -d, -n, -1, --timestamps, and how they end."""
import datetime
import json
import os
import signal
import subprocess
import time

from common import POOLSTAT, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main


def start(*arguments, folder, **settings):
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    return subprocess.Popen([POOLSTAT, *map(str, arguments)], env=dict(os.environ, POOLSTAT_SHM_DIR=str(folder)),
                            text=True, **settings)


def lines_of(*arguments, folder, code=0):
    result = poolstat(*arguments, folder=folder)
    expect(result.code, code, f"code of {arguments} ({result.err})")
    return result.out.splitlines()


@case
def table_is_repeated_so_often_and_so_many_times():
    with one_guest() as (folder, started):
        begin = time.monotonic()
        lines = lines_of("-d", "0.25", "-n", "4", folder=folder)
        took = time.monotonic() - begin
        expect([line[:5].strip() if line else "" for line in lines].count("PID"), 4, "titles")
        expect((lines.count(""), len(lines)), (3, 15), "empty lines between, lines")
        if not 0.75 <= took < 5:
            raise AssertionError(f"4 answers at 0.25 s took {took} s")


@case
def one_time_wins():
    with one_guest() as (folder, started):
        for arguments in (["-1"], ["--once", "-d", "5"], ["-1", "-n", "3"], ["-n", "1"]):
            expect(len(lines_of(*arguments, folder=folder)), 3, f"lines of {arguments}")
        expect_in("\n  ", poolstat("-1", "-d", "5", "--json", folder=folder).out)


@case
def json_has_one_document_in_each_line():
    with one_guest() as (folder, started):
        for arguments in (["ls"], ["show", started.pid]):
            documents = [json.loads(line) for line in
                         lines_of(*arguments, "--json", "-d0.1", "-n3", folder=folder)]
            expect([document["schema"] for document in documents], ["poolstat/1"] * 3)
            times = [document["time_unix_ns"] for document in documents]
            if not times[0] < times[1] < times[2]:
                raise AssertionError(f"times {times}")


@case
def csv_has_one_line_of_titles():
    with one_guest() as (folder, started):
        lines = lines_of("--csv", "-o", "pid,device", "-d0.1", "-n3", folder=folder)
        expect(lines, ["pid,device"] + [f"{started.pid},{device}" for device in (0, 1)] * 3)


@case
def timestamps_are_of_the_copies():
    with one_guest() as (folder, started):
        before = time.time()
        lines = lines_of("--timestamps", "-d0.1", "-n2", "--no-header", folder=folder)
        lines.append(lines_of("show", started.pid, "--timestamps", folder=folder)[0])
        stamps = [datetime.datetime.strptime(line.split()[0], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() for line in lines]
        expect((len(stamps), stamps == sorted(stamps)), (5, True), f"{lines}")
        if not (before - 0.001 <= stamps[0] and stamps[0] < stamps[2] and stamps[-1] <= time.time()):
            raise AssertionError(f"{stamps}, {before}")


@case
def wrong_times_answer_2_and_say_what_is_right():
    with folder_of_segments() as folder:
        for value in ("0.09", "0", "-1", "", "x", "1s", "nan", "inf", "1e3", "0x1", "1000001", "1.2.3", ","):
            result = poolstat("-d", value, folder=folder)
            expect((result.code, result.out), (2, ""), f"-d {value}")
            expect_in("at least 0.1", result.err)
        for value in ("0", "-1", "", "x", "1.5", "99999999999"):
            result = poolstat("-n", value, folder=folder)
            expect((result.code, result.out), (2, ""), f"-n {value}")
            expect_in("at least 1", result.err)


@case
def processes_may_come_and_go_meanwhile():
    with folder_of_segments() as folder:
        process = start("--json", "-d", "0.1", folder=folder)
        try:
            read = lambda: [one["pid"] for one in json.loads(process.stdout.readline())["processes"]]
            expect([read() for _ in range(5)], [[]] * 5, "before")
            with guest(folder) as started:
                for _ in range(50):
                    if (found := read()):
                        break
                expect(found, [started.pid], "while it runs")
            for _ in range(50):
                if not (found := read()):
                    break
            expect((found, process.poll()), ([], None), "afterwards")
            expect([read() for _ in range(5)], [[]] * 5, "afterwards")
        finally:
            process.kill()
            _, err = process.communicate()
        # Twice there was none, and it is said each time once; or again, when the segment was seen half made.
        said = err.count("no process runs on the pool")
        if not 2 <= said <= 4:
            raise AssertionError(f"said {said} times: {err}")


@case
def it_ends_with_the_processes_that_were_chosen():
    with one_guest() as (folder, started):
        for arguments in (["ls", "-p", started.pid], ["show", started.pid]):
            with guest(folder) as other:
                arguments[-1] = other.pid
                process = start(*arguments, "--json", "-d", "0.1", folder=folder)
                expect(json.loads(process.stdout.readline())["error"], None)
            out, err = process.communicate(timeout=20)
            expect(process.returncode, 5, f"code of {arguments} ({err})")
            expect(json.loads(out.splitlines()[-1])["error"]["code"], 5)


@case
def reader_that_goes_ends_it_quietly():
    with one_guest() as (folder, started):
        for ignored, wanted in ((False, -signal.SIGPIPE), (True, 128 + signal.SIGPIPE)):
            # In the midst of a long wait too, so not at the next write alone.
            for delay in ("0.1", "1000"):
                set_up = (lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)) if ignored else None
                process = start("-d", delay, folder=folder, restore_signals=not ignored, preexec_fn=set_up)
                process.stdout.readline()
                process.stdout.close()
                expect(process.wait(timeout=20), wanted, f"-d {delay}, ignored {ignored}")
                expect(process.stderr.read(), "")
                process.stderr.close()


@case
def reader_that_has_gone_before_is_no_failure():
    for ignored, wanted in ((False, -signal.SIGPIPE), (True, 128 + signal.SIGPIPE)):
        read_end, write_end = os.pipe()
        os.close(read_end)
        set_up = (lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)) if ignored else None
        process = start("help", "fields", folder="/", stdout=write_end, restore_signals=not ignored, preexec_fn=set_up)
        os.close(write_end)
        _, err = process.communicate(timeout=20)
        expect((process.returncode, err), (wanted, ""), f"ignored {ignored}")


@case
def what_was_missed_is_not_made_up_for():
    with folder_of_segments() as folder:
        process = start("--json", "-d", "0.2", folder=folder)
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        times = [json.loads(process.stdout.readline())["time_unix_ns"] for _ in range(5)]
        process.kill()
        process.communicate()
        # At once, and from then on each 0.2 s.
        if times[-1] - times[0] < 0.5 * 10**9:
            raise AssertionError(f"{times}")


@case
def signal_ends_it_between_two_answers():
    with one_guest() as (folder, started):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = start("--json", "-d", "0.1", folder=folder)
            process.stdout.readline()
            time.sleep(0.05)
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
            expect((process.returncode, err), (-number, ""))
            for line in out.splitlines():
                json.loads(line)
        shell = subprocess.run(["sh", "-c", 'timeout --foreground -s INT 0.3 "$0" -d 0.1 >/dev/null & wait $!; echo $?',
                                POOLSTAT], env=dict(os.environ, POOLSTAT_SHM_DIR=str(folder)), capture_output=True,
                               text=True, timeout=20)
        expect_in(shell.stdout.strip(), "124 130")


@case
def signal_that_is_ignored_stays_so():
    with one_guest() as (folder, started):
        process = start("-d", "0.1", "-n", "4", folder=folder, restore_signals=False,
                        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=20)
        expect(process.returncode, 0)


@case
def closed_stdout_is_no_segments_place():
    with one_guest() as (folder, started):
        for arguments in ([], ["-d", "0.1"]):
            done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', POOLSTAT, *arguments], text=True, timeout=20,
                                  env=dict(os.environ, POOLSTAT_SHM_DIR=str(folder)), stderr=subprocess.PIPE)
            expect(done.returncode, 125, f"{arguments}")
            expect_in("cannot write the answer", done.stderr)


main()

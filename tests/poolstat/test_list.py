# SPDX-License-Identifier: MIT
"""The table of processes, and which of them it shows."""
import fcntl
import os
import pty
import shutil
import signal
import struct
import subprocess
import termios
import time

from common import (MIB, POOLSTAT, SYNTHETIC, document, expect, expect_in, folder_of_segments, guest, one_guest,
                    poolstat)
from tap import case, main, skip


def rows(result):
    expect(result.code, 0, f"exit code ({result.err.strip()})")
    return [line.split() for line in result.out.splitlines()]


@case
def each_process_and_device_has_a_row():
    with one_guest() as (folder, started):
        title, first, second = rows(poolstat(folder=folder))
        expect(title, "PID COMMAND DEV LIVE RESERVED CACHED PEAK HITS EXTFRAG".split())
        # Device 0 is the sum of its two pools: 40 + 8, 64 + 32, 24 + 24, 80 + 32 MiB; 945 hits of 1100; 1 − 20/48.
        expect(first, [str(started.pid), "synthetic", "0", "48.0", "MiB", "96.0", "MiB", "48.0", "MiB", "112", "MiB",
                       "85.9%", "44.4%"])
        expect(second, [str(started.pid), "synthetic", "1", "0", "B", "0", "B", "0", "B", "0", "B", "-", "0.0%"])


@case
def columns_are_aligned_to_the_right():
    with folder_of_segments() as folder, guest(folder), guest(folder, "bare"):
        lines = poolstat(folder=folder).out.splitlines()
        expect(len(lines), 4, "lines")
        expect(len({len(line) for line in lines}), 1, f"different lengths of lines in {lines}")
        for title in ("PID", "DEV", "RESERVED", "EXTFRAG"):
            end = lines[0].index(title) + len(title)
            for line in lines[1:]:
                if line[end - 1] == " " or line[end:end + 1] not in ("", " "):
                    raise AssertionError(f"{title} does not end at column {end} in {line!r}")


@case
def no_line_is_longer_than_the_terminal():
    with one_guest("hostile", "torn") as (folder, started):
        for arguments in ([], ["show", str(started.pid)]):
            leader, follower = pty.openpty()
            fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            process = subprocess.Popen([POOLSTAT, *arguments], stdout=follower, stderr=subprocess.DEVNULL,
                                       env=dict(os.environ, POOLSTAT_SHM_DIR=str(folder), NO_COLOR="1"))
            os.close(follower)
            output = b""
            try:
                while chunk := os.read(leader, 65536):
                    output += chunk
            except OSError:  # the other side is closed
                pass
            os.close(leader)
            expect(process.wait(timeout=20), 0, "exit code")
            lines = output.decode().splitlines()
            if len(lines) < 2:
                raise AssertionError(f"no table: {output!r}")
            # Command and path stand above the sections of show, whole.
            expect([line for line in lines[2 if arguments else 0:] if len(line) > 80], [], "lines that would wrap")


@case
def json_has_the_sums_of_each_device():
    with one_guest() as (folder, started):
        [process] = document(folder=folder)["processes"]
        expect(process["pid"], started.pid)
        expect(process["namespace_pid"], started.pid)
        expect(process["command"], "synthetic")
        expect(process["state"], "running")
        expect(process["in_driver_ns"], None, "in_driver_ns")
        first, second = process["devices"]
        wanted = {"device": 0, "pools": 2, "live_bytes": 48 * MIB, "requested_bytes": 44 * MIB,
                  "reserved_bytes": 96 * MIB, "cached_bytes": 48 * MIB, "peak_reserved_bytes": 112 * MIB,
                  "allocs": 1100, "hits": 945, "largest_free_bytes": 20 * MIB, "stranded_bytes": 42 * MIB,
                  "hit_rate": round(945 / 1100, 6), "external_fragmentation": round(1 - 20 / 36, 6), "utilisation": 0.5,
                  "ordered_bytes": 20 * MIB, "waiting_bytes": 12 * MIB, "fences": 5, "proved_blocks": 17,
                  "approximate": False, "pci": "0000:17:00.0", "uuid": "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"}
        expect({name: first[name] for name in wanted}, wanted, "device 0")
        wanted = {"device": 1, "live_bytes": 0, "hit_rate": None, "utilisation": None, "internal_fragmentation": None,
                  "external_fragmentation": 0.0, "uuid": None, "pci": None, "device_total_bytes": None}
        expect({name: second[name] for name in wanted}, wanted, "device 1")


@case
def process_without_a_pool_has_a_row_without_figures():
    with one_guest("bare") as (folder, started):
        expect(rows(poolstat(folder=folder))[1], [str(started.pid), "synthetic"] + ["-"] * 7)
        expect(document(folder=folder)["processes"][0]["devices"], [])


@case
def nothing_on_the_pool_answers_1():
    with folder_of_segments() as folder:
        result = poolstat(folder=folder)
        expect((result.code, result.out), (1, ""))
        expect_in("poolstat run -- COMMAND", result.err)
        answer = document(folder=folder, code=1)
        expect((answer["error"]["code"], answer["processes"]), (1, []))


@case
def processes_stand_in_the_order_of_their_pids():
    with folder_of_segments() as folder, guest(folder) as one, guest(folder) as two, guest(folder) as three:
        found = [process["pid"] for process in document(folder=folder)["processes"]]
        expect(found, sorted([one.pid, two.pid, three.pid]))


@case
def killed_process_is_not_listed_and_show_answers_5():
    with one_guest() as (folder, started):
        started.process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        for _ in ("not yet reaped", "reaped"):
            expect(started.path.exists(), True, "segment left behind")
            expect(poolstat(folder=folder).code, 1, "code of the table")
            expect(document("show", started.pid, folder=folder, code=5)["error"]["code"], 5)
            started.process.wait()


@case
def ended_process_is_not_listed_and_show_answers_5():
    with one_guest("ended") as (folder, started):
        expect(poolstat(folder=folder).code, 1, "code of the table")
        expect(poolstat("show", started.pid, folder=folder).code, 5, "code of show")


@case
def segment_of_an_earlier_process_with_the_same_pid_is_not_listed():
    with one_guest() as (folder, started):
        uid, pid, ticks = started.path.name.split("-")[1:]
        started.path.rename(folder / f"poolcuda-{uid}-{pid}-{int(ticks) - 1}")
        expect(poolstat(folder=folder).code, 1, "code of the table")
        expect(poolstat("show", started.pid, folder=folder).code, 5, "code of show")


@case
def segment_of_the_program_before_an_exec_is_not_listed():
    with one_guest("exec") as (folder, started):
        deadline = time.monotonic() + 10
        while os.readlink(f"/proc/{started.pid}/exe") == os.path.realpath(SYNTHETIC):
            if time.monotonic() > deadline:
                raise AssertionError("the guest did not become another program")
            time.sleep(0.01)
        expect(poolstat(folder=folder).code, 1, "code of the table")
        expect(poolstat("show", started.pid, folder=folder).code, 5, "code of show")


@case
def program_that_was_renamed_is_still_listed():
    with folder_of_segments() as folder:
        program = shutil.copy(SYNTHETIC, folder / "before")
        with guest(folder, program=program) as started:
            os.rename(program, folder / "after")
            expect([process["pid"] for process in document(folder=folder)["processes"]], [started.pid])


@case
def program_with_brackets_in_its_name_is_listed():
    with folder_of_segments() as folder:
        program = shutil.copy(SYNTHETIC, folder / "a) Z (1 2")
        with guest(folder, program=program) as started:
            expect([process["pid"] for process in document(folder=folder)["processes"]], [started.pid])


@case
def process_whose_first_thread_has_ended_is_listed():
    with one_guest("headless") as (folder, started):
        expect([process["pid"] for process in document(folder=folder)["processes"]], [started.pid])


@case
def files_with_other_names_are_passed_over():
    with one_guest() as (folder, started):
        for name in ("poolcuda-", "poolcuda-0-1", "poolcuda-0-01-2", "poolcuda-0-1-2-3", "poolcuda-0--1-2", "other",
                     "poolcuda-0-1-99999999999999999999999", "poolcuda- 0-1-2", "poolcuda-0-0-0", "poolcuda-a-b-c"):
            (folder / name).write_bytes(started.path.read_bytes())
        (folder / "poolcuda-0-1-3").mkdir()
        (folder / "poolcuda-0-1-4").symlink_to(started.path)
        os.mkfifo(folder / "poolcuda-0-1-5")
        result = poolstat(folder=folder)
        expect((result.code, len(result.out.splitlines()), result.err), (0, 3, ""))


@case
def other_names_of_a_running_process_are_passed_over():
    with one_guest() as (folder, started):
        uid, pid, ticks = started.path.name.split("-")[1:]
        for name in (f"0{uid}-{pid}-{ticks}", f"{uid}-0{pid}-{ticks}", f"{uid}-{pid}-0{ticks}", f"{uid}-+{pid}-{ticks}",
                     f"{uid}-{pid}-{ticks}-", f"{uid}-{pid}- {ticks}", f"{uid}-{pid}-"):
            (folder / f"poolcuda-{name}").write_bytes(started.path.read_bytes())
        # Well-formed, but no files of their own.
        others = [folder / f"poolcuda-{int(uid) + more}-{pid}-{ticks}" for more in range(1, 5)]
        os.link(started.path, others[0])
        others[1].symlink_to(started.path)
        others[2].mkdir()
        os.mkfifo(others[3])
        result = poolstat(folder=folder)
        expect((result.code, len(result.out.splitlines()), result.err), (0, 3, ""))


@case
def process_that_gave_up_root_is_listed():
    if os.geteuid() != 0:
        skip("only root can be given up")
    with one_guest("drops") as (folder, started):
        expect([process["pid"] for process in document(folder=folder)["processes"]], [started.pid])


@case
def segment_of_another_user_answers_3():
    with folder_of_segments() as folder:
        folder.chmod(0o755)
        with guest(folder) as started:
            settings = {}
            if os.geteuid() == 0:
                settings = {"user": 65534, "group": 65534, "extra_groups": []}
                if subprocess.run(["test", "-x", POOLSTAT], **settings).returncode != 0:
                    skip("another user may not execute the program from here")
            else:
                started.path.chmod(0)
            answer = document(folder=folder, code=3, **settings)
            expect((answer["not_shown"]["denied"], answer["processes"], answer["error"]["code"]), (1, [], 3))
            expect(poolstat("show", started.pid, folder=folder, **settings).code, 3, "code of show")


@case
def segment_that_another_user_planted_is_passed_over():
    if os.geteuid() != 0:
        skip("only root can give a file away")
    with one_guest() as (folder, started):
        os.chown(started.path, 65534, 65534)
        expect(poolstat(folder=folder).code, 1, "code of the table")


def unshare(*options):
    command = ["unshare", *options, "--"]
    if os.geteuid() != 0:
        command[1:1] = ["--user", "--map-root-user"]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        skip("no new namespaces can be made here")
    return command


@case
def process_in_a_container_is_found_by_either_pid():
    wrapper = unshare("--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    with folder_of_segments() as folder:
        inside = [*wrapper, "sh", "-c", f'mount -t tmpfs none {folder} && exec "$@"', "sh"]
        with guest(folder, wrapper=inside) as started:
            expect(os.listdir(folder), [], "files seen from here")
            [process] = document(folder=folder)["processes"]
            expect(process["namespace_pid"], started.pid, "pid in the container")
            if process["pid"] == started.pid:
                raise AssertionError(f"pid {started.pid} is that of the container")
            title, first = rows(poolstat(folder=folder))[:2]
            expect(title[:3], ["PID", "NSPID", "COMMAND"])
            expect(first[:2], [str(process["pid"]), str(started.pid)])
            for pid in (process["pid"], started.pid):
                shown = document("show", pid, folder=folder)["process"]
                expect((shown["pid"], shown["namespace_pid"]), (process["pid"], started.pid))


@case
def process_outside_is_unseen_from_a_container():
    wrapper = unshare("--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    with one_guest() as (folder, started):
        answer = document(folder=folder, wrapper=wrapper, code=1)
        expect((answer["not_shown"]["unseen"], answer["processes"]), (1, []))
        shown = document("show", started.pid, folder=folder, wrapper=wrapper)["process"]
        expect((shown["pid"], shown["namespace_pid"], shown["state"]), (None, started.pid, "unseen"))


main()

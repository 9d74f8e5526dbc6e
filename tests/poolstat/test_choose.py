# SPDX-License-Identifier: MIT
"""Which processes and devices are shown: -p, -u, -g, -c and --all, and the marks of those that do not just run."""
import contextlib
import os
import signal

from common import document, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main


@contextlib.contextmanager
def three_guests():
    with folder_of_segments() as folder, guest(folder, "=train") as one, guest(folder, "=serve", "bare") as two, \
            guest(folder, "=trainer[1]") as three:
        yield folder, one.pid, two.pid, three.pid


def pids(*arguments, folder, **settings):
    return [process["pid"] for process in document("ls", *arguments, folder=folder, **settings)["processes"]]


@case
def processes_are_chosen_by_pid():
    with three_guests() as (folder, one, two, three):
        expect(pids("-p", one, folder=folder), [one])
        expect(pids("-p", f"{one},{three}", folder=folder), sorted([one, three]))
        expect(pids("-p", one, "--pid", two, folder=folder), sorted([one, two]), "-p twice")
        expect(pids("-p", f"{one},{2**31 - 1}", folder=folder), [one], "with one that is not there")


@case
def processes_are_chosen_by_command():
    with three_guests() as (folder, one, two, three):
        for pattern, wanted in (("train", [one]), ("train*", [one, three]), ("*e", [two]), ("trainer[1]", [three]),
                                ("trai?", [one]), ("[st]*", [one, two, three])):
            expect(pids("-c", pattern, folder=folder), sorted(wanted), pattern)
        expect(pids("-c", "train*", "-p", f"{two},{three}", folder=folder), [three], "both must fit")


@case
def process_that_cannot_be_read_has_no_command_and_no_device():
    with one_guest() as (folder, started):
        os.truncate(started.path, 500)
        for arguments, code in ((["-c", "*"], 1), (["-g", "0"], 1), (["-p", started.pid], 4), (["-u", os.getuid()], 4)):
            expect(poolstat(*arguments, folder=folder).code, code, f"{arguments}")


@case
def processes_are_chosen_by_user():
    with one_guest() as (folder, started):
        for user in ("root" if os.getuid() == 0 else os.environ["USER"], os.getuid(), f"0{os.getuid()}"):
            expect(pids("-u", user, folder=folder), [started.pid], f"user {user}")
        expect(pids("-u", os.getuid() + 1, folder=folder, code=1), [])


@case
def a_device_is_chosen_by_ordinal_uuid_or_address():
    with three_guests() as (folder, one, two, three):
        for gpu in ("0", "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf", "gpu-A0a1", "0000:17:00.0", "17:00.0",
                    "00000000:17:00.0"):
            chosen = document("-g", gpu, folder=folder)["processes"]
            expect([process["pid"] for process in chosen], sorted([one, three]), f"GPU {gpu}")
            expect([device["device"] for process in chosen for device in process["devices"]], [0, 0], f"GPU {gpu}")
        expect([device["device"] for device in document("-g1", "-p", one, folder=folder)["processes"][0]["devices"]],
               [1])
        for gpu in ("2", "GPU-b0", "0001:17:00.0", "0000:18:00.0"):
            expect(pids("-g", gpu, folder=folder, code=1), [], f"GPU {gpu}")


@case
def nothing_chosen_says_so():
    with one_guest() as (folder, started):
        result = poolstat("-c", "other", folder=folder)
        expect((result.code, result.out), (1, ""))
        expect_in("one of those chosen", result.err)
        expect(document("-c", "other", folder=folder, code=1)["error"]["code"], 1)


@case
def wrong_choices_answer_2_and_say_what_is_wanted():
    with folder_of_segments() as folder:
        for arguments, part in ((["-p", ""], "process ids"), (["-p", "1,"], "process ids"), (["-p", "x"], "process ids"),
                                (["-p", "-1"], "process ids"), (["-p", "1 2"], "process ids"), (["-p0"], "process ids"),
                                (["-p", "99999999999"], "process ids"), (["-u", "no-such-user"], "no user"),
                                (["-u", "-1"], "no user"), (["-g", "first"], "an ordinal"), (["-g", ""], "an ordinal"),
                                (["-g", "GPU-"], "an ordinal"), (["-g", "17:00"], "an ordinal"),
                                (["-g", "0:17:00.0:1"], "an ordinal"), (["-g", "99999999999"], "an ordinal")):
            result = poolstat(*arguments, folder=folder)
            expect((result.code, result.out), (2, ""), f"{arguments}")
            expect_in(part, result.err)


@case
def show_takes_the_one_that_is_chosen():
    with three_guests() as (folder, one, two, three):
        for arguments in (["-c", "serve"], ["-p", two], ["-g", "0", "-c", "train"]):
            wanted = two if "-g" not in arguments else one
            shown = document("show", *arguments, folder=folder)["process"]
            expect(shown["pid"], wanted, f"{arguments}")
        expect([pool["device"] for pool in shown["pools"]], [0, 0], "pools of GPU 0")
        expect_in("2 processes are chosen", document("show", "-c", "train*", folder=folder, code=2)["error"]["message"])
        expect(document("show", "-c", "none", folder=folder, code=1)["error"]["code"], 1)
        expect_in("options choose", document("show", two, "-g", "0", folder=folder, code=1)["error"]["message"])


@case
def ended_processes_are_shown_with_all_alone():
    with folder_of_segments() as folder, guest(folder) as one, guest(folder, "=gone") as two:
        two.process.send_signal(signal.SIGKILL)
        two.process.wait()
        expect(pids(folder=folder), [one.pid])
        listed = {process["pid"]: process["state"] for process in document("--all", folder=folder)["processes"]}
        expect(listed, {one.pid: "running", two.pid: "ended"})
        result = poolstat("--all", folder=folder)
        expect(result.out.splitlines()[0].split()[:3], ["PID", "COMMAND", "STATE"])
        for line in result.out.splitlines()[1:]:
            expect("ended" in line, line.split()[0] == str(two.pid), line)
        expect(poolstat("show", two.pid, folder=folder).code, 5)
        expect(document("show", two.pid, "--all", folder=folder)["process"]["state"], "ended")
        expect(poolstat("show", "-c", "gone", folder=folder).code, 1)
        expect_in("ended", poolstat("show", "-c", "gone", "--all", folder=folder).out)


@case
def damaged_segment_of_an_ended_process_is_no_problem_with_all_either():
    with one_guest() as (folder, started):
        started.process.kill()
        started.process.wait()
        os.truncate(started.path, 500)
        result = poolstat("--all", folder=folder)
        expect((result.code, result.out), (1, ""))


@case
def process_inside_one_driver_call_is_marked_after_10_seconds():
    with folder_of_segments() as folder, guest(folder, "in-driver") as short, guest(folder, "stuck") as long:
        stuck = {process["pid"]: process["stuck"] for process in document(folder=folder)["processes"]}
        expect(stuck, {short.pid: False, long.pid: True})
        for line in poolstat(folder=folder).out.splitlines()[1:]:
            expect("in driver 1" in line, line.split()[0] == str(long.pid), line)
        marked = ["over 10 s" in poolstat("show", pid, folder=folder).out for pid in (short.pid, long.pid)]
        expect(marked, [False, True])
        document_of = document("show", long.pid, folder=folder)["process"]
        expect((document_of["stuck"], document_of["in_driver_ns"] > 12 * 10**9), (True, True))


main()

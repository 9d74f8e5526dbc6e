# SPDX-License-Identifier: MIT
"""poolstat ctl: what it has real programs do, and what it says where it cannot."""
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

import control
from common import MIB, POOLSTAT, document, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from preload import Guest
from tap import case, main, skip

EACH = 32 * MIB
SHM = "/dev/shm"


def ctl(*arguments, folder=SHM, **settings):
    return poolstat("ctl", *arguments, folder=folder, **settings)


def real(part, **variables):
    return Guest(["preload_control", part], variables={"POOL_CONTROL": "1", **variables})


# ---- real programs ----


@case
def trim_gives_cached_memory_back():
    with real("idle") as started:
        started.until_ready()
        pid = started.process.pid
        result = ctl(pid, "trim", "64MiB")
        expect((result.code, result.err), (0, ""))
        expect(result.out, f"{pid} preload_control: 96.0 MiB given back; now 64.0 MiB reserved, 0 B live, 64.0 MiB cached\n")
        result = ctl(pid, "trim")
        expect(result.out, f"{pid} preload_control: 64.0 MiB given back; now 0 B reserved, 0 B live, 0 B cached\n")
        expect(started.figures()["reserved_bytes"], 0)
        started.end()


@case
def limit_is_told_before_and_after():
    with real("live", POOL_LIMIT_MB="1024") as started:
        started.until_ready()
        pid = started.process.pid
        result = ctl(pid, "limit", "96MiB")
        expect(result.code, 0, result.err)
        expect_in("the limit was 1.00 GiB and is 96.0 MiB; 32.0 MiB given back", result.out)
        shown = document("show", pid, folder=SHM)["process"]["pools"][0]
        expect(shown["limit_bytes"], 96 * MIB)
        result = ctl(pid, "limit", "32MiB")
        expect_in("32.0 MiB above the limit stay reserved", result.out)
        result = ctl(pid, "limit", "none")
        expect_in("the limit was 32.0 MiB and is none; 0 B given back", result.out)
        expect(document("show", pid, folder=SHM)["process"]["pools"][0]["limit_bytes"], None)
        started.go_on()
        started.until_ready()
        started.end()


@case
def peaks_begin_anew():
    with real("live") as started:
        started.until_ready()
        result = ctl(started.process.pid, "reset-peak")
        expect(result.code, 0, result.err)
        expect_in("peaks begin anew", result.out)
        expect(started.figures()["peak_live_bytes"], 2 * EACH)
        started.go_on()
        started.until_ready()
        started.end()


@case
def json_has_the_numbers():
    with real("live") as started:
        started.until_ready()
        pid = started.process.pid
        answer = document("ctl", pid, "limit", "32MiB", folder=SHM)
        expect(answer["error"], None)
        expect(answer["control"], {
            "pid": pid, "command": "preload_control", "request": "limit", "value_bytes": EACH, "given_back_bytes": 2 * EACH,
            "reserved_bytes": 2 * EACH, "live_bytes": 2 * EACH, "cached_bytes": 0, "limit_bytes_before": None,
            "limit_bytes": EACH, "over_limit_bytes": EACH})
        expect(document("ctl", pid, "reset-peak", folder=SHM)["control"]["value_bytes"], None)
        started.go_on()
        started.until_ready()
        started.end()


@case
def it_answers_at_once():
    with real("busy") as started:
        started.until_ready()
        times = []
        for _ in range(10):
            began = time.monotonic()
            expect(ctl(started.process.pid, "trim").code, 0)
            times.append(time.monotonic() - began)
        assert sorted(times)[5] < 1, times
        started.end()


@case
def many_who_ask_at_once_are_all_answered():
    with real("idle") as started:
        started.until_ready()
        arguments = [POOLSTAT, "ctl", str(started.process.pid), "--timeout", "60", "trim", "--json"]
        askers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
        given_back = 0
        for asker in askers:
            out, err = asker.communicate(timeout=120)
            expect(asker.returncode, 0, err)
            given_back += int(out.split('"given_back_bytes": ')[1].split(",")[0])
        expect(given_back, 5 * EACH)
        started.end()


@case
def a_process_without_a_pool_says_so():
    with real("late", POOL_ENABLE="0") as started:
        started.until_ready()
        result = ctl(started.process.pid, "trim")
        expect(result.code, 1)
        expect_in("has no pool", result.err)
        started.end()


@case
def a_stopped_process_is_not_waited_for_and_does_nothing_later():
    with real("idle") as started:
        started.until_ready()
        started.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        result = ctl(started.process.pid, "trim", "--timeout", "0.3")
        assert time.monotonic() - began < 5, "it waited for longer than it was told"
        expect(result.code, 1)
        expect_in("did not answer within 0.3 s", result.err)
        expect_in("withdrawn", result.err)
        started.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        expect(started.figures()["segment_releases"], 0)
        expect(ctl(started.process.pid, "trim").code, 0)
        started.end()


@case
def interrupted_it_withdraws_the_request():
    with real("idle") as started:
        started.until_ready()
        started.process.send_signal(signal.SIGSTOP)
        asker = subprocess.Popen([POOLSTAT, "ctl", str(started.process.pid), "--timeout", "60", "trim"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with control.Control(started.process.pid) as file:
            until = time.monotonic() + 10
            while os.pread(file.fd, 4, control.REQUEST_AT) == bytes(4) and time.monotonic() < until:
                time.sleep(0.01)
        asker.send_signal(signal.SIGINT)
        asker.communicate(timeout=20)
        expect(asker.returncode, -signal.SIGINT)
        started.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        expect(started.figures()["segment_releases"], 0)
        started.end()


@case
def a_process_that_ends_meanwhile_is_not_waited_for():
    with real("idle") as started:
        started.until_ready()
        started.process.send_signal(signal.SIGSTOP)
        threading.Timer(0.3, started.process.kill).start()
        began = time.monotonic()
        result = ctl(started.process.pid, "trim", "--timeout", "15")
        expect(result.code, 5)
        expect_in("ended before it answered", result.err)
        assert time.monotonic() - began < 10
        for left in Path(SHM).glob(f"poolcuda-*-{started.process.pid}-*"):
            left.unlink()


@case
def a_process_that_was_not_asked_to_accept_it_refuses():
    with real("idle", POOL_CONTROL="0") as started:
        started.until_ready()
        for arguments in (("trim",), ("limit", "1GiB"), ("reset-peak",)):
            result = ctl(started.process.pid, *arguments)
            expect(result.code, 3)
            expect_in("start it with POOL_CONTROL=1", result.err)
        started.end()


@case
def another_users_process_is_refused():
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        skip("another user can be played by root alone, with setpriv")
    with real("idle") as started:
        started.until_ready()
        other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        result = ctl(started.process.pid, "trim", wrapper=other)
        expect(result.code, 3)
        expect_in("belongs to another user", result.err)
        expect(started.figures()["segment_releases"], 0)
        started.end()


# ---- files that are not what they should be, beside a segment without a library ----


def control_path(started):
    return started.path.with_name(started.path.name.replace("poolcuda-", "poolcuda-control-", 1))


def contents(started, magic=b"POOLCTRL", version=1, pid=None, start=None):
    uid, own_pid, own_start = (int(part) for part in started.path.name.split("-")[1:])
    header = struct.pack("=8sIIQIIQQ", magic, version, 64, 4096, own_pid if pid is None else pid, uid,
                         own_start if start is None else start, 0)
    return header.ljust(4096, b"\0")


def refused(code, *words, made=lambda started, path: None, timeout="0.2"):
    with one_guest() as (folder, started):
        made(started, control_path(started))
        result = ctl(started.pid, "trim", "--timeout", timeout, folder=folder)
        expect(result.code, code, result.err)
        for word in words:
            expect_in(word, result.err)
        error = document("ctl", started.pid, "trim", "--timeout", timeout, folder=folder, code=code)["error"]
        expect(error["code"], code)


@case
def damaged_files_are_told_apart():
    def cut(started, path):
        path.write_bytes(contents(started)[:4095])

    def other_user(started, path):
        path.write_bytes(contents(started))
        os.chown(path, 65534, 65534)

    refused(4, "cut short", made=cut)
    refused(4, "does not begin as one", made=lambda started, path: path.write_bytes(bytes(4096)))
    refused(4, "layout 2", made=lambda started, path: path.write_bytes(contents(started, version=2)))
    refused(4, "another process", made=lambda started, path: path.write_bytes(contents(started, pid=1)))
    refused(4, "another process", made=lambda started, path: path.write_bytes(contents(started, start=1)))
    refused(4, "symbolic link", made=lambda started, path: path.symlink_to("/etc/passwd"))
    refused(4, "no ordinary file", made=lambda started, path: os.mkfifo(path))
    refused(4, "Is a directory", made=lambda started, path: path.mkdir())
    refused(3, "POOL_CONTROL=1")
    if os.geteuid() == 0:
        refused(3, "another user", made=other_user)
    refused(1, "did not answer", made=lambda started, path: path.write_bytes(contents(started)))


@case
def who_asks_already_is_waited_for_a_while():
    with one_guest() as (folder, started):
        path = control_path(started)
        path.write_bytes(contents(started))
        with path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            began = time.monotonic()
            result = ctl(started.pid, "trim", "--timeout", "0.3", folder=folder)
            expect(result.code, 1)
            expect_in("another poolstat ctl", result.err)
            assert 0.2 < time.monotonic() - began < 5
        expect(path.read_bytes()[64:128], bytes(64), "the request's place")


def answering(path, started, records):
    """A thread that answers the next request with each of these records: (code, …) or bytes."""
    path.write_bytes(contents(started))

    def answer():
        until = time.monotonic() + 10
        with open(path, "r+b", buffering=0) as file:
            request = bytes(64)
            while request[:4] == bytes(4) and time.monotonic() < until:
                time.sleep(0.001)
                request = os.pread(file.fileno(), 64, 64)
            expect(request[56:], control.check_of(request[:56]), "the request's check")
            sequence = struct.unpack("=I", request[:4])[0]
            for turn, record in enumerate(records, 1):
                if not isinstance(record, bytes):
                    record = control.ANSWER.pack(turn, sequence, record[0], 0, *record[1])
                    record += control.check_of(record)
                os.pwrite(file.fileno(), record, 128)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def answered(records, timeout="2", json=False):
    with one_guest() as (folder, started):
        thread = answering(control_path(started), started, records)
        result = ctl(started.pid, "trim", "--timeout", timeout, *(["--json"] if json else []), folder=folder)
        thread.join()
        return result


@case
def answers_that_make_no_sense_are_no_answers():
    zero, most = (0,) * 7, (2**64 - 1,) * 7
    result = answered([(99, zero)])
    expect(result.code, 4)
    expect_in("99", result.err)
    expect_in("is older", answered([(control.UNKNOWN_COMMAND, zero)]).err)
    expect(answered([(control.BAD_VALUE, zero)]).code, 2)
    result = answered([(control.TAKEN, zero)], timeout="0.3")
    expect(result.code, 1)
    expect_in("still at it", result.err)
    expect(answered([b"\xff" * 128], timeout="0.3").code, 1)
    result = answered([b"\xff" * 128, (control.TAKEN, zero), (control.DONE, most)])
    expect(result.code, 0, result.err)
    result = answered([(control.DONE, most)], json=True)
    expect_in('"given_back_bytes": null', result.out)
    assert "-1" not in result.out, result.out


# ---- the command line ----


@case
def what_is_wrong_on_the_command_line_is_named():
    wrong = {
        (): "argument is missing",
        ("1",): "argument is missing",
        ("x", "trim"): "'x' is no process id",
        ("0", "trim"): "'0' is no process id",
        ("1", "trimm"): "'trimm'",
        ("1", "trim", "much"): "a size is wanted",
        ("1", "trim", "1MB"): "a size is wanted",
        ("1", "limit"): "is missing",
        ("1", "limit", "-1"): "",
        ("1", "limit", "1MiB"): "2.00 MiB to 16.0 TiB",
        ("1", "limit", "17TiB"): "2.00 MiB to 16.0 TiB",
        ("1", "limit", "nothing"): "or none",
        ("1", "reset-peak", "1"): "takes no argument",
        ("1", "trim", "1", "2"): "too many arguments",
        ("1", "trim", "--timeout", "0"): "a number of seconds is wanted",
        ("1", "trim", "--timeout", "nan"): "a number of seconds is wanted",
        ("1", "trim", "--timeout", "1x"): "a number of seconds is wanted",
    }
    with folder_of_segments() as folder:
        for arguments, words in wrong.items():
            result = ctl(*arguments, folder=folder)
            expect((result.code, result.out), (2, ""), f"{arguments}: {result.err}")
            expect_in(words, result.err)
        result = poolstat("ls", "--timeout", "1", folder=folder)
        expect(result.code, 2)


@case
def no_such_process_and_no_pool_are_told_apart():
    with folder_of_segments() as folder:
        gone = subprocess.Popen(["true"])
        gone.wait()
        expect(ctl(gone.pid, "trim", folder=folder).code, 5)
        result = ctl(os.getpid(), "trim", folder=folder)
        expect(result.code, 1)
        expect_in("poolstat run -e POOL_CONTROL=1", result.err)
        with guest(folder, "ended") as ended:
            expect(ctl(ended.pid, "trim", folder=folder).code, 5)


main()

# SPDX-License-Identifier: MIT
"""What others ask by the control file is done at once, whatever the program does, and harms it in nothing."""
import os
import random
import signal
import time
from pathlib import Path

from control import (BAD_VALUE, BYTES, DONE, LIMIT, NO_LIMIT, NONE, NOT_POOLED, RESET_PEAK, TAKEN, TRIM,
                     UNKNOWN_COMMAND, Control, files)
from preload import EMULATOR, Guest, built, expect, run
from tap import case, main, skip

MIB = 1 << 20
EACH = 32 * MIB
SANITIZER = os.environ.get("PRELOAD_SANITIZER", "none")


def guest(part, beside=(), **variables):
    return Guest(["preload_control", part], variables={"POOL_CONTROL": "1", **variables}, beside=beside)


def tasks(pid):
    """Of the library's own threads: the lines of their status."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        if lines["Name"] == "poolcuda-ctl":
            found.append(lines)
    return found


# ---- who is asked ----


@case
def nothing_is_made_unless_asked_for():
    with Guest(["preload_control", "idle"]) as started:
        started.until_ready()
        assert files(started.process.pid) == [] and tasks(started.process.pid) == []
        started.end()


@case
def the_file_is_the_owners_alone_and_goes_with_the_process():
    with guest("idle") as started:
        started.until_ready()
        names = files(started.process.pid)
        status = os.lstat(f"/dev/shm/{names[0]}")
        assert (status.st_mode & 0o7777, status.st_size, status.st_uid) == (0o600, BYTES, os.geteuid()), status
        assert status.st_blocks * 512 >= BYTES, "its pages are not allocated"
        started.end()
        assert files(started.process.pid) == []


@case
def the_thread_blocks_all_signals_and_sleeps():
    if EMULATOR:
        skip("the emulator has threads and signals of its own")
    with guest("idle") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            control.ask(NONE)
        before = tasks(started.process.pid)
        time.sleep(1)
        after = tasks(started.process.pid)
        assert len(before) == len(after) == 1, before
        # All but those that cannot be blocked, and those that the C library keeps for itself.
        blocked = int(before[0]["SigBlk"], 16)
        wanted = [number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP) and number < 32]
        assert all(blocked >> number - 1 & 1 for number in wanted), before[0]["SigBlk"]
        woken = int(after[0]["voluntary_ctxt_switches"]) - int(before[0]["voluntary_ctxt_switches"])
        assert woken <= 2, f"woke {woken} times in an idle second"
        started.end()


@case
def answers_are_as_without_control():
    native = run(["preload_control", "idle"], pool=False)
    assert native == run(["preload_control", "idle"], variables={"POOL_CONTROL": "1"}), native


# ---- what is done ----


@case
def an_idle_program_gives_back_what_it_caches():
    with guest("idle") as started:
        started.until_ready()
        expect(started.figures(), reserved_bytes=5 * EACH, segments=5, segment_releases=0)
        with Control(started.process.pid) as control:
            found = control.ask(TRIM)
            assert (found["given_back"], found["reserved"], found["live"], found["cached"]) == (5 * EACH, 0, 0, 0), found
            expect(started.figures(), reserved_bytes=0, segment_releases=5, event_release=5)
            assert started.figures()["trims"] >= 1
            assert control.ask(TRIM)["given_back"] == 0
        assert started.end() == "allocate: 0, free: 0\n"


@case
def what_is_to_be_kept_stays_cached():
    with guest("idle") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            found = control.ask(TRIM, 2 * EACH)
            assert (found["given_back"], found["cached"]) == (3 * EACH, 2 * EACH), found
            assert control.ask(TRIM, NO_LIMIT)["given_back"] == 0
        started.end()


@case
def a_limit_binds_from_now_on_and_gives_back_what_is_above():
    with guest("live") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            found = control.ask(LIMIT, 3 * EACH)
            assert (found["limit_before"], found["limit"]) == (NO_LIMIT, 3 * EACH), found
            assert (found["given_back"], found["reserved"], found["over"]) == (EACH, 3 * EACH, 0), found
            expect(started.figures(), reserved_bytes=3 * EACH, limit_bytes=3 * EACH)
            found = control.ask(LIMIT, EACH)
            assert (found["given_back"], found["over"], found["live"]) == (EACH, EACH, 2 * EACH), found
            started.go_on()
            started.until_ready()
            assert started.lines == ["allocate: 2, free: 0"], started.lines
            found = control.ask(LIMIT, NO_LIMIT)
            assert (found["limit_before"], found["limit"], found["over"]) == (EACH, NO_LIMIT, 0), found
        assert started.end() == "allocate: 0, free: 0\n"


@case
def peaks_begin_anew():
    with guest("live") as started:
        started.until_ready()
        expect(started.figures(), peak_live_bytes=4 * EACH, peak_requested_bytes=4 * EACH, peak_cached_bytes=2 * EACH)
        with Control(started.process.pid) as control:
            control.ask(TRIM)
            control.ask(RESET_PEAK)
        expect(started.figures(), peak_live_bytes=2 * EACH, peak_requested_bytes=2 * EACH, peak_reserved_bytes=2 * EACH,
               peak_cached_bytes=0, peak_idle_bytes=0)
        started.go_on()
        started.until_ready()
        expect(started.figures(), peak_live_bytes=5 * EACH, peak_reserved_bytes=5 * EACH, peak_cached_bytes=3 * EACH)
        started.end()


@case
def without_a_pool_there_is_nothing_to_be_done():
    with guest("late", POOL_ENABLE="0") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            for command in (TRIM, LIMIT, RESET_PEAK):
                control.ask(command, NO_LIMIT, code=NOT_POOLED)
            control.ask(NONE)
        started.end()


# ---- whatever the program does ----


@case
def a_working_program_is_asked_again_and_again():
    with guest("busy") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            given_back = 0
            for number in range(60):
                given_back += control.ask(TRIM, (number % 3) * 16 * MIB)["given_back"]
                control.ask(RESET_PEAK)
                control.ask(LIMIT, NO_LIMIT if number % 2 else 4096 * MIB)
                figures = started.figures()
                assert figures["peak_reserved_bytes"] >= figures["prealloc_bytes"]
            assert given_back > 0
        assert started.end() == "worked: 1, failures: 0\n"


@case
def hazard_25_a_context_that_is_reset_meanwhile():
    with guest("reset") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            for number in range(60):
                control.ask(TRIM)
                control.ask(LIMIT, NO_LIMIT if number % 2 else 16 * EACH)
        assert started.end() == "worked: 1, failures: 0\n"


@case
def hazard_30_no_capture_is_broken():
    with guest("capture") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            given_back = control.ask(TRIM)["given_back"]
            control.ask(LIMIT, 64 * MIB)
            control.ask(LIMIT, NO_LIMIT)
            control.ask(RESET_PEAK)
            assert given_back >= 4 * EACH, given_back
            started.go_on()
            started.until_ready()
            assert started.lines[-2:] == ["cuStreamEndCapture(stream, &graph): 0", "a graph: 1"], started.lines
            assert control.ask(TRIM)["reserved"] == 0
        started.end()


@case
def stream_ordered_memory_of_a_created_context_is_given_back():
    with guest("created") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            found = control.ask(TRIM)
            assert (found["given_back"], found["reserved"]) == (EACH, 0), found
        assert started.end() == "cuCtxDestroy(context): 0\n"


@case
def where_no_context_lives_nothing_is_lost():
    with guest("destroyed") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            found = control.ask(TRIM)
            assert (found["given_back"], found["reserved"]) == (0, EACH), found
        started.end()


@case
def hazard_37_a_forked_child_has_neither_thread_nor_file():
    with guest("fork") as started:
        started.until_ready()
        child = int(started.lines[-1].split()[1])
        assert files(child) == [] and tasks(child) == []
        with Control(started.process.pid) as control:
            assert control.ask(TRIM)["given_back"] == 4 * EACH
            started.go_on()
            started.until_ready()
            assert started.lines[-1] == "child's status: 0", started.lines
            assert len(files(started.process.pid)) == 1, "the child took its parent's file with it"
            control.ask(TRIM)
        started.end()


@case
def hazard_36_what_a_killed_process_leaves_goes_with_the_next():
    with guest("idle") as started:
        started.until_ready()
        started.process.kill()
        started.process.wait()
        assert len(files(started.process.pid)) == 1
        with Guest(["preload_control", "idle"]) as following:  # which has no use for one itself
            following.until_ready()
            assert files(started.process.pid) == []
            following.end()


@case
def hazard_26_an_end_amid_a_request_is_an_end():
    with guest("idle", SIM_LATENCY="cuMemFree:100000") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            control.write(TRIM)
            until = time.monotonic() + 10
            while not control.answer() and time.monotonic() < until:
                time.sleep(0.001)
            assert control.answer()["code"] == TAKEN, control.answer()
            began = time.monotonic()
            assert started.end() == "allocate: 0, free: 0\n"
            assert time.monotonic() - began < 3
        assert files(started.process.pid) == []


@case
def where_no_thread_can_be_started_the_pool_looks_when_it_grows():
    if SANITIZER != "none":
        skip("the sanitizer has a pthread_create of its own")
    with guest("live", beside=[built("libno_thread.so")]) as started:
        started.until_ready()
        assert tasks(started.process.pid) == []
        with Control(started.process.pid) as control:
            control.write(TRIM, 0)
            assert control.answered(0.3) is None
            started.go_on()
            found = control.answered()
            assert found and found["code"] == DONE and found["given_back"] == 2 * EACH, found
        started.until_ready()
        started.end()


# ---- whatever the file holds ----


@case
def what_cannot_be_done_is_refused():
    with guest("idle") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            for command in (4, 1000, 2**32 - 1):
                control.ask(command, code=UNKNOWN_COMMAND)
            for value in (0, 1, 2 * MIB - 1, 2**44 + 1, NO_LIMIT - 1):
                control.ask(LIMIT, value, code=BAD_VALUE)
            found = control.ask(NONE)
            assert found["given_back"] == 0
        expect(started.figures(), reserved_bytes=5 * EACH)
        started.end()


@case
def a_request_is_done_once_and_one_without_its_check_never():
    with guest("idle") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            control.write(TRIM, check=b"\x01" * 8)
            assert control.answered(0.3) is None
            expect(started.figures(), segment_releases=0)
            turn = control.ask(NONE)["turn"]
            control.wake()
            time.sleep(0.1)
            assert control.answer()["turn"] == turn, "answered twice"
        started.end()


@case
def garbage_in_the_file_harms_nobody():
    noise = random.Random(7)
    with guest("busy") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            for _ in range(200):
                os.pwrite(control.fd, noise.randbytes(noise.randrange(1, BYTES)), noise.randrange(BYTES))
                control.wake()
                if noise.random() < 0.2:
                    os.ftruncate(control.fd, noise.randrange(2 * BYTES))
            os.ftruncate(control.fd, 0)
            control.wake()
            time.sleep(0.05)
            os.ftruncate(control.fd, BYTES)
            control.sequence = noise.randrange(1, 2**31)
            control.ask(TRIM)
        assert started.end() == "worked: 1, failures: 0\n"


@case
def a_file_that_is_cut_while_it_is_waited_for_is_no_end_of_the_program():
    with guest("idle") as started:
        started.until_ready()
        with Control(started.process.pid) as control:
            control.ask(NONE)
            os.ftruncate(control.fd, 0)
            time.sleep(0.2)
            control.write(TRIM)
            found = control.answered()
            assert found and found["given_back"] == 5 * EACH, found
        started.end()


@case
def another_file_of_that_name_is_left_alone():
    for replace in (lambda path: os.symlink("/etc/passwd", path), lambda path: Path(path).write_text("mine")):
        with guest("idle") as started:
            started.until_ready()
            path = f"/dev/shm/{files(started.process.pid)[0]}"
            os.unlink(path)
            replace(path)
            try:
                started.end()
                assert os.path.lexists(path), "it was removed"
            finally:
                os.unlink(path)


@case
def the_programs_own_file_by_the_same_number_is_left_alone():
    with guest("closed") as started:
        started.until_ready()
        assert started.lines == ["taken: 1"], started.lines
        with Control(started.process.pid) as control:
            assert control.ask(TRIM)["given_back"] == 4 * EACH
        assert started.end() == "bytes in the own file: 0\n"


@case
def without_figures_there_is_no_control_and_a_line_says_so():
    with guest("idle", POOL_STATS="0") as started:
        started.until_ready()
        assert files(started.process.pid) == [] and tasks(started.process.pid) == []
        _, err = started.process.communicate("\n", timeout=60)
        assert err.count("\n") == 1 and "POOL_CONTROL needs figures" in err, err


main()

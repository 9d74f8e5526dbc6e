# SPDX-License-Identifier: MIT
"""run --summary: a parent that the program does not notice, and figures from a segment that has vanished; and what is
said of variables that there are not."""
import os
import pty
import signal
import subprocess
import time

from common import POOLSTAT, SYNTHETIC, Result, expect, expect_in, folder_of_segments
from tap import case, main

STUB = os.environ["STUB"]
SEEN_S = 0.3  # a segment that is there so long is seen, on a busy machine too
WITHOUT_FIGURES = "made no CUDA call"


def environment(folder):
    return dict(os.environ, POOLSTAT_SHM_DIR=str(folder), POOLSTAT_LIBRARY=STUB)


def run(*command, folder="/nonexistent", options=("--summary",), **settings):
    done = subprocess.run([POOLSTAT, "run", *options, *map(str, command)], env=environment(folder), text=True,
                          capture_output=True, timeout=30, stdin=subprocess.DEVNULL, **settings)
    return Result(done.returncode, done.stdout, done.stderr)


def start(*command, folder="/nonexistent", **settings):
    """One that says something once it is ready."""
    process = subprocess.Popen([POOLSTAT, "run", "--summary", *map(str, command)], env=environment(folder), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, **settings)
    # Byte by byte, so that no more is taken than that line.
    while os.read(process.stdout.fileno(), 1) not in (b"\n", b""):
        pass
    return process


@case
def status_is_the_programs_own():
    for status in (0, 1, 37, 255):
        result = run("sh", "-c", f"echo out; exit {status}")
        expect((result.code, result.out), (status, "out\n"))
        expect_in(f"sh ended with code {status} after", result.err)
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        result = run("sh", "-c", f"kill -{int(number)} $$")
        expect(result.code, 128 + number)
        expect_in(f"was ended by signal {int(number)} (", result.err)


@case
def program_that_cannot_be_executed_answers_as_without_summary():
    for command, code in (("no-such-command", 127), ("/no/such/command", 127), ("/", 126)):
        expect(run(command), run(command, options=()))
        expect(run(command).code, code)


@case
def program_without_figures_is_told_so():
    with folder_of_segments() as folder:
        for where in (folder, "/nonexistent"):
            result = run("true", folder=where)
            expect(result.err.count("\n"), 1)
            expect_in(WITHOUT_FIGURES, result.err)


def expect_figures(result, rows=3):
    """Those of the synthetic process, with the pool that is gone."""
    lines = result.err.splitlines()
    expect(lines[1].split(), "PID COMMAND DEV PEAK_LIVE PEAK ALLOCS HITS MISSES DRIVER".split())
    expect(lines[2].split()[1:], "synthetic 0 68.0 MiB 112 MiB 1100 85.9% 155 2.50 ms".split())
    expect([line.split()[2] for line in lines[2:2 + rows]], ["0", "1", "5"] * (rows // 3))
    expect_in("999 MiB", lines[4])
    expect_in("2 frees of what is no live block were refused", result.err)
    expect_in("POOL_PREALLOC_MB=64 would have saved 12 driver calls, 3.40 ms", result.err)


@case
def figures_are_there_though_the_segment_has_vanished():
    with folder_of_segments() as folder:
        # Removed by its own process, as the library does at its end.
        process = start(SYNTHETIC, folder, "unlinks", folder=folder)
        time.sleep(SEEN_S)
        out, err = process.communicate(timeout=30)
        result = Result(process.returncode, out, err)
        expect((result.code, os.listdir(folder)), (0, []), result.err)
        expect_figures(result)
        expect(WITHOUT_FIGURES in result.err, False)


@case
def figures_of_a_killed_program_are_there():
    with folder_of_segments() as folder:
        process = start(SYNTHETIC, folder, folder=folder)
        [name] = os.listdir(folder)
        os.kill(int(name.split("-")[2]), signal.SIGKILL)
        out, err = process.communicate(timeout=30)
        expect(process.returncode, 128 + signal.SIGKILL)
        expect_figures(Result(0, out, err))


@case
def figures_of_descendants_are_there_and_of_nobody_else():
    with folder_of_segments() as folder:
        with subprocess.Popen([SYNTHETIC, folder, "=other"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as other:
            other.stdout.readline()
            script = f'(sleep {SEEN_S} | "$0" "$1" unlinks; true) & sleep {SEEN_S} | "$0" "$1" unlinks; wait'
            result = run("sh", "-c", script, SYNTHETIC, folder, folder=folder)
            other.stdin.close()
        expect_figures(result, rows=6)
        expect("other" in result.err, False, result.err)


@case
def damaged_segment_is_said_to_be_so():
    with folder_of_segments() as folder:
        result = run("sh", "-c", f'sleep {SEEN_S} | "$0" "$1"; truncate -s 700 "$1"/poolcuda-*', SYNTHETIC, folder, folder=folder)
        expect(result.code, 0)
        expect_in("is cut short", result.err)


@case
def signals_sent_to_the_parent_reach_the_program():
    script = 'trap "echo got {0}; exit 7" {0}; echo ready; while :; do sleep 0.05; done'
    for name in ("HUP", "INT", "TERM", "USR1", "USR2", "QUIT"):
        process = start("bash", "-c", script.format(name))
        process.send_signal(getattr(signal, f"SIG{name}"))
        out, err = process.communicate(timeout=30)
        expect((process.returncode, out), (7, f"got {name}\n"), name)
    process = start("sh", "-c", "echo ready; exec sleep 60")
    process.terminate()
    process.communicate(timeout=30)
    expect(process.returncode, 128 + signal.SIGTERM)


@case
def program_is_set_up_as_without_summary():
    # Masks and dispositions of signals, and descriptors, of which one is closed.
    commands = (["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"], ["ls", "/proc/self/fd"])

    def set_up():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

        os.close(0)

    for command in commands:
        alone = subprocess.run(command, capture_output=True, text=True, preexec_fn=set_up).stdout
        for options in ((), ("--summary",)):
            result = run(*command, options=options, preexec_fn=set_up)
            expect((result.code, result.out), (0, alone), f"{command} {options}")
    process = start("sh", "-c", "echo ready; read x; ps -o pgid= $$", start_new_session=True)
    out, _ = process.communicate("x\n", timeout=30)
    expect(int(out), process.pid, "process group")


# Counts signals as they come: each writes a byte, though the handler may run once for several.
PROGRAM = r"""
import os, signal, sys, time
read_end, write_end = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(write_end)
signal.signal(signal.SIGINT, lambda number, frame: None)
print("ready", flush=True)
begin = time.monotonic()
while time.monotonic() < begin + float(sys.argv[1]):
    time.sleep(0.05)
os.write(write_end, b".")
print(f"interrupted {len(os.read(read_end, 100)) - 1} times", flush=True)
"""


@case
def signal_that_the_program_sends_its_group_comes_once():
    process = start("python3", "-c", PROGRAM + "os.killpg(0, signal.SIGINT)\ntime.sleep(0.3)\n"
                    "print(len(os.read(read_end, 100)), flush=True)", "0", start_new_session=True)
    out, err = process.communicate(timeout=30)
    expect((process.returncode, out), (0, "interrupted 0 times\n1\n"), err)


class Job:
    """`poolstat run --summary` as a shell has it: a job in the foreground of a terminal."""

    def __init__(self, *command):
        out_fd, in_fd = os.pipe()
        self.shell, self.terminal = pty.fork()
        if self.shell == 0:
            job = os.fork()
            if job == 0:
                os.setpgid(0, 0)
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(0, os.getpid())
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
                os.execve(POOLSTAT, [POOLSTAT, "run", "--summary", *command], environment("/nonexistent"))
            while True:
                _, status = os.waitpid(job, os.WUNTRACED)
                os.write(in_fd, f"{'stopped' if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)}\n".encode())
                if not os.WIFSTOPPED(status):
                    os._exit(0)
                os.killpg(job, signal.SIGCONT)
        os.close(in_fd)
        self.states = os.fdopen(out_fd)

    def read_until(self, part):
        text = ""
        while part not in text:
            text += os.read(self.terminal, 4096).decode()
        return text

    def type(self, character):
        os.write(self.terminal, character)

    def end(self):
        os.waitpid(self.shell, 0)
        os.close(self.terminal)
        self.states.close()


@case
def interrupt_from_the_terminal_comes_once():
    job = Job("python3", "-c", PROGRAM, "2")
    job.read_until("ready")
    for _ in range(10):
        job.type(b"\x03")
        time.sleep(0.1)
    expect_in("interrupted 10 times", job.read_until("after"))
    expect(job.states.readline(), "0\n")
    job.end()


@case
def job_stops_and_goes_on_as_a_whole():
    job = Job("python3", "-c", PROGRAM, "1")
    job.read_until("ready")
    begin = time.monotonic()
    job.type(b"\x1a")
    expect(job.states.readline(), "stopped\n")
    if time.monotonic() - begin > 0.8:
        raise AssertionError("it ended before it stopped")
    expect_in("interrupted 0 times", job.read_until("after"))
    expect(job.states.readline(), "0\n")
    job.end()


@case
def unknown_variables_are_reported_with_the_nearest():
    for name, part in (("POOL_LIMIT", "did you mean POOL_LIMIT_MB?"), ("POOL_FRE", "did you mean POOL_FREE?"),
                       ("POOL_QQQQQQQQQ", "there is no variable POOL_QQQQQQQQQ (")):
        result = run("sh", "-c", f"echo ${name}", options=["-e", f"{name}=1"])
        expect((result.code, result.out, result.err.count("\n")), (0, "1\n", 1))
        expect_in(part, result.err)
    for name in ("POOL_LIMIT_MB", "POOLSIDE", "OTHER", "POOL"):
        expect(run("true", options=["-e", f"{name}=1"]).err, "", name)


main()

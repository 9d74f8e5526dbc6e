# SPDX-License-Identifier: MIT
"""The live view in a real terminal (tmux): keys are sent, and the screen is read."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from common import POOLSTAT, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main, skip

PATIENCE = 30  # seconds until something must be seen, on a busy machine
UTF8 = "C.UTF-8"


class Terminal:
    """A tmux of its own with one pane, in which a shell runs poolstat."""

    def __init__(self, folder, home, arguments, width, height, jobs, environment):
        self.home = home
        self.socket = home / "tmux"
        settings = {"POOLSTAT_SHM_DIR": str(folder), "LC_ALL": UTF8, "COLORTERM": "", **environment}
        words = [f"{name}='{value}'" for name, value in settings.items()]
        command = " ".join(["trap : INT; cd", f"'{home}';", "env", "-u", "NO_COLOR", *words, f"'{POOLSTAT}'", *arguments,
                            "; printf '\\nended with %s\\n' $?; stty -a | grep -o ' .\\?icanon'; exec sleep 1000"])
        if jobs:
            command = command.replace("; printf", "; echo lent; read line; fg %1; printf", 1).replace("trap", "set -m; trap", 1)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), command)
        self.tmux("set", "-g", "status", "off")

    def tmux(self, *words):
        # The locale of tmux is what its terminal takes: all of Unicode.
        done = subprocess.run(["tmux", "-S", str(self.socket), *words], capture_output=True, timeout=PATIENCE,
                              env=dict(os.environ, LC_ALL=UTF8, SHELL="/bin/sh", TERM="xterm-256color"), check=False)
        if done.returncode != 0:
            raise AssertionError(f"tmux {words[0]}: {done.stderr.decode()}")
        return done.stdout.decode()

    def keys(self, *names):
        for name in names:
            self.tmux("send-keys", name)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def lines(self, coloured=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if coloured else [])).split("\n")

    def wait(self, wanted, what=""):
        """Until a line of the screen fits the pattern, or `wanted` says yes to the lines, and nothing is being drawn just
        then. Returns them."""
        until = time.monotonic() + PATIENCE
        lines = self.lines()
        while True:
            before, lines = lines, self.lines()
            is_there = wanted(lines) if callable(wanted) else any(re.search(wanted, line) for line in lines)
            if is_there and lines == before:
                return lines
            if time.monotonic() > until:
                raise AssertionError(f"{what or wanted} is not there:\n" + "\n".join(lines))
            time.sleep(0.03 if is_there else 0.1)

    def resize(self, width, height):
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def pid(self):
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(children[0])

    def stop(self):
        with contextlib.suppress(AssertionError):
            self.tmux("kill-server")


@contextlib.contextmanager
def terminal(folder, *arguments, width=80, height=24, jobs=False, **environment):
    """`jobs`: the shell takes the terminal when poolstat stops, and gives it back after a line was typed."""
    if shutil.which("tmux") is None:
        skip("there is no tmux")
    if b"live view is not built in" in Path(POOLSTAT).read_bytes():
        skip("poolstat was built without ncursesw")
    with tempfile.TemporaryDirectory(prefix="poolstat-live-") as home:
        started = Terminal(folder, Path(home), arguments, width, height, jobs, environment)
        try:
            yield started
        finally:
            started.stop()


def row_of(lines, pid):
    """The row of a process (its first device), without the mark in front."""
    for line in lines:
        if re.match(rf"^\W*{pid} ", line):
            return line
    raise AssertionError(f"process {pid} is not there:\n" + "\n".join(lines))


def order(lines, pids):
    found = [int(match.group(1)) for line in lines if (match := re.match(r"^\W*(\d+) +(?:0|-) ", line))]
    return [pid for pid in found if pid in pids]


@case
def a_terminal_of_80_columns_shows_each_process():
    with folder_of_segments() as folder, guest(folder) as one, guest(folder, "=train.py") as two, \
            terminal(folder) as screen:
        lines = screen.wait("train.py")
        for started, command in ((one, "synthetic"), (two, "train.py")):
            expect(re.sub(r"^\W*", "", row_of(lines, started.pid)).split()[:10],
                   [str(started.pid), "0", command, "48.0", "MiB", "48.0", "MiB", "96.0", "MiB", "85.9%"])
        expect_in("2 processes  by LIVE▼", lines[0])
        expect_in("GPU 17:00.0", "\n".join(lines))
        expect_in("live 96.0 MiB  cached 96.0 MiB  of 8.00 GiB", "\n".join(lines))
        expect_in("quit", lines[23])
        screen.wait(f"{one.pid} .*█▒·+ +▄▄", "a bar and a history of two looks at least")
        screen.keys("q")
        screen.wait("ended with 0")
        screen.wait("^ icanon", "the terminal as it was")


@case
def a_terminal_of_200_columns_uses_the_room():
    with one_guest() as (folder, started), terminal(folder, width=200, height=50) as screen:
        lines = screen.wait(str(started.pid))
        titles = next(line for line in lines if " PID " in line).split()
        expect(titles, ["PID", "GPU", "COMMAND", "LIVE▼", "CACHED", "RESERVED", "PEAK", "HITS", "ALLOC/S", "EXTFRAG",
                        "OF", "GPU", "HISTORY"])
        expect_in("reserved 96.0 MiB  of 8.00 GiB", "\n".join(lines))
        screen.keys("Enter")
        lines = screen.wait("Events, newest first")
        beside = next(line for line in lines if "Events" in line)
        if len(beside) < 150 or not beside[:98].strip():
            raise AssertionError(f"there is but one column: {beside!r}")
        expect_in("8.00 MiB   0.0% " + 47 * "I" + "iFFF", "\n".join(lines))
        for part in ("Pools", "Size classes of pool 1", "Streams of pool 1", "Figures of pool 1", "POOL_SEGMENT_MB=32"):
            expect_in(part, "\n".join(lines))
        expect(lines[49].split()[0], "?", "the last line has the keys")


@case
def one_process_is_shown_with_all_its_parts():
    with one_guest() as (folder, started), terminal(folder, height=60) as screen:
        screen.wait(str(started.pid))
        screen.keys("Enter")
        lines = screen.wait("Figures of pool 1")
        text = "\n".join(lines)
        expect_in(f"process {started.pid}  synthetic", lines[0])
        for row in ("▶1    0  plain  40.0 MiB  24.0 MiB  64.0 MiB  90.0%", "2    0  async  8.00 MiB  24.0 MiB  32.0 MiB",
                    "none    32.0 MiB   30.0 MiB     800  90.0%    760", "oom          1   100 MiB  40.0 MiB"):
            expect_in(row, text)
        expect_in(" live   ░·············██", text)
        expect_in(" 16.0 MiB  50.0% " + 16 * "L" + 16 * "W", text)
        screen.keys("Right")
        screen.wait("Streams of pool 2")
        screen.wait("^ legacy ")
        screen.keys("h")
        screen.wait("Streams of pool 1")
        screen.keys("Escape")
        screen.wait("by LIVE")


@case
def a_screen_too_small_scrolls():
    with one_guest() as (folder, started), terminal(folder) as screen:
        screen.wait(str(started.pid))
        screen.keys("l")
        screen.wait("one column every")
        expect([line for line in screen.lines() if "Figures of" in line], [])
        screen.keys("G")
        screen.wait("Figures of pool 1")
        screen.keys("g")
        screen.wait("one column every")
        for _ in range(4):
            screen.keys("NPage")
        screen.wait("Figures of pool 1")


@case
def resizing_draws_anew():
    with folder_of_segments() as folder, guest(folder) as one, terminal(folder) as screen:
        screen.wait(str(one.pid))
        screen.resize(200, 50)
        screen.wait("EXTFRAG", "more columns")
        screen.wait(lambda lines: lines[49].startswith("?"), "the keys in the last line")
        screen.resize(30, 6)
        screen.wait("30x6 is too small:")
        screen.wait("40x8 is needed")
        screen.resize(40, 10)
        lines = screen.wait(lambda lines: any(str(one.pid) in line for line in lines) and "small" not in lines[0])
        if max(map(len, lines)) > 40:
            raise AssertionError("a line is too long")
        screen.resize(80, 24)
        screen.wait(lambda lines: lines[23].startswith("?"), "the keys in the last line")
        screen.keys("q")
        screen.wait("ended with 0")


@case
def ascii_is_enough():
    for arguments, environment in (["-U"], {}), (["--ascii"], {}), ([], {"LC_ALL": "C"}), ([], {"LC_ALL": "POSIX"}):
        with folder_of_segments() as folder, guest(folder, "=dé日") as started, \
                terminal(folder, *arguments, **environment) as screen:
            screen.wait("#=\\.\\.")
            screen.keys("Enter")
            screen.wait("Streams of pool 1|Size classes")
            screen.keys("Escape", "?")
            screen.wait("these keys")
            screen.keys("?")
            lines = screen.wait(str(started.pid))
            if not "\n".join(lines).isascii():
                raise AssertionError("\n".join(lines))
            expect_in("d\\x", row_of(lines, started.pid))


@case
def strange_names_stay_in_their_place():
    with folder_of_segments() as folder, guest(folder, "hostile") as hostile, guest(folder, "=日本語日本語") as wide, \
            guest(folder, "=e\u0301e\u0301") as combining, terminal(folder, width=120) as screen:
        lines = screen.wait("日本語日本語")
        expect_in("a\\x1b[31m\\x0a", row_of(lines, hostile.pid))
        expect_in("e\\u{301}", row_of(lines, combining.pid))
        # What follows the command stands below its title, counted in columns: each of these characters has two.
        title = next(line for line in lines if " PID " in line)
        end = title.index("LIVE▼") + len("LIVE▼")
        row = row_of(lines, wide.pid)
        expect(row.index("48.0 MiB") + len("48.0 MiB") + 6, end, "end of the column")


@case
def a_process_that_ends_is_marked_and_goes():
    with folder_of_segments() as folder, guest(folder, "=stays") as stays, guest(folder, "=goes") as goes, \
            terminal(folder, "-d", "0.2") as screen:
        screen.wait("goes")
        goes.process.kill()
        goes.process.wait()
        lines = screen.wait(f"{goes.pid} .*goes .*ended .* ago", "the mark")
        expect_in("48.0 MiB", row_of(lines, goes.pid))
        screen.wait(lambda lines: not any("goes" in line for line in lines), "the row is gone")
        expect_in("stays", row_of(screen.lines(), stays.pid))


@case
def a_process_that_comes_is_shown():
    with folder_of_segments() as folder, terminal(folder, "-d", "0.2") as screen:
        screen.wait("no process runs on the pool; start one with: poolstat run -- COMMAND")
        with guest(folder) as started:
            screen.wait(str(started.pid))


@case
def a_damaged_segment_is_a_row_with_the_reason():
    with folder_of_segments() as folder, guest(folder, "other-version") as damaged, guest(folder) as sound, \
            guest(folder, "stuck") as stuck, terminal(folder, width=150) as screen:
        lines = screen.wait("in driver 1[2-9]")
        expect_in("the segment has layout version", row_of(lines, damaged.pid))
        expect_in("48.0 MiB", row_of(lines, sound.pid))
        expect_in("in driver", row_of(lines, stuck.pid))
        screen.type("/layout")
        screen.keys("Enter", "Enter")
        screen.wait("there are no figures: the segment has layout version")


@case
def search_and_filter():
    with folder_of_segments() as folder, guest(folder, "=train") as train, guest(folder, "=serve") as serve, \
            guest(folder, "=trainer") as trainer, terminal(folder) as screen:
        everyone = [train.pid, serve.pid, trainer.pid]
        screen.wait("trainer")
        screen.type("/serv")
        screen.wait("^Search: serv_")
        screen.wait(f"^▶ *{serve.pid} ")
        screen.keys("Enter")
        screen.wait(lambda lines: lines[23].startswith("?"))
        screen.type("g/train")
        screen.keys("Enter")
        screen.wait(f"^▶ *{train.pid} ")
        screen.type("n")
        screen.wait(f"^▶ *{trainer.pid} ")
        screen.type("\\train")
        screen.wait("^Filter: train_")
        screen.keys("Enter")
        lines = screen.wait("filter 'train'")
        expect(order(lines, everyone), [train.pid, trainer.pid])
        screen.type("\\zzz")
        screen.keys("Enter")
        screen.wait("no process has 'trainzzz' \\(Esc: all of them\\)")
        screen.keys("Escape")
        screen.wait(lambda lines: order(lines, everyone) == sorted(everyone), "all of them")


@case
def sorting():
    with folder_of_segments() as folder, guest(folder, "=b") as one, guest(folder, "=c", "negative") as less, \
            guest(folder, "=a") as two, terminal(folder) as screen:
        everyone = [one.pid, less.pid, two.pid]
        screen.wait("by LIVE▼")
        screen.wait(lambda lines: order(lines, everyone) == [one.pid, two.pid, less.pid], "by live memory")
        screen.type("I")
        screen.wait("by LIVE▲")
        screen.wait(lambda lines: order(lines, everyone) == [less.pid, one.pid, two.pid], "the other way round")
        screen.type("<")
        screen.wait("by COMMAND▲")
        screen.wait(lambda lines: order(lines, everyone) == [two.pid, one.pid, less.pid], "by command")
        screen.type("<<")
        screen.wait("by PID▲")
        screen.wait(lambda lines: order(lines, everyone) == sorted(everyone), "by pid")
        screen.type(">I")
        screen.wait("by GPU▼")


def counted(lines):
    """Allocations in the figures of the pool that is open."""
    return int(re.search(r" allocs +(\d+) +growths ", "\n".join(lines)).group(1))


@case
def counting_from_here():
    with one_guest() as (folder, started), terminal(folder, "-d", "0.2", height=60) as screen:
        screen.wait(str(started.pid))
        screen.keys("Enter")
        expect(counted(screen.wait("Figures of pool 1")), 1000)
        screen.type("c")
        lines = screen.wait("counting for")
        expect(counted(lines), 0)
        expect_in("No events", "\n".join(lines))
        if not any(re.match(r" +▶1 +0 +plain +40.0 MiB +24.0 MiB +64.0 MiB +- ", line) for line in lines):
            raise AssertionError("what is no counter, and the hit rate:\n" + "\n".join(lines))
        screen.type("C")
        expect(counted(screen.wait("Events, newest first")), 1000)


@case
def pausing_holds_everything():
    with folder_of_segments() as folder, guest(folder) as one, terminal(folder, "-d", "0.1") as screen:
        screen.wait(str(one.pid))
        screen.type("Z")
        before = screen.wait("PAUSED")
        with guest(folder) as other:
            screen.type("II")
            time.sleep(1)
            expect(screen.lines(), before, "the screen")
            screen.type("Z")
            screen.wait(str(other.pid))
        expect([line for line in screen.lines() if "PAUSED" in line], [])


def read_when_whole(screen, file):
    """A file is seen before all of it is written."""
    screen.wait(lambda lines: file.read_text().endswith("}\n"), f"the end of {file.name}")
    return json.loads(file.read_text())


@case
def a_snapshot_is_a_file_of_its_own():
    with one_guest() as (folder, started), terminal(folder) as screen:
        screen.wait(str(started.pid))
        for number in range(1, 4):
            screen.keys("F12")
            screen.wait(f"saved as poolstat-\\d{{8}}-\\d{{6}}(-\\d)?.json")
            screen.wait(lambda lines: len(list(screen.home.glob("*.json"))) == number, f"file {number}")
        for file in screen.home.glob("*.json"):
            document = read_when_whole(screen, file)
            expect([process["pid"] for process in document["processes"]], [started.pid])
            expect(document["schema"], "poolstat/1")
            expect(file.stat().st_mode & 0o777, 0o600, "mode")
        known = set(screen.home.glob("*.json"))
        screen.keys("Enter", "F12")
        screen.wait(lambda lines: len(list(screen.home.glob("*.json"))) == 4)
        whole = read_when_whole(screen, (set(screen.home.glob("*.json")) - known).pop())
        expect([pool["pool"] for pool in whole["process"]["pools"]], [1, 2, 3])


@case
def a_snapshot_that_fails_says_why():
    with one_guest() as (folder, started), terminal(folder) as screen:
        screen.wait(str(started.pid))
        socket = screen.socket.rename(screen.home.parent / f"{screen.home.name}.tmux")
        screen.socket = socket
        try:
            screen.home.rmdir()
            screen.keys("F12")
            screen.wait("poolstat-.*json could not be created: No such file")
        finally:
            screen.home.mkdir(exist_ok=True)
            screen.stop()
            socket.unlink(missing_ok=True)


@case
def help_has_the_keys_of_the_table():
    with one_guest() as (folder, started), terminal(folder, height=50) as screen:
        screen.wait(str(started.pid))
        screen.type("?")
        shown = "\n".join(line.strip() for line in screen.wait("these keys"))
        printed = poolstat("help", "keys", folder=folder).out.splitlines()[1:]
        if len(printed) < 20:
            raise AssertionError(printed)
        for line in printed:
            names, meaning = re.split(r"  +", line.strip(), maxsplit=1)
            expect_in(names, shown)
            expect_in(meaning, shown)


@case
def signals_give_the_terminal_back():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with one_guest() as (folder, started), terminal(folder) as screen:
            screen.wait(str(started.pid))
            os.kill(screen.pid(), number)
            screen.wait(f"ended with {128 + number}")
            screen.wait("^ icanon")


@case
def ctrl_c_ends_it():
    with one_guest() as (folder, started), terminal(folder) as screen:
        screen.wait(str(started.pid))
        screen.keys("C-c")
        screen.wait("ended with 130")
        screen.wait("^ icanon")


@case
def a_stop_lends_the_terminal():
    with one_guest() as (folder, started), terminal(folder, jobs=True) as screen:
        screen.wait(str(started.pid))
        screen.type("I")
        screen.wait("by LIVE▲")
        screen.keys("C-z")
        screen.wait("^lent")
        expect([line for line in screen.lines() if "quit" in line], [], "what the view has left")
        screen.keys("Enter")
        screen.wait("quit")
        screen.wait("by LIVE▲")
        screen.type("I")
        screen.wait("by LIVE▼")
        screen.keys("q")
        screen.wait("ended with 0")


@case
def a_stop_that_cannot_be_seen_is_drawn_over():
    with one_guest() as (folder, started), terminal(folder) as screen:
        before = screen.wait(str(started.pid))
        pid = screen.pid()
        os.kill(pid, signal.SIGSTOP)
        Path(screen.tmux("display-message", "-p", "#{pane_tty}").strip()).write_text("\033[2J\033[Hthe shell's words")
        screen.wait("the shell's words")
        os.kill(pid, signal.SIGCONT)
        lines = screen.wait("quit")
        expect([line for line in lines if "words" in line], [])
        expect(lines[4], before[4], "the titles")


@case
def colours_can_be_refused():
    def codes(screen, started):
        screen.wait(str(started.pid))
        return set(re.findall(r"\x1b\[([0-9;]+)m", "\n".join(screen.lines(coloured=True))))

    def is_colour(code):
        return any(part.isdigit() and (30 <= int(part) <= 49) and int(part) not in (39, 49) for part in code.split(";"))

    with one_guest() as (folder, started):
        with terminal(folder) as screen:
            if not any(map(is_colour, codes(screen, started))):
                raise AssertionError("there is no colour")
        for arguments, environment in (["--color=never"], {}), ([], {"NO_COLOR": "1"}):
            with terminal(folder, *arguments, **environment) as screen:
                expect([code for code in codes(screen, started) if is_colour(code)], [], str(arguments))


@case
def a_terminal_without_a_cursor_gets_the_table():
    with one_guest() as (folder, started):
        for name, note in (("dumb", None), ("nothing-that-is-known", "no live view: this terminal \\(TERM\\) is in no")):
            with terminal(folder, TERM=name) as screen:
                lines = screen.wait("ended with 0")
                expect_in("48.0 MiB", row_of(lines, started.pid))
                if note is not None:
                    screen.wait(note)
            with terminal(folder, "live", TERM=name) as screen:
                screen.wait("ended with 2")
                screen.wait("^poolstat: no live view: ")


@case
def options_of_the_table_give_the_table():
    with one_guest() as (folder, started):
        for arguments in (["-1"], ["--csv"], ["--json"], ["-n", "1"], ["-o", "pid,live"], ["--no-header"]):
            with terminal(folder, *arguments) as screen:
                screen.wait("ended with 0")
                screen.wait('"error": null' if "--json" in arguments else str(started.pid), "what stays on the screen")
        with terminal(folder, "-p", str(started.pid)) as screen:
            screen.wait("quit")
        with terminal(folder, "-p", "1") as screen:
            screen.wait("no process on the pool is one of those chosen")


@case
def it_ends_after_so_many_looks():
    with one_guest() as (folder, started), terminal(folder, "live", "-d", "0.3", "-n", "2") as screen:
        screen.wait("ended with 0")


@case
def without_a_terminal_it_is_refused():
    with one_guest() as (folder, started):
        result = poolstat("live", folder=folder)
        expect((result.code, result.out), (2, ""), result.err)
        expect_in("the table: poolstat ls", result.err)
        expect(poolstat(folder=folder).out.split()[0], "PID", "the table")
        expect(poolstat("ls", "-U", folder=folder).code, 2, "-U")
        expect(poolstat("live", "--json", folder=folder).code, 2, "--json")


main()

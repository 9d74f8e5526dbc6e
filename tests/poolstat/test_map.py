# SPDX-License-Identifier: MIT
"""The block map: as text of any width, with and without colours, as JSON and as an SVG file."""
import os
import re
import stat
import xml.dom.minidom

from common import MIB, document, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main

LIVE, HALF, FIXED = "L" * 64, "L" * 32 + "W" * 32, "I" * 47 + "i" + "F" * 16
PREALLOCATED = "L" * 16 + "O" * 40 + "KK" + ":" + "." * 5


def rows(text):
    """The letters of each row, by address."""
    return dict(re.findall(r"^ (0x[0-9a-f]+) .* (\S+)$", text, re.MULTILINE))


@case
def each_segment_is_a_row_of_letters():
    for words in ([], ["grown"], ["map-wild"]):
        with one_guest(*words) as (folder, started):
            shown = poolstat("map", started.pid, folder=folder)
            expect((shown.code, shown.err), (0, ""), f"code and errors {words}")
            expect(rows(shown.out), {"0x7f0000000000": LIVE, "0x7f0002000000": HALF, "0x7f0004000000": FIXED,
                                     "0x7f0008000000": PREALLOCATED}, f"rows {words}")
            for part in (f"synthetic, process {started.pid}\n", "\nPool 1: device 0, plain segments, as of 3.0",
                         "\n live 40.0 MiB  idle 6.00 MiB  waiting 8.00 MiB  fixed 2.00 MiB\n",
                         " 0x7f0002000000 16.0 MiB  50% LLL", " and 1 more segment, 8.00 MiB, without a row\n",
                         "\nPool 2: device 0, async segments, as of 3.0",
                         "\n live 8.00 MiB  ordered 20.0 MiB  kept 1.00 MiB  unused 3.00 MiB\n",
                         "\nPool 3: device 1, plain segments\n no segments\n",
                         "\n L live  I idle  O ordered  W waiting  F fixed  K kept  . unused  small letters: mostly so\n"):
                expect_in(part, shown.out)
            expect("~ approximate" in shown.out, words == ["map-wild"], f"approximate {words}")
            expect("\x1b" in shown.out, False, "colours in a pipe")


@case
def one_pool_alone_is_shown_and_one_that_is_not_there_is_an_error():
    with one_guest() as (folder, started):
        shown = poolstat("map", "--pool", 2, started.pid, folder=folder)
        expect(rows(shown.out), {"0x7f0008000000": PREALLOCATED})
        for number, code, message in (("4", 1, f"process {started.pid} has no pool 4; its pools: poolstat show {started.pid}"),
                                      ("0", 2, "--pool '0': the number of a pool is wanted"),
                                      ("x", 2, "--pool 'x': the number of a pool is wanted"),
                                      ("33", 2, "--pool '33'"), ("", 2, "--pool ''")):
            refused = poolstat("map", "--pool", number, started.pid, folder=folder)
            expect((refused.code, refused.out), (code, ""), f"pool {number!r}")
            expect_in(message, refused.err)


@case
def sizes_of_blocks_are_shown_when_asked():
    with one_guest() as (folder, started):
        shown = poolstat("map", "--classes", "--pool", 1, started.pid, folder=folder).out.splitlines()
        at = next(i for i, line in enumerate(shown) if line.endswith(HALF))
        expect(shown[at + 1].strip(), "f" * 32 + "e" * 32)
        at = next(i for i, line in enumerate(shown) if line.endswith(FIXED))
        expect(shown[at + 1].strip(), "e" * 48 + "+" * 16)
        expect_in(" e blocks up to 8.00 MiB  f blocks up to 16.0 MiB  + larger blocks", "\n".join(shown))
        expect("blocks up to" in poolstat("map", started.pid, folder=folder).out, False)


@case
def what_is_chosen_by_options_and_what_is_not_there_is_as_with_show():
    with one_guest() as (folder, started):
        expect_in(LIVE, poolstat("map", "-p", started.pid, folder=folder).out)
        expect_in(LIVE, poolstat("map", "-c", "synth*", folder=folder).out)
        for words, code, message in ((["map"], 2, "map: a process id is missing"),
                                     (["map", "abc"], 2, "'abc' is no process id"),
                                     (["map", "1", "2"], 2, "too many arguments"),
                                     (["map", 2**31 - 1], 5, "there is no process"),
                                     (["show", "--classes", started.pid], 2, "show does not take --classes"),
                                     (["map", "--svg", "-", "--json", started.pid], 2, "standard output"),
                                     (["map", "--svg", "", started.pid], 2, "the name of a file is wanted")):
            refused = poolstat(*words, folder=folder)
            expect(refused.code, code, f"{words}")
            expect_in(message, refused.err)
        with guest(folder):
            refused = poolstat("map", "-c", "synth*", folder=folder)
            expect(refused.code, 2)
            expect_in("2 processes are chosen, and map is about one", refused.err)


@case
def nothing_to_draw_is_said():
    with one_guest("old") as (folder, started):
        refused = poolstat("map", started.pid, folder=folder)
        expect((refused.code, refused.out), (1, ""))
        expect_in("its library is of a release without it", refused.err)
        expect(document("map", started.pid, folder=folder, code=1)["error"]["code"], 1)
    with one_guest("unmapped") as (folder, started):
        shown = poolstat("map", started.pid, folder=folder)
        expect(shown.code, 0)
        expect_in("Pool 1: device 0, plain segments\n its segments have not been looked at yet\n", shown.out)
    with one_guest("bare") as (folder, started):
        expect_in("no pool yet", poolstat("map", started.pid, folder=folder).out)


@case
def rows_that_are_written_all_the_time_are_whole_or_approximate():
    with one_guest("map-torn") as (folder, started):
        for _ in range(50):
            pool = document("map", started.pid, folder=folder)["map"]["pools"][0]
            row = pool["segments"][0]
            if row["live_bytes"] + row["idle_bytes"] != 32 * MIB and not pool["approximate"]:
                raise AssertionError(f"torn: live {row['live_bytes']}, idle {row['idle_bytes']}")
            if row["live_bytes"] + row["idle_bytes"] > 32 * MIB:
                raise AssertionError("more than the segment has")


@case
def json_has_every_cell():
    with one_guest() as (folder, started):
        shown = document("map", started.pid, folder=folder)
        expect((shown["error"], shown["map"]["pid"], shown["map"]["command"], shown["map"]["cell_parts"]),
               (None, started.pid, "synthetic", 255))
        first, second, third = shown["map"]["pools"]
        expect([first[name] for name in ("pool", "device", "kind", "approximate", "left_out_segments", "left_out_bytes",
                                         "live_now_bytes", "cached_now_bytes", "outdated")],
               [1, 0, "plain", False, 1, 8 * MIB, 40 * MIB, 24 * MIB, False])
        if not 3e9 <= first["age_ns"] < 60e9:
            raise AssertionError(f"age {first['age_ns']}")
        expect((third["segments"], third["age_ns"]), ([], None))
        fixed, whole = first["segments"][2], second["segments"][0]
        expect([fixed[name] for name in ("address", "size_bytes", "use", "live_bytes", "idle_bytes", "fixed_bytes",
                                         "unused_bytes", "largest_free_bytes", "live_blocks", "free_blocks", "letters")],
               ["0x7f0004000000", 8 * MIB, "fixed", 0, 6 * MIB, 2 * MIB, 0, 6 * MIB, 0, 2, FIXED])
        expect(fixed["parts"]["idle"], [255] * 47 + [200] + [0] * 16)
        expect(fixed["parts"]["fixed"], [0] * 47 + [55] + [255] * 16)
        expect(fixed["parts"]["live"], [])
        expect(fixed["cell_class_bytes"], [8 * MIB] * 48 + [None] * 16)
        expect(fixed["cell_blocks"], [0] * 47 + [255] + [0] * 16)
        expect((whole["use"], whole["unused_bytes"]), ("preallocated", 3 * MIB))
        expect(whole["parts"]["unused"], [0] * 58 + [205] + [255] * 5)
        expect(whole["cell_class_bytes"][16:18] + whole["cell_class_bytes"][60:], [512, 512] + [None] * 4)


def on_a_terminal(columns, *words, folder, **settings):
    """What it prints on a terminal so wide."""
    import pty
    import fcntl
    import struct
    import subprocess
    import termios
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = dict(os.environ, POOLSTAT_SHM_DIR=str(folder), TERM="xterm", **settings)
    environment.pop("NO_COLOR", None)
    environment.update(settings)
    process = subprocess.Popen([os.environ["POOLSTAT"], *map(str, words)], stdin=subprocess.DEVNULL, stdout=follower,
                               env=environment)
    os.close(follower)
    text = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(leader)
    expect(process.wait(timeout=20), 0, "exit code")
    return text.decode().replace("\r\n", "\n")


@case
def it_fits_the_terminal_and_has_colours_there():
    with one_guest() as (folder, started):
        for columns, cells, addresses in ((200, 64, True), (94, 64, True), (93, 64, False), (80, 64, False), (79, 64, False),
                                          (78, 32, False), (40, 16, False), (20, 4, False)):
            text = on_a_terminal(columns, "map", "--classes", started.pid, folder=folder)
            plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
            widths = [len(line) for line in plain.splitlines() if re.search(r"MiB +\d+%", line)]
            if max(widths) > columns:
                raise AssertionError(f"{columns} columns: a line of {max(widths)}\n{plain}")
            expect(("ADDRESS" in plain, "0x7f00" in plain), (addresses, addresses), f"addresses in {columns} columns")
            expect_in("L" * cells + "\n", plain)
            expect("L" * (cells + 1) in plain, False, f"{columns} columns: more than {cells} cells")
            expect_in("\x1b[44;97mL", text)  # white on blue
            expect_in("\x1b[0m\n", text)
        plain = on_a_terminal(120, "map", started.pid, folder=folder, NO_COLOR="1")
        expect("\x1b" in plain, False, "colours with NO_COLOR")
        coloured = poolstat("map", "--color=always", started.pid, folder=folder).out
        expect_in("\x1b[44;97m" + "L" * 32 + "\x1b[0m\x1b[43;30m" + "W" * 32 + "\x1b[0m\n", coloured)


@case
def plain_numbers_keep_their_columns():
    with one_guest() as (folder, started):
        shown = poolstat("map", "--bytes", started.pid, folder=folder).out
        expect_in(f" 0x7f0000000000 33554432 100% {LIVE}\n", shown)


def parsed(text):
    picture = xml.dom.minidom.parseString(text)
    expect(picture.documentElement.tagName, "svg")
    return picture


@case
def svg_draws_the_same():
    for words in ([], ["hostile"], ["unmapped"], ["bare"]):
        with one_guest(*words) as (folder, started):
            file = folder / "map.svg"
            for extra in ([], ["--classes"]):
                shown = poolstat("map", "--svg", file, *extra, started.pid, folder=folder)
                expect((shown.code, shown.out, shown.err), (0, "", ""), f"{words} {extra}")
                text = file.read_text(encoding="utf-8")
                picture = parsed(text)
                for part in ("<script", "href", "url(", "@import", "\x1b"):
                    expect(part in text, False, part)
                expect(sorted(path.name for path in folder.iterdir()), sorted(["map.svg", started.path.name]))
                titles = [node.firstChild.data for node in picture.getElementsByTagName("title")]
                expect_in("Device memory of ", titles[0])
                if words == ["hostile"]:
                    expect_in(r"Device memory of a\x1b[31m\x0a" + '"' + r"\\", titles[0])
                if words:
                    continue
                expect_in("0x7f0000000000 to 0x7f0002000000 (32.0 MiB)\nlive: all\nblocks that begin here: 1\n"
                          "most belongs to a block of up to 16.0 MiB", titles)
                expect_in("0x7f00045e0000 to 0x7f0004600000 (128 KiB)\nidle: about 100 KiB\nfixed: about 27.6 KiB\n"
                          "blocks that begin here: 255 or more\nmost belongs to a block of up to 8.00 MiB", titles)
                texts = [node.firstChild.data for node in picture.getElementsByTagName("text") if node.firstChild]
                for part in ("0x7f0002000000   16.0 MiB", "and 1 more segment, 8.00 MiB, without a row", "waiting",
                             "no segments", "f" if extra else "L"):
                    if part not in texts:
                        raise AssertionError(f"no {part!r} in {texts}")
                # Each row is covered, from left to right: of the cells that stand on the bottom.
                for y in {rect.getAttribute("y") for rect in picture.getElementsByTagName("rect")
                          if rect.getAttribute("class") == "b"}:
                    bottom = [rect for group in picture.getElementsByTagName("g") for rect in
                              group.getElementsByTagName("rect")[:1]
                              if abs(float(rect.getAttribute("y")) + float(rect.getAttribute("height")) - float(y) - 20) < 0.01]
                    expect(sum(int(rect.getAttribute("width")) for rect in bottom), 64 * 13, f"width at {y}")


@case
def svg_takes_the_place_of_a_file_and_writes_through_links_and_pipes():
    with one_guest() as (folder, started), folder_of_segments() as other:
        file, link, missing = other / "map.svg", other / "link.svg", other / "none" / "map.svg"
        file.write_text("what was there before " * 10000)
        file.chmod(0o600)
        link.symlink_to(file)
        expect(poolstat("map", "--svg", link, started.pid, folder=folder, umask=0o027).code, 0)
        parsed(file.read_text())
        expect((link.is_symlink(), stat.S_IMODE(file.stat().st_mode)), (True, 0o640))
        expect(sorted(path.name for path in other.iterdir()), ["link.svg", "map.svg"])
        parsed(poolstat("map", "--svg", "-", started.pid, folder=folder).out)
        parsed(poolstat("map", "--svg", "/dev/stdout", started.pid, folder=folder).out)
        for name in (missing, other):
            refused = poolstat("map", "--svg", name, started.pid, folder=folder)
            expect((refused.code, refused.out), (125, ""), f"{name}")
            expect_in(f"cannot write {name}: ", refused.err)
        full = poolstat("map", "--svg", "/dev/full", started.pid, folder=folder)
        expect(full.code, 125)
        expect_in("cannot write /dev/full: No space left on device", full.err)
        both = document("map", "--svg", file, started.pid, folder=folder)
        expect(both["error"], None)
        parsed(file.read_text())


main()

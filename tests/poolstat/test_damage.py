# SPDX-License-Identifier: MIT
"""Segments that are cut short, garbled, hostile or changing: a message and code 4, never a crash or a hang."""
import contextlib
import json
import os
import random
import re
import struct
import threading

from common import document, expect, expect_in, guest, one_guest, poolstat
from tap import case, main

# Offsets in the header that the layout fixes: magic 0, version 8, header_bytes 12, total_bytes 16, pid 24, start_ticks 32,
# pid_namespace 40.
VERSION, HEADER_BYTES, TOTAL_BYTES, PID, START, NAMESPACE = 8, 12, 16, 24, 32, 40
SECTIONS = (192, 208, 224, 240, 528, 544)  # config, pools, cells, events, fixed, map: offset, count, stride, reserved each


@contextlib.contextmanager
def image(*words):
    """A live process, and the bytes of its segment, to be damaged and written back with `put`."""
    with one_guest(*words) as (folder, started):
        good = started.path.read_bytes()

        def put(data):
            # Not in place: the guest has the file mapped.
            other = folder / "other"
            other.write_bytes(data)
            other.replace(started.path)

        yield folder, started, good, put


def patched(data, offset, form, value):
    copy = bytearray(data)
    struct.pack_into(form, copy, offset, value)
    return bytes(copy)


def expect_damaged(folder, pid, why):
    table = poolstat(folder=folder)
    expect((table.code, table.out), (4, ""), f"the table ({table.err.strip()})")
    expect_in(why, table.err)
    listed = document(folder=folder, code=4)
    expect((listed["processes"], listed["error"]["code"], len(listed["problems"])), ([], 4, 1))
    expect_in(why, listed["problems"][0]["message"])
    shown = document("show", pid, folder=folder, code=4)
    expect(shown["error"]["code"], 4)
    expect_in(why, shown["error"]["message"])


@case
def sections_lie_where_these_tests_think():
    with image() as (folder, started, good, put):
        expect(good[:8], b"POOLCUDA")
        expect(struct.unpack_from("=I", good, PID)[0], started.pid)
        expect(struct.unpack_from("=Q", good, TOTAL_BYTES)[0], len(good))
        offset, count, stride, _ = struct.unpack_from("=IIII", good, SECTIONS[0])
        expect((offset, count, stride), (struct.unpack_from("=I", good, HEADER_BYTES)[0], 4, 128))


@case
def other_version_is_refused():
    with one_guest("other-version") as (folder, started):
        expect_damaged(folder, started.pid, "layout version 3, and this poolstat reads version 2")


@case
def other_magic_is_refused():
    with one_guest("other-magic") as (folder, started):
        expect_damaged(folder, started.pid, "does not begin with POOLCUDA")


@case
def segment_that_is_never_completed_is_refused():
    with one_guest("starting") as (folder, started):
        expect_damaged(folder, started.pid, "never completed")


@case
def segment_that_is_just_being_completed_is_waited_for():
    with one_guest("remade") as (folder, started):
        shown = sum(poolstat("show", started.pid, folder=folder).code == 0 for _ in range(60))
        if shown < 50:
            raise AssertionError(f"only {shown} of 60 looks found it completed")


@case
def segment_cut_at_any_length_is_refused():
    with image() as (folder, started, good, put):
        lengths = list(range(0, 1024, 61)) + list(range(1024, len(good), 1777)) + [len(good) - 1]
        lengths += [struct.unpack_from("=I", good, HEADER_BYTES)[0] + more for more in (-1, 0)]
        for length in lengths:
            put(good[:length])
            result = poolstat("show", started.pid, folder=folder)
            expect((result.code, result.out), (4, ""), f"{length} bytes")
            expect_in("is empty" if length == 0 else "cut short", result.err)
        put(good)
        expect(poolstat("show", started.pid, folder=folder).code, 0, "whole again")
        put(good + b"\xff" * 100000)
        expect(poolstat("show", started.pid, folder=folder).code, 0, "with more behind it")


@case
def impossible_sections_are_refused():
    with image() as (folder, started, good, put):
        for section, at in enumerate(SECTIONS):
            offset, count, stride, _ = struct.unpack_from("=IIII", good, at)
            for values in ((offset, 0xFFFFFFFF, stride), (offset, count, 0xFFFFFFC0), (0xFFFFFFC0, count, stride),
                           (0xFFFFFFC0, 0xFFFFFFFF, 0xFFFFFFC0), (offset + 1, count, stride),
                           (offset, count, stride + 1), (offset, count, 0), (offset, count, stride - 64), (0, count, stride),
                           (64, count, stride), (len(good), 1, stride), (offset, 0x08000000, stride),
                           (struct.unpack_from("=I", good, SECTIONS[(section + 1) % len(SECTIONS)])[0], count, stride)):
                put(patched(good, at, "=12s", struct.pack("=III", *values)))
                result = poolstat("show", started.pid, folder=folder)
                expect((result.code, result.out), (4, ""), f"section {section} as {values}")
                expect_in("section", result.err)


@case
def sections_without_records_are_fine():
    with image() as (folder, started, good, put):
        for at in SECTIONS:
            good = patched(good, at, "=12s", struct.pack("=III", 0, 0, 0))
            put(good)
            expect(poolstat("show", started.pid, folder=folder).code, 0, f"without the section at {at}")
        process = document("show", started.pid, folder=folder)["process"]
        expect([process[name] for name in ("configuration", "pools", "events")], [[], [], []])


@case
def impossible_sizes_and_states_are_refused():
    with image() as (folder, started, good, put):
        for offset, form, value in ((HEADER_BYTES, "=I", 0), (HEADER_BYTES, "=I", 64), (HEADER_BYTES, "=I", 2**32 - 1),
                                    (TOTAL_BYTES, "=Q", 0), (TOTAL_BYTES, "=Q", 2**64 - 1),
                                    (TOTAL_BYTES, "=Q", 2**20), (TOTAL_BYTES, "=Q", len(good) + 1),
                                    (PID, "=I", 1), (START, "=Q", 1)):
            put(patched(good, offset, form, value))
            result = poolstat(folder=folder)
            expect((result.code, result.out), (4, ""), f"{value} at {offset}")
        put(patched(good + bytes(2**20 - len(good)), TOTAL_BYTES, "=Q", 2**20))
        expect_damaged(folder, started.pid, "its sizes")  # the bytes are there, but more than a segment may have


@case
def segment_of_another_pid_namespace_is_another_processs():
    with image() as (folder, started, good, put):
        namespace = struct.unpack_from("=Q", good, NAMESPACE)[0]
        expect(namespace, os.stat(f"/proc/{started.pid}/ns/pid").st_ino)
        put(patched(good, NAMESPACE, "=Q", namespace + 1))
        expect(poolstat(folder=folder).code, 1, "code of the table")
        put(patched(good, NAMESPACE, "=Q", 0))  # not known
        expect(poolstat(folder=folder).code, 0, "code of the table")


@case
def damaged_segment_does_not_hide_the_others():
    with image() as (folder, started, good, put), guest(folder) as other:
        put(good[:500])
        table = poolstat(folder=folder)
        expect((table.code, len(table.out.splitlines())), (4, 3), "code, lines")
        expect_in(f"process {started.pid}: the segment is cut short", table.err)
        listed = document(folder=folder, code=4)
        expect([process["pid"] for process in listed["processes"]], [other.pid])
        expect(poolstat("show", other.pid, folder=folder).code, 0, "show of the other one")


@case
def damaged_segment_of_an_ended_process_is_passed_over():
    with image() as (folder, started, good, put):
        put(good[:500])
        started.process.kill()
        started.process.wait()
        expect(poolstat(folder=folder).code, 1)


def mutant(good, generator):
    data = bytearray(good)
    values = [0, 1, 2, 63, 64, 65, 2**31 - 1, 2**31, 2**32 - 64, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
    for _ in range(generator.choice([1, 1, 1, 2, 4, 16])):
        # Half of the damage where it hurts most: in the header.
        reach = 512 if generator.random() < 0.5 else len(data)
        at = generator.randrange(reach)
        kind = generator.randrange(5)
        if kind == 0:
            data[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            data[at] = generator.randrange(256)
        elif kind == 2:
            struct.pack_into("=I", data, min(at // 4 * 4, len(data) - 4), generator.choice(values) % 2**32)
        elif kind == 3:
            struct.pack_into("=Q", data, min(at // 8 * 8, len(data) - 8), generator.choice(values))
        else:
            length = min(generator.randrange(1, 600), len(data) - at)
            data[at:at + length] = generator.randbytes(length)
    if generator.random() < 0.05:
        del data[generator.randrange(len(data)):]
    return bytes(data)


def try_mutants(first, last):
    codes = set()
    with image() as (folder, started, good, put):
        for number in range(first, last):
            generator = random.Random(number)
            put(mutant(good, generator))
            arguments = [[], ["--json"], ["show", str(started.pid)], ["--json", "show", str(started.pid)]][number % 4]
            result = poolstat(*arguments, folder=folder)
            if result.code not in (0, 1, 4, 5):
                raise AssertionError(f"mutant {number}: {arguments} answered {result.code}: {result.err}")
            if (result.code == 0) != (result.err == ""):
                raise AssertionError(f"mutant {number}: {arguments} answered {result.code} and said {result.err!r}")
            if "--json" in arguments:
                json.loads(result.out)
            if "-" in re.findall(r"(?<= )-(?=\d)", result.out):
                raise AssertionError(f"mutant {number}: a negative figure in {result.out}")
            codes.add(result.code)
    if not {0, 4} <= codes:
        raise AssertionError(f"all mutants answered {codes}: they are too mild or too rough")


@case
def mutants_1_to_1000_neither_crash_nor_hang():
    try_mutants(1, 1001)


@case
def mutants_1001_to_2000_neither_crash_nor_hang():
    try_mutants(1001, 2001)


@case
def segment_that_grows_and_shrinks_is_survived():
    with image() as (folder, started, good, put):
        put(good)
        stop = threading.Event()

        def change():
            generator = random.Random(1)
            with open(started.path, "r+b", buffering=0) as file:
                while not stop.is_set():
                    os.ftruncate(file.fileno(), generator.randrange(len(good) + 1))
                    os.pwrite(file.fileno(), good, 0)
                    os.ftruncate(file.fileno(), len(good) + generator.randrange(100000))

        changer = threading.Thread(target=change)
        changer.start()
        try:
            codes = {poolstat(*["show", str(started.pid)][:2 * (i % 2)], folder=folder).code for i in range(200)}
        finally:
            stop.set()
            changer.join()
        if not codes <= {0, 1, 4, 5}:
            raise AssertionError(f"codes {codes}")


main()

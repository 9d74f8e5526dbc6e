# SPDX-License-Identifier: MIT
"""Memory that processes share by handles (row 34), and marks on memory (row 22): always the right bytes, or a clear
error. Each process is guest_ipc.c, told what to do line by line."""
import glob
import os
import subprocess

from preload import built, environment, figures
from tap import case, main

SIZE = (1 << 20) + 100  # of most blocks: several share a segment; not a multiple of the pool's unit


class Process:
    def __init__(self, pool=True, variables=None):
        self.process = subprocess.Popen([built("hazard_ipc")], env=environment(pool, variables), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "0\n", self.process.stderr.read()

    def __enter__(self):
        return self

    def do(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"{line}: the process ended: {self.process.stderr.read()}"
        return answer.rstrip("\n")

    def ok(self, *lines):
        for line in lines:
            answer = self.do(line)
            assert answer == "0", f"{line}: {answer}, not 0"

    def block(self, name, value, size=SIZE):
        self.ok(f"alloc {name} {size}", f"write {name} {value}")

    def export(self, name, offset=0):
        code, _, handle = self.do(f"export {name} {offset}").partition(" ")
        assert code == "0", f"export {name}: {code}"
        return handle

    def reads(self, name, value, offset=0, size=SIZE):
        answer = self.do(f"read {name} {offset} {size}")
        assert answer == f"0 same {value}", f"read {name}: {answer}, not the bytes {value}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def figures(self):
        return figures(self.process.pid)

    def records(self):
        """Paths of its files of records that are open."""
        links = [os.readlink(link) for link in glob.glob(f"/proc/{self.process.pid}/fd/*")]
        return [link for link in links if link.startswith("/dev/shm/poolcuda-ipc-")]

    def __exit__(self, kind, *_):
        if self.process.poll() is None and kind is None:
            self.ok("exit")
        self.process.stdin.close()
        if kind is not None:
            self.process.kill()
        error = self.process.stderr.read()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        assert kind is not None or error == "", error


def exporter(**options):
    """With three blocks in one segment; the first one starts it."""
    process = Process(**options)
    for name, value in ("first", 11), ("second", 22), ("third", 33):
        process.block(name, value)
    return process


# ---- the protocols ----

@case
def hazard_34_every_protocol_opens_the_blocks_bytes():
    """As UCX does: any address of the block to cuIpcGetMemHandle, the offset from cuMemGetAddressRange. As tensorpipe and
    MPI libraries: the block's start and an offset from it. And without an offset."""
    for pooled in True, False:
        with exporter() as source, Process(pool=pooled) as sink:
            for name, value in ("first", 11), ("second", 22), ("third", 33):
                if not pooled and name != "first":
                    continue
                inside = 700
                code, back, size = source.do(f"range {name} {inside}").split()
                assert (code, -int(back), int(size)) == ("0", 0, SIZE), (back, size)
                handles = {source.export(name, inside), source.export(name), source.export(name, SIZE - 1)}
                assert len(handles) == 1, "one block has several handles"
                sink.ok(f"open {name} {handles.pop()}")
                sink.reads(name, value)
                sink.reads(name, value, inside, SIZE - inside)
            if pooled:
                sink.ok(f"write second 99 {SIZE}")
                source.reads("second", 99)
                for name, value in ("first", 11), ("third", 33):
                    source.reads(name, value)
            sink.ok("close first")


@case
def hazard_34_blocks_of_memory_reserved_ahead_are_opened_as_others():
    """There too the driver's handle is for a block where the driver's allocation begins, and no other's."""
    for variables in {"POOL_FIXED": f"{SIZE}B*4"}, {"POOL_PREALLOC_MB": "64"}, {"POOL_PREALLOC_MB": "6", "POOL_SEGMENT_MB": "2"}:
        for pooled in True, False:
            with exporter(variables=variables) as source, Process(pool=pooled) as sink:
                source.block("large", 44, 2 * SIZE)
                for name, value, size in ("first", 11, SIZE), ("second", 22, SIZE), ("large", 44, 2 * SIZE):
                    if not pooled and name != "first":
                        answer = sink.do(f"open {name} {source.export(name)}")
                        assert answer != "0" or name == "large", (variables, name)
                        continue
                    sink.ok(f"open {name} {source.export(name, 700)}")
                    sink.reads(name, value, size=size)


@case
def hazard_34_natively_all_of_it_works_without_the_pool():
    with exporter(pool=False) as source, Process(pool=False) as sink:
        for name, value in ("first", 11), ("second", 22), ("third", 33):
            sink.ok(f"open {name} {source.export(name, 50)}")
            sink.reads(name, value)
    with exporter(pool=False) as source, Process() as sink:
        sink.ok(f"open second {source.export('second')}")
        sink.reads("second", 22)
        sink.ok("close second")


@case
def hazard_34_without_the_pool_a_block_inside_a_segment_is_an_error():
    with exporter() as source, Process(pool=False) as sink:
        answer = sink.do(f"open second {source.export('second')}")
        assert answer in ("1", "400"), answer
    with exporter() as source, Process(variables={"POOL_ENABLE": "0"}) as sink:
        sink.ok(f"open second {source.export('second')}")  # the library is there, though it pools nothing
        sink.reads("second", 22)
        sink.ok("close second")


@case
def hazard_34_an_opened_block_is_described_as_a_block():
    native, pooled = [], []
    for pool, answers in (False, native), (True, pooled):
        with exporter(pool=pool) as source, Process(pool=pool) as sink:
            sink.ok(f"open second {source.export('second')}")
            for question in ("range second 0", f"range second {SIZE - 1}", "attributes second", "free second"):
                answers.append(sink.do(question))
            answers.append(source.do("attributes second"))
            answers.append(source.do("attributes first"))
            answers.append(sink.do("free second"))
    assert native == pooled, f"natively {native}, pooled {pooled}"


@case
def hazard_34_the_refusals_are_the_drivers():
    def answers(pool):
        with exporter(pool=pool) as source, Process(pool=pool) as sink:
            handle = source.export("second")
            yield "own", source.do(f"open mine {handle}")
            yield "unopened", sink.do("close nothing")
            sink.ok(f"open x {handle}", "close x")
            yield "closed twice", sink.do("close x")
            source.ok(f"async a {SIZE}")
            yield "async", source.do("export a 0").split()[0]
            source.ok("free second")
            yield "freed", sink.do(f"open y {handle}")
            if pool:
                for damage in 0, 17, 40, 120:
                    bad = handle[:damage] + ("0" if handle[damage] != "0" else "1") + handle[damage + 1:]
                    answer = sink.do(f"open z {bad}")
                    assert answer in ("1", "400"), f"damaged at {damage}: {answer}"
    native, pooled = dict(answers(False)), dict(answers(True))
    assert native == pooled, f"natively {native}, pooled {pooled}"


# ---- opened more than once, closed in any order ----

@case
def hazard_34_opened_twice_is_closed_twice_in_any_order():
    with exporter() as source, Process() as sink:
        second, third = source.export("second"), source.export("third")
        sink.ok(f"open a {second}", f"open b {third}", f"open c {second}", f"open d {third}")
        assert sink.do("same a c") == "yes" and sink.do("same b d") == "yes" and sink.do("same a b") == "no"
        sink.ok("close a")
        sink.reads("c", 22)
        sink.ok("close d")
        sink.reads("b", 33)
        sink.ok("close c")
        sink.reads("b", 33)
        sink.ok("close b")
        assert sink.do("close b") == "1"
        sink.ok(f"open a {second}")
        sink.reads("a", 22)
        sink.ok("close a")


# ---- what is open is given to nobody ----

def addresses_of_allocations(process, count, size=SIZE):
    """Addresses that are given out for `count` blocks; all are freed again."""
    names = [f"t{i}" for i in range(count)]
    process.ok(*[f"alloc {name} {size}" for name in names])
    found = [process.do(f"address {name}") for name in names]
    process.ok(*[f"free {name}" for name in names])
    return found


def is_used_again(process, address):
    """Exports are asked about at misses, so more is allocated than before."""
    return any(address in addresses_of_allocations(process, count) for count in (40, 60, 80, 100))


@case
def hazard_34_a_freed_block_is_kept_until_it_is_closed_everywhere():
    for variables in ({}, {"POOL_FREE": "event"}):
        for how in "free", "free_async":
            with exporter(variables=variables) as source, Process() as one, Process() as other:
                handle, address = source.export("second"), source.do("address second")
                one.ok(f"open x {handle}")
                other.ok(f"open x {handle}")
                source.ok(f"{how} second")
                assert address not in addresses_of_allocations(source, 40), "an opened block was given out again"
                one.reads("x", 22)
                assert Process.do(one, f"open y {handle}") == "1", "a freed block was opened"
                one.ok("close x")
                assert address not in addresses_of_allocations(source, 40), "one of two importers still has it"
                other.reads("x", 22)
                other.ok("close x")
                assert is_used_again(source, address), "a block that nobody has open is not used again"


@case
def hazard_34_an_importer_that_dies_has_closed():
    with exporter() as source:
        handle, address = source.export("second"), source.do("address second")
        sink = Process()
        sink.ok(f"open x {handle}", f"open y {handle}")
        source.ok("free second")
        assert address not in addresses_of_allocations(source, 40)
        sink.kill()
        assert is_used_again(source, address), "what a dead process had open is not used again"
        sink.process.stdin.close()
        sink.process.stdout.close()
        sink.process.stderr.close()


@case
def hazard_34_a_forked_child_of_the_importer_holds_nothing():
    with exporter() as source, Process() as sink:
        handle, address = source.export("second"), source.do("address second")
        sink.ok(f"open x {handle}", "fork")
        source.ok("free second")
        assert address not in addresses_of_allocations(source, 40)
        sink.ok("close x")
        assert is_used_again(source, address), "a child that never opened it keeps the block"
        sink.ok("child_ends")


@case
def hazard_34_an_exporter_that_dies_leaves_its_bytes_and_no_file():
    source = exporter()
    handle = source.export("second")
    path, = source.records()
    with Process() as sink:
        sink.ok(f"open x {handle}")
        source.kill()
        sink.reads("x", 22)
        assert sink.do(f"open y {handle}") == "1", "memory of a dead process was opened"
        sink.ok("close x")
        with exporter() as next_one:
            next_one.export("second")
            assert not os.path.exists(path), "the file of a dead process is still there"
    source.process.stdin.close()
    source.process.stdout.close()
    source.process.stderr.close()


@case
def hazard_34_the_records_are_the_owners_and_go_with_it():
    # A child that exits has none of the threads that the leak checker would stop.
    no_leaks = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    with exporter(variables={"ASAN_OPTIONS": no_leaks}) as source:
        source.export("first")
        assert not source.records(), "a file was made for the driver's own handle"
        source.export("second")
        path, = source.records()
        assert os.stat(path).st_mode & 0o777 == 0o600
        source.ok("fork", "child_ends", "child")
        assert os.path.exists(path), "the end of a child took its parent's records"
    assert not os.path.exists(path), "the records are still there after the end"


@case
def hazard_34_handles_last_as_long_as_their_block():
    with exporter() as source, Process() as sink:
        handle, address = source.export("second"), source.do("address second")
        assert source.export("second") == handle
        source.ok("free second")
        for _ in range(40):
            source.block("again", 77)
            if source.do("address again") == address:
                break
        assert source.do("address again") == address, "the block was not used again"
        fresh = source.export("again")
        assert fresh != handle
        assert sink.do(f"open old {handle}") == "1", "an old handle opened the next owner's block"
        sink.ok(f"open new {fresh}")
        sink.reads("new", 77)
        sink.ok("close new")


# ---- what the driver's handle opens ----

@case
def hazard_34_a_block_exported_by_the_drivers_handle_is_never_given_out_again():
    with exporter() as source, Process(pool=False) as sink:
        handle, address = source.export("first"), source.do("address first")
        sink.ok(f"open x {handle}")
        source.ok("free first")
        assert address not in addresses_of_allocations(source, 60), "its importers are unknown"
        sink.reads("x", 11)
        sink.ok("close x")
        assert address not in addresses_of_allocations(source, 60)
        reserved = source.figures()["reserved_bytes"]
        source.ok("free second")
        assert source.figures()["reserved_bytes"] == reserved
        source.ok("free third")
        assert source.figures()["reserved_bytes"] == reserved - (16 << 20), "its segment stays though it is wholly free"


@case
def hazard_34_exports_over_and_over_take_no_more_memory():
    with exporter() as source, Process() as sink:
        reserved = []
        for i in range(120):
            source.block("again", i % 250)
            sink.ok(f"open x {source.export('again')}")
            sink.reads("x", i % 250)
            source.ok("free again")
            sink.ok("close x")
            reserved.append(source.figures()["reserved_bytes"])
        assert reserved[-1] == reserved[0], reserved
        size = os.path.getsize(source.records()[0])
        assert size < 16384, f"the records grow: {size}"


@case
def hazard_34_a_reset_ends_the_handles():
    with exporter() as source, Process() as sink:
        handle = source.export("second")
        source.ok("reset")
        assert sink.do(f"open x {handle}") == "1"
        for name, value in ("first", 44), ("second", 55):
            source.block(name, value)
        assert sink.do(f"open x {handle}") == "1", "a handle outlived a reset"
        sink.ok(f"open x {source.export('second')}")
        sink.reads("x", 55)
        sink.ok("reset")  # which ends what was open
        address = source.do("address second")
        source.ok("free second")
        assert is_used_again(source, address), "an importer's reset closes nothing"


@case
def hazard_34_a_resets_records_are_used_again():
    with exporter() as source:
        for i in range(40):
            source.export("second")
            source.ok("reset")
            for name in "first", "second":
                source.block(name, i)
        size = os.path.getsize(source.records()[0])
        assert size < 1024, f"the records of what a reset took are kept: {size} bytes"


@case
def hazard_34_where_no_record_can_be_written_the_export_is_refused():
    with exporter() as source, Process() as sink:
        source.ok("no_files")
        assert source.do("export second 0").split()[0] == "1"
        sink.ok(f"open x {source.export('first')}")
        sink.reads("x", 11)
        sink.ok("close x")
        source.reads("second", 22)


# ---- SYNC_MEMOPS ----

@case
def hazard_22_a_mark_goes_with_the_last_block_that_asked_for_it():
    def sync(process, name):
        answer = process.do(f"attributes {name}").split()
        assert answer[0] == "0", answer
        return answer[-1]

    for pool in False, True:
        with exporter(pool=pool) as process:
            for name in "first", "second":
                process.ok(f"mark {name} 1")
            assert [sync(process, name) for name in ("first", "second", "third")] == ["1", "1", "0"], f"pool: {pool}"
            process.ok("free first")
            assert [sync(process, name) for name in ("second", "third")] == ["1", "0"], f"pool: {pool}"
            process.ok("mark second 0")
            assert sync(process, "second") == "0"
            process.ok("mark second 1", "free second", "mark third 1", "mark third 0")
            assert sync(process, "third") == "0", f"pool: {pool}"
            process.ok("alloc next 4096")
            assert sync(process, "next") == "0", "the next owner finds the mark"


@case
def hazard_22_marked_memory_is_used_again():
    for variables in ({}, {"POOL_FREE": "event"}):
        with exporter(variables=variables) as process:
            reserved = process.figures()["reserved_bytes"]
            for _ in range(1000):
                process.ok("alloc x 65536", "mark x 1", "free x")
            assert process.figures()["reserved_bytes"] == reserved, (process.figures()["reserved_bytes"], reserved)


main()

# SPDX-License-Identifier: MIT
"""Everything about one process: figures, sections, strings that nobody vouches for, and copies of a busy segment."""
import re

from common import (MIB, document, expect, expect_in, folder_of_segments, guest, one_guest, poolstat)
from tap import case, main


def select(found, wanted, what):
    expect({name: found[name] for name in wanted}, wanted, what)


@case
def pool_has_its_figures_and_what_follows_from_them():
    for words in ([], ["grown"]):
        with one_guest(*words) as (folder, started):
            process = document("show", started.pid, folder=folder)["process"]
            plain, later, empty = process["pools"]
            select(plain, {"pool": 1, "device": 0, "kind": "plain", "generation": 1, "context": "0xffff800000001000",
                           "limit_bytes": 4096 * MIB, "max_split_bytes": None, "device_total_bytes": 8192 * MIB,
                           "live_bytes": 40 * MIB, "requested_bytes": 36 * MIB, "reserved_bytes": 64 * MIB,
                           "idle_bytes": 16 * MIB, "waiting_bytes": 8 * MIB, "cached_bytes": 24 * MIB,
                           "stranded_bytes": 18 * MIB, "releasable_bytes": 6 * MIB, "allocs": 1000, "hits": 900,
                           "misses": 100, "frees": 960, "driver_ns": 2500000, "waits": 46, "splits": 21, "merges": 14,
                           "bad_frees": 2, "runtime_door": 1480, "driver_door": 480,
                           "alloc_live_bytes": 122 * MIB, "freed_live_bytes": 82 * MIB,
                           "alloc_requested_bytes": 110 * MIB, "freed_requested_bytes": 74 * MIB, "hit_rate": 0.9, "utilisation": 0.625,
                           "peak_utilisation": 0.75, "external_fragmentation": 0.25, "internal_fragmentation": 0.1,
                           "approximate": False}, f"pool 1 {words}")
            select(later, {"pool": 2, "kind": "async", "limit_bytes": None, "live_bytes": 8 * MIB, "hit_rate": 0.45,
                           "ordered_bytes": 20 * MIB, "waiting_bytes": 4 * MIB, "cached_bytes": 24 * MIB, "frees": 50,
                           "fences": 5, "miss_fences": 2, "stream_marks": 31, "proved_blocks": 17,
                           "external_fragmentation": 0.0}, "pool 2")
            select(empty, {"pool": 3, "device": 1, "hit_rate": None, "size_classes": [], "streams": []}, "pool 3")


@case
def fixed_sizes_and_what_preallocation_would_save_are_shown():
    first = {"size_bytes": 8 * MIB, "asked_blocks": 3, "blocks": 2, "in_use": 2, "peak_in_use": 2, "hits": 5, "misses": 1}
    second = {"size_bytes": 512, "asked_blocks": 1, "blocks": 1, "in_use": 1, "peak_in_use": 1, "hits": 70, "misses": 0}
    for words in ([], ["grown"]):
        with one_guest(*words) as (folder, started):
            plain, later, empty = document("show", started.pid, folder=folder)["process"]["pools"]
            expect((plain["fixed"], later["fixed"], empty["fixed"]), ([first, second], [], []), f"fixed sizes {words}")
            # The highest that was reserved, less what the fixed sizes have of it.
            expect(plain["advice"], {"prealloc_bytes": 64 * MIB, "driver_calls": 12, "driver_ns": 3400000})
            expect((later["advice"], empty["advice"]), (None, None))
            text = poolstat("show", started.pid, folder=folder).out
            for line in (r"POOL_PREALLOC_MB=64 would have saved 12 driver calls and 3\.40 ms\n",
                         r"Fixed sizes \(POOL_FIXED\)\n +SIZE +ASKED +BLOCKS +IN USE +PEAK +HITS +MISSES\n"
                         r" +8\.00 MiB +3 +2 +2 +2 +5 +1\n +512 B +1 +1 +1 +1 +70 +0\n"):
                if re.search(line, text) is None:
                    raise AssertionError(f"no {line!r} in\n{text}")


@case
def segment_of_a_release_without_fixed_sizes_has_none():
    with one_guest("old") as (folder, started):
        plain = document("show", started.pid, folder=folder)["process"]["pools"][0]
        expect((plain["fixed"], plain["advice"], plain["approximate"]), ([], None, False))
        text = poolstat("show", started.pid, folder=folder).out
        expect(("would have saved" in text, "Fixed sizes" in text), (False, False))


@case
def classes_latencies_and_streams_are_listed():
    with one_guest() as (folder, started):
        pool = document("show", started.pid, folder=folder)["process"]["pools"][0]
        small, streams, cached, last = pool["size_classes"]
        expect(small, {"class_bytes": 512, "live_bytes": 5120, "cached_bytes": 0, "allocs": 600, "frees": 590,
                       "hits": 540, "hit_rate": 0.9})
        select(streams, {"class_bytes": 8 * MIB, "live_bytes": 8 * MIB, "cached_bytes": 0, "allocs": 200}, "of stream 7")
        # Of several cells, and of the record.
        expect(cached, {"class_bytes": 16 * MIB, "live_bytes": 32 * MIB - 5120, "cached_bytes": 24 * MIB, "allocs": 199,
                        "frees": 170, "hits": 179, "hit_rate": 0.899497})
        select(last, {"class_bytes": None, "allocs": 1, "hits": 1}, "last class")
        later = document("show", started.pid, folder=folder)["process"]["pools"][1]
        expect([(each["class_bytes"], each["live_bytes"], each["cached_bytes"]) for each in later["size_classes"]],
               [(2 * MIB, 8 * MIB, 7 * MIB)], "kept by streams alone")
        expect(pool["latency"], [
            {"at_least_ns": 256, "below_ns": 512, "hit_samples": 20, "misses": 0},
            {"at_least_ns": 512, "below_ns": 1024, "hit_samples": 5, "misses": 0},
            {"at_least_ns": 131072, "below_ns": 262144, "hit_samples": 0, "misses": 100},
            {"at_least_ns": 2147483648, "below_ns": None, "hit_samples": 0, "misses": 1}])
        none, seven = pool["streams"]
        # Of two cells.
        select(none, {"stream": "none", "stream_id": "0x0", "allocs": 800, "hits": 720, "live_bytes": 32 * MIB, "requested_bytes": 30 * MIB,
                      "hit_rate": 0.9, "runtime_door": 1080, "driver_door": 480}, "no stream")
        table = poolstat("show", started.pid, folder=folder).out.split("  Streams, by where")[1].split("Pool 2: ")[0]
        expect([line.split()[0] for line in table.splitlines()[2:] if line], ["none", "7"], "rows")
        select(seven, {"stream": "7", "stream_id": "0x7", "allocs": 200, "frees": 200, "live_bytes": 8 * MIB, "requested_bytes": 6 * MIB},
               "stream 7")


@case
def streams_have_names_by_their_kind():
    with one_guest() as (folder, started):
        pool = document("show", started.pid, folder=folder)["process"]["pools"][1]
        expect([(stream["stream"], stream["stream_id"]) for stream in pool["streams"]],
               [("none", "0x0"), ("legacy", "0x2000000000000001"), ("legacy, context 2", "0x2000000000000002"),
                ("thread 3", "0x4000000003000001"), ("9", "0x9"), ("11", "0xb"), ("driver 12", "0x800000000000000c")])
        select(pool["streams"][3], {"allocs": 20, "hits": 10, "frees": 10, "live_bytes": MIB, "hit_rate": 0.5}, "thread 3")
        out = poolstat("show", started.pid, folder=folder).out
        table = out[out.index("Pool 2: "):out.index("Pool 3: ")].split("  Streams, by where")[1].splitlines()[1:]
        expect([re.split("  +", line.strip()) for line in table if line], [
            ["STREAM", "LIVE", "REQUESTED", "ALLOCS", "HITS", "FREES", "HIT RATE"],
            ["legacy", "1.00 MiB", "1.00 MiB", "20", "10", "10", "50.0%"],
            ["legacy, context 2", "1.00 MiB", "1.00 MiB", "10", "5", "5", "50.0%"],
            ["thread 3", "1.00 MiB", "1.00 MiB", "20", "10", "10", "50.0%"],
            ["9", "3.00 MiB", "3.00 MiB", "30", "10", "15", "33.3%"],
            ["11", "1.00 MiB", "1.00 MiB", "10", "5", "5", "50.0%"],
            ["driver 12", "1.00 MiB", "1.00 MiB", "10", "5", "5", "50.0%"]])


@case
def the_handle_of_a_pool_is_its_contexts_or_its_memory_pools():
    with one_guest() as (folder, started):
        plain, later, _ = document("show", started.pid, folder=folder)["process"]["pools"]
        expect((plain["context"], plain["memory_pool"]), ("0xffff800000001000", None))
        expect((later["context"], later["memory_pool"]), (None, "0xffff800000001001"))
        out = poolstat("show", started.pid, folder=folder).out
        for line in (r"kind +async  of its segments: plain \(cudaMalloc\) or async \(cudaMallocAsync\)",
                     r"context +0xffff800000001000  CUDA context", r"memory pool +0xffff800000001001  the driver's"):
            expect(len(re.findall(line, out)), 1, line)


@case
def configuration_and_pass_throughs_are_listed():
    with one_guest() as (folder, started):
        process = document("show", started.pid, folder=folder)["process"]
        expect(process["configuration"], [
            {"name": "POOL_ENABLE", "value": "1", "from_environment": False},
            {"name": "POOL_SEGMENT_MB", "value": "32 MiB", "from_environment": True},
            {"name": "POOL_LIMIT_MB", "value": "none", "from_environment": False}])
        expect({name: count for name, count in process["pass_through"].items() if count}, {"async": 12, "foreign": 3})
        select(process, {"driver_version": 13000, "library_version": "0.1.0", "runtime_only": False,
                         "proc_address_lookups": 440, "symbols_hooked": 21}, "process")
        if not 2e9 <= process["age_ns"] < 60e9 or not 9e8 < process["age_ns"] - process["heartbeat_age_ns"] < 11e8:
            raise AssertionError(f"begun 2 s ago, alive 1 s ago: {process['age_ns']}, {process['heartbeat_age_ns']} ns")


@case
def events_are_listed_newest_last():
    with one_guest() as (folder, started):
        growth, oom, fallback = document("show", started.pid, folder=folder)["process"]["events"]
        select(growth, {"sequence": 1, "type": "growth", "device": 0, "pool": 1, "requested_bytes": 32 * MIB,
                        "device_free_bytes": None, "reason": None, "driver_code": None}, "growth")
        select(oom, {"sequence": 2, "type": "oom", "reason": "limit", "requested_bytes": 100 * MIB,
                     "live_bytes": 40 * MIB, "device_free_bytes": 1024 * MIB, "external_fragmentation": 0.5}, "oom")
        select(fallback, {"sequence": 3, "type": "fallback", "device": None, "pool": None, "driver_code": 801},
               "fallback")
        for event in (growth, oom, fallback):
            if not 1e9 <= event["age_ns"] < 60e9:
                raise AssertionError(f"an event of a second ago is {event['age_ns']} ns old")


@case
def ring_of_events_shows_the_last_ones():
    with one_guest("ring") as (folder, started):
        events = document("show", started.pid, folder=folder)["process"]["events"]
        expect([event["sequence"] for event in events], list(range(9, 25)))


@case
def text_has_sections_with_units_and_help():
    with one_guest() as (folder, started):
        result = poolstat("show", started.pid, folder=folder)
        expect(result.code, 0, result.err)
        expect(result.out.splitlines()[:2], ["synthetic", str(started.path)])
        for section in ("Process", "Configuration in force", "Pool 1: device 0, plain segments", "Pool 2: device 0, "
                        "async segments", "Derived", "Figures", "Counters", "Size classes", "Latency", "Streams",
                        "Calls that went to the driver untouched", "Events, newest last"):
            expect_in(section, result.out)
        for line in (r"pid +%d  process id" % started.pid, r"live +40\.0 MiB  rounded size of the blocks",
                     r"hit rate +90\.0%  hits / allocs", r"peak utilisation +75\.0%", r"stranded +18\.0 MiB",
                     r"driver +2\.50 ms  time spent", r"POOL_SEGMENT_MB +32 MiB  set +size of the segments",
                     r"POOL_ENABLE +1  default", r"driver version +13\.0", r"async +12  stream-ordered",
                     r"limit +4\.00 GiB  most that may be reserved", r"uuid +GPU-a0a1a2a3-a4a5-",
                     r"2 +1\.\d\d s  oom +1 +100 MiB +40\.0 MiB +24\.0 MiB +12\.0 MiB  limit +1\.00 GiB +50\.0% +0"):
            if re.search(line, result.out) is None:
                raise AssertionError(f"no line {line!r} in\n{result.out}")


@case
def every_name_of_the_documents_is_in_the_glossary():
    def names(value):
        for item in value if isinstance(value, list) else []:
            yield from names(item)
        for name, item in value.items() if isinstance(value, dict) else []:
            yield name
            yield from names(item)

    with one_guest() as (folder, started):
        glossary = {line.split()[0] for line in poolstat("help", "fields", folder=folder).out.splitlines()
                    if line.startswith("  ")}
        used = set(names(document("show", started.pid, folder=folder))) | set(names(document(folder=folder)))
        started.path.write_bytes(b"x" * 4096)
        used |= set(names(document(folder=folder, code=4)))
        expect(sorted(used - glossary), [], "names without an explanation")


@case
def strings_are_escaped():
    with one_guest("hostile") as (folder, started):
        name = r'a\x1b[31m\x0a"\\\xffé\u{202e}\u{85}' + "x" * 47
        process = document("show", started.pid, folder=folder)["process"]
        expect(process["command"], name)
        expect(process["configuration"][3], {"name": "N" * 31, "value": r"\x1b" * 87, "from_environment": False})
        for arguments in ([], ["show", started.pid], ["--json"], ["--json", "show", started.pid]):
            out = poolstat(*arguments, folder=folder).out
            bad = [character for character in out if character != "\n" and not character.isprintable()]
            expect(bad, [], f"characters that do something to a terminal, in {arguments}")


@case
def record_in_the_midst_of_a_write_is_approximate():
    with one_guest("odd") as (folder, started):
        [process] = document(folder=folder)["processes"]
        expect([device["approximate"] for device in process["devices"]], [True, False], "approximate")
        expect(process["devices"][0]["live_bytes"], 48 * MIB)
        rows = [line.split() for line in poolstat(folder=folder).out.splitlines()]
        expect([row[3] for row in rows], ["LIVE", "~", "0"], "marks in the table")
        expect_in("approximate", poolstat("show", started.pid, folder=folder).out)


@case
def cell_in_the_midst_of_a_write_is_approximate():
    with one_guest("odd-cell") as (folder, started):
        pools = document("show", started.pid, folder=folder)["process"]["pools"]
        expect([pool["approximate"] for pool in pools], [True, False, False], "approximate")
        expect(pools[0]["live_bytes"], 40 * MIB)


@case
def no_peak_is_below_what_is():
    peaks = {"peak_requested_bytes": 36 * MIB, "peak_live_bytes": 40 * MIB, "peak_reserved_bytes": 64 * MIB,
             "peak_cached_bytes": 24 * MIB, "peak_idle_bytes": 16 * MIB, "peak_ordered_bytes": 0, "peak_waiting_bytes": 8 * MIB}
    with one_guest("lagging") as (folder, started):
        select(document("show", started.pid, folder=folder)["process"]["pools"][0], peaks, "as they are")
        text = poolstat("show", started.pid, folder=folder).out
        expect([re.search(rf"\n +{name} +(\S+ \S+)", text).group(1) for name in ("peak live", "peak idle")],
               ["40.0 MiB", "16.0 MiB"], "in the table")
        device = document(folder=folder)["processes"][0]["devices"][0]
        select(device, {"peak_live_bytes": 48 * MIB, "peak_idle_bytes": 16 * MIB}, "of the device")
    peaks |= {"peak_live_bytes": 60 * MIB, "peak_reserved_bytes": 80 * MIB, "peak_idle_bytes": 30 * MIB}
    with one_guest() as (folder, started):
        select(document("show", started.pid, folder=folder)["process"]["pools"][0], peaks, "as they were noted")


@case
def accepted_copies_of_a_busy_segment_add_up():
    accepted_copies_add_up("busy", 200)


@case
def accepted_copies_have_the_cells_that_joined():
    accepted_copies_add_up("joining", 200)


def accepted_copies_add_up(word, enough):
    with one_guest(word) as (folder, started):
        # How many are accepted depends on when the writer is interrupted: it goes on until enough were.
        accepted = copies = 0
        while accepted < enough and copies < 100 * enough:
            copies += 1
            pool = document("show", started.pid, folder=folder)["process"]["pools"][0]
            if not pool["approximate"]:
                accepted += 1
                expect(pool["live_bytes"] + pool["cached_bytes"], pool["reserved_bytes"], "live + cached, and reserved")
        if accepted < enough:
            raise AssertionError(f"only {accepted} of {copies} copies were accepted")


@case
def copies_of_a_torn_segment_are_never_negative():
    with one_guest("torn") as (folder, started):
        for _ in range(100):
            pool = document("show", started.pid, folder=folder)["process"]["pools"][0]
            expect(pool["approximate"], True, "approximate")
            # The writer allocates before it frees; frees that were read after allocations would make live less than 40.
            if not 40 * MIB <= pool["live_bytes"] or pool["alloc_live_bytes"] < pool["freed_live_bytes"]:
                raise AssertionError(f"live {pool['live_bytes']} is less than was ever live")
            if not pool["requested_bytes"] <= pool["live_bytes"] <= pool["peak_live_bytes"] == 60 * MIB:
                raise AssertionError(f"requested {pool['requested_bytes']}, live {pool['live_bytes']}, peak {pool['peak_live_bytes']}")


@case
def more_freed_than_allocated_is_not_negative():
    with one_guest("negative") as (folder, started):
        pool = document("show", started.pid, folder=folder)["process"]["pools"][0]
        expect((pool["live_bytes"], pool["approximate"]), (0, True))


@case
def more_in_a_cell_than_it_holds_is_not_negative():
    with one_guest("unheld") as (folder, started):
        pool = document("show", started.pid, folder=folder)["process"]["pools"][0]
        expect((pool["idle_bytes"], pool["waiting_bytes"], pool["approximate"]), (12 * MIB, 12 * MIB, True))


@case
def more_held_than_reserved_is_approximate():
    for what in "retired", "exported", "prealloc_unused", "fixed_free":
        with one_guest(what) as (folder, started):
            pool = document("show", started.pid, folder=folder)["process"]["pools"][0]
            expect((pool[f"{what}_bytes"], pool["approximate"]), (MIB, True))


@case
def process_without_a_segment_answers_1_and_no_process_5():
    with folder_of_segments() as folder, guest(folder) as started:
        expect(document("show", 1, folder=folder, code=1)["error"]["code"], 1)
        started.process.kill()
        started.process.wait()
        started.path.unlink()
        expect(document("show", started.pid, folder=folder, code=5)["error"]["code"], 5)


main()

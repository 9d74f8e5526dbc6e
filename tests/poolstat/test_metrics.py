# SPDX-License-Identifier: MIT
"""The metrics that `serve` tells, and the dashboard that asks for them."""
import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import exposition
from common import MIB, document, expect, folder_of_segments, guest, one_guest
from serving import ask, metrics_of, new_scrape, scrape, serving
from tap import case, main, skip

DASHBOARD = Path(os.environ["DASHBOARD"])
NOT_METRICS = {"pool", "device", "generation", "device_total_bytes", "limit_bytes", "max_split_bytes", "advice"}
RATIOS = {"hit_rate", "utilisation", "peak_utilisation", "external_fragmentation", "internal_fragmentation"}


def show(folder, pid):
    return document("show", pid, folder=folder)["process"]


def metric_of(families, field):
    """The metric of a field of the JSON documents."""
    base = field.removesuffix("_bytes") if field.endswith("_bytes") else field.removesuffix("_ns")
    wanted = {"bytes": ("_bytes", "_bytes_total"), "ns": ("_seconds", "_seconds_total")}
    unit = field[len(base) + 1:]
    found = [name for name in (f"poolcuda_{base}{end}" for end in wanted.get(unit, ("", "_total"))) if name in families]
    expect(len(found), 1, f"metrics of {field}")
    return found[0], 1e9 if unit == "ns" else 1


@case
def every_figure_of_a_pool_is_a_metric():
    with one_guest() as (folder, started):
        families = metrics_of(folder)
        for pool in show(folder, started.pid)["pools"]:
            labels = {"pid": str(started.pid), "command": "synthetic", "pool": str(pool["pool"]), "kind": pool["kind"],
                      "gpu": str(pool["device"])}
            figures = {name: value for name, value in pool.items()
                       if type(value) is int and name not in NOT_METRICS | RATIOS}
            if len(figures) < 50:
                raise AssertionError(f"only {figures}")
            for field, value in figures.items():
                name, scale = metric_of(families, field)
                expect(exposition.values(families, name, **labels), [value / scale], f"{name} of {labels}")


@case
def ratios_can_be_had_from_metrics_and_are_none():
    with one_guest() as (folder, started):
        families = metrics_of(folder)
        expect([name for name in families if re.search("_rate|utilisation|fragmentation", name)], [])
        [device] = [device for device in document(folder=folder)["processes"][0]["devices"] if device["device"] == 0]
        total = {name: sum(exposition.values(families, f"poolcuda_{name}", gpu="0"))
                 for name in ("hits_total", "allocs_total", "live_bytes", "reserved_bytes")}
        expect(round(total["hits_total"] / total["allocs_total"], 6), device["hit_rate"])
        expect(total["live_bytes"] / total["reserved_bytes"], device["utilisation"])


@case
def histogram_of_sizes_is_that_of_the_size_classes():
    with one_guest() as (folder, started):
        families = metrics_of(folder)
        for pool in show(folder, started.pid)["pools"]:
            labels = {"pool": str(pool["pool"])}
            buckets = [sample for sample in families["poolcuda_alloc_size_bytes"].samples
                       if sample.name.endswith("_bucket") and labels.items() <= sample.labels.items()]
            expect(len(buckets), 16, "buckets")
            for bucket in buckets:
                bound = float(bucket.labels["le"])
                wanted = sum(of["allocs"] for of in pool["size_classes"] if (of["class_bytes"] or float("inf")) <= bound)
                expect(int(bucket.value), wanted, f"allocations of at most {bound}")
            expect(exposition.values(families, "poolcuda_alloc_size_bytes_sum", **labels), [pool["alloc_live_bytes"]])
            expect(exposition.values(families, "poolcuda_alloc_size_bytes_count", **labels), [pool["allocs"]])


@case
def histograms_of_latency_have_no_sum_that_nobody_knows():
    with one_guest() as (folder, started):
        families = metrics_of(folder)
        for name, field in (("hit", "hit_samples"), ("miss", "misses")):
            family = f"poolcuda_{name}_latency_seconds"
            expect([sample for sample in families[family].samples if sample.name.endswith("_sum")], [])
            [plain] = [pool for pool in show(folder, started.pid)["pools"] if pool["pool"] == 1]
            for bucket in families[family].samples:
                if bucket.labels["pool"] != "1" or not bucket.name.endswith("_bucket"):
                    continue
                bound = round(float(bucket.labels["le"]) * 1e9) if bucket.labels["le"] != "+Inf" else float("inf")
                # Whole nanoseconds: what is below 512 ns is at most 511 ns, and what takes 512 is more.
                expect(bound == float("inf") or (bound + 1).bit_count() == 1, True, f"bound {bound}")
                wanted = sum(of[field] for of in plain["latency"] if (of["below_ns"] or float("inf")) - 1 <= bound)
                expect(int(bucket.value), wanted, f"{name}s of at most {bound} ns")
        expect(exposition.values(families, "poolcuda_miss_latency_seconds_count", pool="1"), [101.0])


@case
def metrics_of_the_process_are_there():
    with folder_of_segments() as folder, guest(folder) as one, guest(folder, "stuck") as two:
        families = metrics_of(folder)
        pid = str(one.pid)
        [info] = [sample.labels for sample in families["poolcuda_process_info"].samples if sample.labels["pid"] == pid]
        expect(info, {"pid": pid, "command": "synthetic", "namespace_pid": pid, "uid": str(os.getuid()),
                      "library_version": "0.1.0", "cuda_driver": "13.0"})
        expect(exposition.values(families, "poolcuda_process_stuck", pid=pid), [0])
        expect(exposition.values(families, "poolcuda_process_stuck", pid=str(two.pid)), [1])
        expect(exposition.values(families, "poolcuda_process_in_driver_seconds", pid=pid), [0])
        [held] = exposition.values(families, "poolcuda_process_in_driver_seconds", pid=str(two.pid))
        expect(12 <= held < 60, True, f"time in the driver, {held}")
        expect(exposition.values(families, "poolcuda_pass_through_total", pid=pid, reason="async"), [12])
        expect(len(exposition.values(families, "poolcuda_pass_through_total", pid=pid)),
               len(show(folder, one.pid)["pass_through"]), "reasons")
        [created] = exposition.values(families, "poolcuda_process_created_timestamp_seconds", pid=pid)
        expect(round(created, 3), round(show(folder, one.pid)["created_unix_ns"] / 1e9, 3))
        [pool] = [sample.labels for sample in families["poolcuda_pool_info"].samples
                  if (sample.labels["pid"], sample.labels["pool"]) == (pid, "1")]
        expect((pool["uuid"], pool["pci"]), ("GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf", "0000:17:00.0"))
        expect(exposition.values(families, "poolcuda_limit_bytes", pid=pid), [4096 * MIB])
        expect(exposition.values(families, "poolcuda_gpu_memory_bytes", pid=pid), [8192 * MIB])


@case
def fixed_pools_have_metrics_by_size():
    with one_guest() as (folder, started):
        families = metrics_of(folder)
        [plain] = [pool for pool in show(folder, started.pid)["pools"] if pool["pool"] == 1]
        expect(len(plain["fixed"]), 2)
        for fixed in plain["fixed"]:
            size = str(fixed.pop("size_bytes"))
            for field, value in fixed.items():
                name, _ = metric_of(families, f"fixed_{field}")
                expect(exposition.values(families, name, pool="1", size_bytes=size), [value], f"{name} of {size}")


@case
def size_classes_and_streams_are_told_on_request_alone():
    with one_guest() as (folder, started):
        few, many = metrics_of(folder), metrics_of(folder, "--with", "size-classes,streams")
        expect([name for name in few if "size_class" in name or "stream_" in name and "marks" not in name], [])
        expect(set(few) < set(many), True, "families")
        for pool in show(folder, started.pid)["pools"]:
            for of in pool["size_classes"]:
                label = "+Inf" if of["class_bytes"] is None else str(of["class_bytes"])
                for field in ("live_bytes", "cached_bytes", "allocs", "frees", "hits"):
                    name, _ = metric_of(many, f"size_class_{field}")
                    expect(exposition.values(many, name, pool=str(pool["pool"]), class_bytes=label), [of[field]], name)
            for of in pool["streams"]:
                for field in ("allocs", "hits", "freed_requested_bytes"):
                    name, _ = metric_of(many, f"stream_{field}")
                    labels = {"pool": str(pool["pool"]), "stream": of["stream"], "stream_id": of["stream_id"]}
                    expect(exposition.values(many, name, **labels), [of[field]], f"{name} of {labels}")


@case
def exporter_tells_of_itself():
    with folder_of_segments() as folder, guest(folder), guest(folder, "other-version"):
        with serving(folder) as port:
            first, second = scrape(port), new_scrape(port)
        for state, count in (("seen", 1), ("damaged", 1), ("denied", 0), ("unseen", 0), ("duplicate", 0)):
            expect(exposition.values(first, "poolcuda_exporter_processes", state=state), [count], state)
        expect(exposition.values(first, "poolcuda_exporter_scrapes_total"), [1])
        expect(exposition.values(second, "poolcuda_exporter_scrapes_total"), [2])
        [seconds] = exposition.values(first, "poolcuda_exporter_scrape_duration_seconds")
        expect(0 < seconds < 5, True, f"duration, {seconds}")
        expect(len(first["poolcuda_exporter_build_info"].samples), 1)


@case
def nothing_on_the_pool_is_well_formed_too():
    with folder_of_segments() as folder:
        expect(exposition.values(metrics_of(folder), "poolcuda_exporter_processes", state="seen"), [0])


KINDS = ([], ["hostile"], ["bare"], ["torn"], ["busy"], ["joining"], ["negative"], ["unheld"], ["retired"], ["odd"],
         ["stuck"], ["old"], ["grown"], ["ended"], ["starting"], ["other-magic"], ["=a\"b\\c\nd{e=\"f\"} 1"])


@contextlib.contextmanager
def all_kinds(folder):
    with contextlib.ExitStack() as guests:
        yield [guests.enter_context(guest(folder, *words)) for words in KINDS]


@case
def whatever_is_in_a_segment_is_well_formed():
    with folder_of_segments() as folder, all_kinds(folder):
        families = metrics_of(folder, "--with", "size-classes,streams")
        expect(exposition.values(families, "poolcuda_exporter_processes", state="seen"), [len(KINDS) - 3])


@case
def promtool_has_nothing_to_say():
    if not shutil.which("promtool"):
        skip("no promtool (Debian: prometheus)")
    with folder_of_segments() as folder, all_kinds(folder):
        with serving(folder, "--with", "size-classes,streams") as port:
            text = ask(port, "/metrics")[2]
        done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, timeout=60)
        expect((done.returncode, done.stdout, done.stderr), (0, b"", b""), "promtool")


@case
def labels_have_the_command_as_json_has_it():
    names = ["plain", 'a"b', "a\\b", "a\nb", '"} 1\nevil_total{x="', "é", "\x1b[31m", "\u202e"]
    with folder_of_segments() as folder, contextlib.ExitStack() as guests:
        for name in names:
            guests.enter_context(guest(folder, f"={name}"))
        found = {sample.labels["pid"]: sample.labels["command"]
                 for sample in metrics_of(folder)["poolcuda_process_info"].samples}
        wanted = {str(process["pid"]): process["command"] for process in document(folder=folder)["processes"]}
        expect(found, wanted)
        expect(len(set(found.values())), len(names), "different commands")


def counters(families):
    """Also those of histograms."""
    return {(sample.name, *sorted(sample.labels.items())): float(sample.value) for family in families.values()
            if family.type != "gauge" for sample in family.samples}


def expect_no_fall(earlier, later):
    earlier, later = counters(earlier), counters(later)
    expect(set(earlier), set(later), "series")
    expect([key for key in earlier if later[key] < earlier[key]], [], "counters that fell")


@case
def counters_of_busy_processes_never_fall():
    with folder_of_segments() as folder, guest(folder, "torn"), guest(folder, "busy"), guest(folder, "odd-cell"):
        with serving(folder, "--with", "size-classes,streams") as port:
            last = scrape(port)
            for _ in range(8):
                last, before = new_scrape(port), last
                expect_no_fall(before, last)


def rewrite(path, *changes):
    """Replaces the first place of some neighbouring numbers of a segment."""
    data = bytearray(path.read_bytes())
    for old, new in changes:
        at = data.find(struct.pack(f"{len(old)}Q", *old))
        expect(at > 0, True, f"{old} stand in the segment")
        data[at:at + 8 * len(old)] = struct.pack(f"{len(new)}Q", *new)
    with open(path, "r+b") as file:
        file.write(data)


@case
def counters_that_fall_are_told_as_before():
    with one_guest() as (folder, started), serving(folder) as port:
        before = scrape(port)
        rewrite(started.path, ((21, 14, 2), (5, 3, 1)),  # splits, merges, bad_frees
                ((20, 5), (2, 1)),  # two buckets of hits
                ((600, 600 * 512, 590, 590 * 512, 60), (500, 500 * 512, 490, 490 * 512, 0)))  # a size class
        after = new_scrape(port)
        expect_no_fall(before, after)
        expect(exposition.values(after, "poolcuda_splits_total", pool="1"), [21])
        # Whoever begins anew sees what is there.
        expect(exposition.values(metrics_of(folder), "poolcuda_splits_total", pool="1"), [5])


@case
def garbage_is_told_as_nothing():
    with one_guest() as (folder, started), serving(folder, "--with", "size-classes,streams") as port:
        before = scrape(port)
        rewrite(started.path, ((21, 14, 2), (2**64 - 1, 2**63, 2**63 - 1)), ((20, 5), (2**62, 2**62)),
                ((600, 600 * 512, 590, 590 * 512, 60), (2**63, 2**64 - 1, 0, 0, 0)))
        after = new_scrape(port)
        for name in ("splits_total", "merges_total", "alloc_size_bytes_count", "hit_latency_seconds_count"):
            expect(len(exposition.values(before, f"poolcuda_{name}", pool="1")), 1, name)
            expect(exposition.values(after, f"poolcuda_{name}", pool="1"), [], name)
        expect(exposition.values(after, "poolcuda_bad_frees_total", pool="1"), [float(2**63 - 1)])
        expect(exposition.values(after, "poolcuda_alloc_size_bytes_count", pool="2"), [100])


@case
def second_segment_of_a_process_makes_no_second_series():
    with one_guest() as (folder, started):
        name = started.path.name.split("-")
        shutil.copy(started.path, started.path.with_name("-".join([name[0], "4711", *name[2:]])))
        shutil.copy(started.path, started.path.with_name("-".join([name[0], "4712", *name[2:]])))
        families = metrics_of(folder)
        expect(exposition.values(families, "poolcuda_exporter_processes", state="seen"), [1])
        expect(exposition.values(families, "poolcuda_exporter_processes", state="duplicate"), [2])


@case
def options_choose_processes_and_devices():
    with folder_of_segments() as folder, guest(folder) as one, guest(folder):
        families = metrics_of(folder, "-p", one.pid, "-g", "1")
        expect({sample.labels["pid"] for sample in families["poolcuda_process_info"].samples}, {str(one.pid)})
        expect({sample.labels["gpu"] for sample in families["poolcuda_live_bytes"].samples}, {"1"})
        with serving(folder, "-p", one.pid) as port:
            listed = json.loads(ask(port, "/api/processes")[2])["processes"]
            expect([process["pid"] for process in listed], [one.pid])


# ---- the dashboard

def expressions():
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return found + [variable["query"]["query"] for variable in dashboard["templating"]["list"]
                    if variable["type"] == "query"]


@case
def dashboard_names_metrics_and_labels_that_exist():
    with one_guest() as (folder, started):
        families = metrics_of(folder)
        names = {sample.name for family in families.values() for sample in family.samples} | set(families)
        labels = {label for family in families.values() for sample in family.samples for label in sample.labels}
        labels |= {"instance"}  # Prometheus adds it
        asked = expressions()
        expect(len(asked) > 40, True, f"only {len(asked)} expressions")
        for expression in asked:
            used = set(re.findall(r"\bpoolcuda_\w+", expression))
            expect(used - names, set(), f"metrics of {expression} that do not exist")
            expect(len(used) > 0, True, f"{expression} names no metric")
            groups = re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", expression)
            used = {label.strip() for group in groups for label in group.split(",")}
            used |= set(re.findall(r"[{,]\s*(\w+)=~?\"", expression))
            expect(used - labels, set(), f"labels of {expression} that do not exist")


@case
def promtool_understands_the_dashboard():
    if not shutil.which("promtool"):
        skip("no promtool (Debian: prometheus)")
    rules = []
    for number, expression in enumerate(expressions()):
        if expression.startswith("label_values("):
            continue
        for variable, value in (("$__rate_interval", "1m"), ("$__range", "1h"), ("$instance", ".*"),
                                ("$command", ".*"), ("$pid", ".*")):
            expression = expression.replace(variable, value)
        rules.append({"record": f"dashboard:{number}", "expr": expression})
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # YAML takes it
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, timeout=60)
        expect(done.returncode, 0, done.stdout.decode() + done.stderr.decode())


main()

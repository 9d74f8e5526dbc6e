# SPDX-License-Identifier: MIT
"""What scripts/bench.py measured: the bounds that are judged of it, and the tables that show it. Nothing here measures."""
ORDERS = ("LIFO", "FIFO", "random")
KIB, MIB = 1024, 1024 * 1024
FREES_A_FENCE, BYTES_A_FENCE = 64, 256 << 20


# ---- bounds ----

def worst_of(values, most):
    """Of (value, where): the one that is furthest on the wrong side. None where there is none."""
    known = [(value, where) for value, where in values if value is not None]
    return (max if most else min)(known, key=lambda pair: pair[0]) if known else None


def judge(what, bound, values, most=True, unit="", missing=None):
    """`values`: (value, where) of all that the bound is about. `missing`: why it cannot be judged as it should."""
    worst = worst_of(values, most)
    missing = missing or (None if worst else "not measured")
    holds = None
    if worst is not None:
        holds = worst[0] <= bound if most else worst[0] >= bound
        if holds and missing:
            holds = None  # what is missing may be worse
    return {"what": what, "limit": "most" if most else "least", "bound": bound, "unit": unit, "worst": worst and worst[0], "at": worst and worst[1],
            "holds": holds, "reason": missing}


def ratios(table, live_counts, name=""):
    """((ratio, where), …) of a table of pairs, and why it does not say all: None, or a text."""
    found, missing = [], None
    for live in map(str, live_counts):
        if live not in table:
            missing = f"{live} live blocks were not measured"
        for order, pair in table.get(live, {}).items():
            found.append((pair["ratio"], f"{order}, {live} live{name}"))
    return found, missing


def growth(pair):
    """From 100 to 100,000 live blocks, for each way and order. None where they were not measured.

    times: of the pool's pair. malloc_times: of glibc's. net: the one over the other, which is judged. less_malloc: the
    pool's when the nanoseconds that glibc's pair grew by are taken off, which a pool that misses the cache as often as
    glibc does keeps at 1.
    """
    found = {}
    for way, table in pair.items():
        if "100" not in table or "100000" not in table:
            return None
        found[way] = {}
        for order in ORDERS:
            few, many = table["100"][order], table["100000"][order]
            times, malloc_times = many["ns"] / few["ns"], many["malloc_ns"] / few["malloc_ns"]
            less = (many["ns"] - (many["malloc_ns"] - few["malloc_ns"])) / few["ns"]
            found[way][order] = {"times": times, "malloc_times": malloc_times, "net": times / malloc_times,
                                 "less_malloc": less}
    return found


def growth_bound(report):
    values = [] if report["growth"] is None else [
        (row["net"], f"{way}, {order}") for way, orders in report["growth"].items() for order, row in orders.items()]
    return judge("growth from 100 to 100,000 live blocks, over glibc's", 2, values, unit="times")


def thread_bound(report, threads, bound, what):
    values = [(run["times"], f"{run['threads']} threads on {report['threads']['cores']} cores")
              for run in report["threads"]["runs"] if run["threads"] == threads]
    few = report["threads"]["cores"] < 2
    return judge(what, bound, values, most=False, unit="times", missing="the machine has one core" if few else None)


def trace_ratios(rows):
    return [] if rows is None else [(row["ratio"], trace) for trace, row in rows.items()]


def bounds(report):
    """name: what judge makes."""
    reasons = report["reasons"]
    one, eight = report["streams8"]["1"], report["streams8"]["8"]
    host = report["host_bytes_per_block"]
    judged = {}

    def of_pairs(name, what, bound, tables, live_counts):
        values, missing = [], None
        for table, suffix in tables:
            more, why = ratios(table, live_counts, suffix)
            values += more
            missing = missing or why
        judged[name] = judge(what, bound, values, unit="times", missing=missing)

    both = [(one, ", 1 stream"), (eight, ", 8 streams")]
    of_pairs("async", "an async pair, 100 and 1,000 live", 3, [(report["pair"]["async"], "")], (100, 1000))
    of_pairs("async_100000", "an async pair, 100,000 live", 5, [(report["pair"]["async"], "")], (100000,))
    of_pairs("event", "an event pair, 1 and 8 streams, 100 and 1,000 live", 4, both, (100, 1000))
    of_pairs("event_100000", "an event pair, 1 and 8 streams, 100,000 live", 5, both, (100000,))
    of_pairs("sync", "a sync pair, less the simulated synchronise", 5, [(report["pair"]["sync"], "")], (100, 1000, 10000, 100000))
    judged["growth"] = growth_bound(report)
    judged["fences"] = judge(f"fences, over one per {FREES_A_FENCE} frees or {BYTES_A_FENCE // MIB} MiB freed", 1,
                             [(row["fences_of_most"], f"{row['trace']}, {row['way']}") for row in report["streams8"]["replay"]])
    judged["threads_2"] = thread_bound(report, 2, 1.6, "2 threads, over the throughput of one")
    judged["threads_8"] = thread_bound(report, 8, 1, "8 threads, over the throughput of one")
    judged["host_bytes_per_block"] = judge(
        "host memory per live block", 160,
        [(value, f"{live} {kind}") for kind in ("held", "churned") for live, value in host[kind].items()], unit="bytes")
    judged["host_bytes_fixed"] = judge("host memory, fixed", 2 * MIB, [(host["fixed"], "one block")], unit="bytes")
    judged["capacity"] = judge("device memory that the bundled traces fit on, over their peak live", 1.05,
                               trace_ratios(report["capacity"]), unit="times", missing=reasons.get("capacity"))
    overhead = report["trace_overhead"]
    judged["trace_overhead"] = judge("a traced pair, over one that is not", 2,
                                     [] if overhead is None else [(row["ratio"], f"{order}, {overhead['live']} live")
                                                                  for order, row in overhead["orders"].items()],
                                     unit="times", missing=reasons.get("trace_overhead"))
    return judged


# ---- tables ----

def cell(value, form=".1f"):
    return "-" if value is None else format(value, form)


def table(head, rows):
    """Lines of columns: the first to the left, the others to the right, `head` over them."""
    rows = [head, *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return ["  ".join(text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths)))
            .rstrip() for row in rows]


def pair_lines(pairs, columns):
    """`columns`: (head, name, form) beyond those that every way has."""
    head = ["order", "live", "ns", "malloc", "ratio", "lowest", "highest", "instr.", "malloc", *(column[0] for column in columns)]
    rows = []
    for live, orders in pairs.items():
        for order, pair in orders.items():
            low, high = pair["ratio_range"]
            rows.append([order, live, cell(pair["ns"]), cell(pair["malloc_ns"]), cell(pair["ratio"], ".2f"), cell(low, ".2f"),
                         cell(high, ".2f"), cell(pair["instructions"], ".0f"), cell(pair["malloc_instructions"], ".0f"),
                         *(cell(pair[name], form) for _, name, form in columns)])
    return table(head, rows)


def mib(count):
    return None if count is None else count / MIB


def stream_rows(rows):
    head = ["trace", "way", "MiB live", "reserved", "lowest", "highest", "extra", "misses", "waits", "fences", "for misses",
            "marks", "crossed", "events", "later"]
    return table(head, [[
        row["trace"], row["way"], cell(mib(row["peak_live_bytes"]), ".0f"), cell(mib(row["peak_reserved_bytes"]), ".0f"),
        *(cell(mib(value), ".0f") for value in row["peak_reserved_bytes_range"]), cell(mib(row["extra_bytes"]), ".0f"),
        cell(row["misses"], ".0f"), cell(row["waits"], ".0f"), cell(row["fences"] - row["miss_fences"], ".0f"),
        cell(row["miss_fences"], ".0f"), cell(row["stream_marks"], ".0f"), cell(row["crossed_streams"], ".0f"),
        str(row["events_created"]), str(row["events_created_later"])] for row in rows])


def growth_lines(report):
    if report["growth"] is None:
        return ["not measured: " + report["reasons"]["growth"]]
    return table(["way", "order", "times", "malloc", "net", "less malloc's ns"],
                 [[way, order, *(cell(row[name], ".2f") for name in ("times", "malloc_times", "net", "less_malloc"))]
                  for way, orders in report["growth"].items() for order, row in orders.items()])


def thread_lines(threads):
    return table(["threads", "pairs a second", "times one's", "lowest", "highest", "malloc's", "processors had"],
                 [[str(run["threads"]), f"{run['pairs_per_second']:,.0f}", cell(run["times"], ".2f"),
                   *(cell(value, ".2f") for value in run["times_range"]), cell(run["malloc_times"], ".2f"),
                   cell(run["processors"], ".2f")]
                  for run in threads["runs"]])


def fit_lines(report):
    if report["capacity"] is None:
        return ["not measured: " + report["reasons"]["capacity"]]
    head = ["trace", "capacity", "driver calls there", "reserved", "driver calls, unlimited"]
    return table(head, [[trace, cell(row["ratio"], ".3f"), f"{row['driver_allocs']} + {row['driver_frees']}",
                         cell(report["reserved"][trace]["ratio"], ".3f"),
                         f"{report['reserved'][trace]['driver_allocs']} + {report['reserved'][trace]['driver_frees']}"]
                        for trace, row in report["capacity"].items()])


def overhead_lines(report):
    overhead = report["trace_overhead"]
    if overhead is None:
        return ["not measured: " + report["reasons"]["trace_overhead"]]
    return table(["order", "traced ns", "untraced ns", "ratio"],
                 [[order, cell(row["traced_ns"]), cell(row["untraced_ns"]), cell(row["ratio"], ".2f")]
                  for order, row in overhead["orders"].items()])


def host_lines(host):
    held = ", ".join(f"{value:.0f} ({live} live)" for live, value in host["held"].items())
    churned = ", ".join(f"{value:.0f} ({live} live)" for live, value in host["churned"].items())
    return [f"bytes per live block, taken once: {held}", f"of the traces' sizes, taken anew again and again: {churned}",
            f"fixed: {host['fixed'] / KIB:.0f} KiB"]


def number(value, unit):
    if unit == "bytes" and value >= 10 * KIB:
        return f"{value / KIB:,.0f} KiB"
    return f"{value:.2f}".rstrip("0").rstrip(".") + (f" {unit}" if unit == "bytes" else "")


def bound_lines(judged):
    lines = []
    for bound in judged.values():
        verdict = {True: "holds", False: "MISSED", None: "unknown"}[bound["holds"]]
        worst = "" if bound["worst"] is None else f"worst {number(bound['worst'], bound['unit'])}: {bound['at']}"
        why = "; ".join(filter(None, [worst, bound["reason"]]))
        lines.append((f"{bound['what']}: at {bound['limit']} {number(bound['bound'], bound['unit'])}", verdict, why))
    widths = [max(len(line[i]) for line in lines) for i in range(2)]
    return [f"{what.ljust(widths[0])}  {verdict.ljust(widths[1])}  {why}".rstrip() for what, verdict, why in lines]


def text(report):
    """All of it as tables."""
    pair, streams, machine = report["pair"], report["streams8"], report["machine"]
    processes = f"{machine['rounds']} process{'es' if machine['rounds'] > 1 else ''}"
    if machine["rounds_of_large"]:
        processes += f" ({machine['rounds_of_large']} with 100,000 live)"
    lines = [f"machine  {machine['text']}", f"date     {machine['date']}, load {machine['load']:.1f} at the beginning",
             f"tree     {machine['commit'] or 'unknown'}", "",
             "Nanoseconds of processor time and instructions a pair of allocation and free; malloc: glibc's malloc and free of the",
             f"same load in the same process; medians of {processes}, with the lowest and the highest ratio.", "",
             "async: cudaMallocAsync and cudaFreeAsync on one stream. Nothing of it is the simulator's.",
             *pair_lines(pair["async"], [("misses/1000", "misses", ".2f")]),
             *(["instructions: " + report["reasons"]["instructions"]] if "instructions" in report["reasons"] else []), "",
             "sync: cudaMalloc and cudaFree, less the simulated driver's synchronise, one a pair. Its questions for the current",
             "context, two a pair, are in it.",
             *pair_lines(pair["sync"], [("misses/1000", "misses", ".2f"), ("synchronise", "synchronise_ns", ".1f"),
                                        ("current, each", "current_context_ns", ".1f")]), ""]
    of_event = [("misses/1000", "misses", ".2f"), ("fences/1000", "fences", ".2f"), ("reserved MiB", "reserved_mib", ".0f"),
                ("more than sync", "extra_mib", ".0f"), ("current, each", "current_context_ns", ".1f")]
    for count in ("1", "8"):
        lines += [f"event: cudaMalloc and cudaFree with POOL_FREE=event, {count} stream{'' if count == '1' else 's'} with work. The simulator's fences and questions for",
                  "the current context are in it.",
                  *pair_lines(with_mib(streams[count]), of_event), ""]
    lines += ["Growth from 100 to 100,000 live blocks. net: the pool's over glibc's; less malloc's ns: of the pool's when as many",
              "nanoseconds as glibc's pair grew by are taken off.",
              *growth_lines(report), "",
              f"Threads with streams and {report['threads']['live']} blocks of their own, {report['threads']['cores']} cores, wall time; malloc's: the times of",
              "glibc's malloc and free, which shares nothing; processors had: of the machine, on average.",
              *thread_lines(report["threads"]), "",
              "Host memory.", *host_lines(report["host_bytes_per_block"]), "",
              "The bundled traces: least device memory and peak reserved on an unlimited device, over their peak live; driver",
              "allocations + releases.",
              *fit_lines(report), "",
              "POOL_TRACE: an async pair with and without, means of all.", *overhead_lines(report), ""]
    lines += [f"Each trace over 8 synthetic streams, twice, a kernel of {streams['replay'][0]['kernel_us']} us for each block; medians of {streams['replay'][0]['runs']} runs. extra: reserved more",
              "than with sync; crossed: memory that went from one stream to another; events: created in the first repetition,",
              "and later, the most of any run.",
              *stream_rows(streams["replay"]), "", "Bounds.", *bound_lines(report["bounds"])]
    return "\n".join(lines)


def with_mib(table_of_pairs):
    return {live: {order: {**pair, "reserved_mib": mib(pair["peak_reserved_bytes"]), "extra_mib": mib(pair["extra_reserved_bytes"])}
                   for order, pair in orders.items()} for live, orders in table_of_pairs.items()}

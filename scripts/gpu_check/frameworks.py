# SPDX-License-Identifier: MIT
"""Frameworks with their own caching off: PyTorch, CuPy, JAX, Numba; each a real computation, natively and pooled."""

import importlib.util
import json
import re
import subprocess

from part import Skip
from stage import MIB, Watched, total

NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": 1}
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
CLOSE = 1e-5


def need(stage, package):
    stage.not_simulated(f"{package} needs a real device")
    if importlib.util.find_spec(package) is None:
        raise Skip(f"the Python package {package} is not installed")


def look(stage, log, script, arguments=(), pooled=False, **variables):
    """(what the program printed as JSON, the pool's figures) of one that waits to be looked at."""
    with Watched(stage, log, [*stage.python(f"frameworks/{script}"), *arguments], pooled, **variables) as watched:
        watched.until_ready()
        figures = watched.figures() if pooled else None
        watched.end()
    return json.loads(next(line for line in watched.lines if line.startswith("{"))), figures


def relative(one, other):
    return max((abs(a - b) / max(abs(a), 1e-12) for a, b in zip(one, other)), default=0.0)


def pytorch(stage, part):
    need(stage, "torch")
    ways = {
        "own caching": (False, {}),
        "no caching": (False, NO_CACHING),
        "no caching, pooled (sync)": (True, NO_CACHING),
        "no caching, pooled (event)": (True, {**NO_CACHING, "POOL_FREE": "event"}),
    }
    rows, reference = [], {}
    for way, (pooled, variables) in ways.items():
        found, figures = look(
            stage,
            f"pytorch-{re.sub('[^a-z]+', '-', way).strip('-')}",
            "pytorch_nets.py",
            pooled=pooled,
            **DETERMINISTIC,
            **variables,
        )
        part.data(way, found)
        for net, of in found["nets"].items():
            first = reference.setdefault(net, of)
            apart = max(relative(first["losses"], of["losses"]), relative(first["outputs"], of["outputs"]))
            equal = first["losses"] == of["losses"] and first["outputs"] == of["outputs"]
            part.expect(apart <= CLOSE, f"{way}, {net}: losses differ by {apart:.2e}")
            peak = total(figures, "peak_reserved_bytes") if figures else of["peak_reserved"]
            rows.append(
                [
                    net,
                    way,
                    f"{of['step_ms']:.2f}",
                    f"{of['inference_ms']:.2f}",
                    f"{peak / MIB:,.0f}" if peak else "–",
                    "equal" if equal else f"apart by {apart:.1e}",
                ]
            )
        if figures:
            part.expect(total(figures, "hits") > 0, f"{way}: no hits: the pool was not used")
            part.say(
                f"{way}: {total(figures, 'allocs'):,} allocations, {total(figures, 'hits'):,} hits, "
                f"{total(figures, 'segment_allocs'):,} segments, {total(figures, 'waits'):,} waits."
            )
    rows.sort(key=lambda row: row[0])
    part.table(
        "30 training steps, and inference with changing lengths",
        ["net", "", "ms a step", "ms an inference", "peak reserved, MiB", "losses"],
        rows,
    )


def simple(package, script, native, pooled):
    """A part that runs one script natively and pooled."""

    def work(stage, part):
        need(stage, package)
        found, figures, rows = {}, None, []
        for way, (under, variables) in {"native": (False, native), "pooled": (True, pooled)}.items():
            found[way], of_pool = look(stage, f"{package}-{way}", script, pooled=under, **variables)
            figures = of_pool or figures
            part.expect(found[way]["right"], f"{way}: wrong results: {found[way].get('wrong')}")
            rows.append([way, f"{found[way]['ms']:.3f}"])
        part.table("Milliseconds of a round (median)", ["", "ms"], rows)
        part.data("found", found)
        if figures is None:
            part.fail("the program was not pooled: poolstat knows no figures of it")
            return
        hits = total(figures, "hits")
        part.say(
            f"{total(figures, 'allocs'):,} allocations, {hits:,} hits, {total(figures, 'segment_allocs'):,} segments; "
            f"{found['native']['ms'] / found['pooled']['ms']:.2f} times faster pooled."
        )
        part.expect(hits > 0, "no hits: the pool was not used")

    return work


cupy = simple("cupy", "cupy_work.py", {}, {})
jax = simple(
    "jax", "jax_work.py", *2 * [{"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}]
)
numba = simple("numba", "numba_work.py", {}, {})


def recording(stage, part):
    need(stage, "torch")
    file = stage.out / "pytorch.trace"
    file.unlink(missing_ok=True)
    look(
        stage,
        "recording",
        "pytorch_nets.py",
        ["--steps", "10"],
        pooled=True,
        POOL_TRACE=file,
        **NO_CACHING,
        **DETERMINISTIC,
    )
    trace_csv = stage.build / "bench/trace-csv"
    if not file.exists():
        part.fail("no recording was written")
        return
    if not trace_csv.exists():
        raise Skip("bench/trace-csv is not built")
    done = subprocess.run([str(trace_csv), str(file)], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    part.expect(
        done.returncode == 0 and len(lines) > 1000,
        f"trace-csv read {len(lines)} lines, status {done.returncode}: {done.stderr.strip()[-200:]}",
    )
    import lzma

    (stage.out / "pytorch.csv.xz").write_bytes(lzma.compress(done.stdout.encode(), preset=9))
    part.say(f"{len(lines) - 1:,} events in pytorch.trace ({file.stat().st_size:,} bytes) and pytorch.csv.xz.")


PARTS = {"pytorch": pytorch, "cupy": cupy, "jax": jax, "numba": numba, "recording": recording}


def run(stage, part):
    PARTS[part.found["part"]](stage, part)

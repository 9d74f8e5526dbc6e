# SPDX-License-Identifier: MIT
"""Graphs: captures in each mode that use pooled memory, replayed with other inputs while other memory comes and goes."""

from latency import kernels
from programs import program

WAYS = {"native": {}, "POOL_FREE=sync": {"POOL_FREE": "sync"}, "POOL_FREE=event": {"POOL_FREE": "event"}}


def run(stage, part):
    stage.need_device()
    lines, variables = {}, kernels(stage)
    for way, settings in WAYS.items():
        status, out, err = stage.run(
            f"graphs-{way.replace('=', '-')}",
            [program(stage, "graphs")],
            pooled=bool(settings),
            **variables,
            **settings,
        )
        lines[way] = out.splitlines()
        wrong = [line for line in lines[way] if "WRONG" in line]
        part.expect(
            status == 0 and not wrong, f"{way}: {'; '.join(wrong) or f'status {status}: {(err or out).strip()[-200:]}'}"
        )
        part.expect(
            sum("results right" in line for line in lines[way]) == 3, f"{way}: not all three modes were replayed"
        )
        for native, pooled in zip(lines["native"], lines[way]):
            part.expect(native == pooled, f"{way}: {pooled}; natively: {native}")
    part.table("What the calls answered, natively and pooled", ["call"], [[line] for line in lines["native"]])

# SPDX-License-Identifier: MIT
"""Thrust: sort, scan and reduce in a loop, in a program that nvcc made with the static runtime: time, equal results."""

from programs import program

WAYS = {"native": {}, "POOL_FREE=sync": {"POOL_FREE": "sync"}, "POOL_FREE=event": {"POOL_FREE": "event"}}


def run(stage, part):
    stage.not_simulated("its kernels compute nothing, so there would be no results to compare")
    found = {}
    for way, settings in WAYS.items():
        found[way] = stage.run_json(
            f"thrust-{way.replace('=', '-')}", [program(stage, "thrust")], pooled=bool(settings), **settings
        )["sizes"]
    rows = []
    for i, native in enumerate(found["native"]):
        times = [found[way][i]["median_ms"] for way in WAYS]
        rows.append([f"{native['elements'] >> 20} M", *(f"{time:.3f}" for time in times), f"{times[0] / times[1]:.2f}"])
        for way in WAYS:
            part.expect(
                found[way][i]["sum"] == native["sum"],
                f"{native['elements']} elements: {way} gave another result than natively",
            )
    part.table(
        "Milliseconds of a round of sort, scan and reduce (median)", ["elements", *WAYS, "times faster (sync)"], rows
    )
    part.data("found", found)

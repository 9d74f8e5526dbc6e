# SPDX-License-Identifier: MIT
"""IPC: a block that starts its segment and one inside it, opened by another process with and without an offset."""

FREES = ("sync", "event")


def run(stage, part):
    stage.need_device()
    for pooled, settings in ((False, {}), *((True, {"POOL_FREE": free}) for free in FREES)):
        way = f"POOL_FREE={settings['POOL_FREE']}" if pooled else "native"
        found = stage.run_json(
            f"ipc-{way.replace('=', '-')}", stage.python("ipc.py"), pooled=pooled, timeout=30, toolkit=True, **settings
        )
        for what, (wanted, seen) in found["checks"].items():
            part.expect(wanted == seen, f"{way}: {what}: {seen}, not {wanted}")
        part.expect(len(found["checks"]) >= 10, f"{way}: only {len(found['checks'])} answers")
        part.table(way, ["", "found"], [[what, seen] for what, (_, seen) in found["checks"].items()])

# SPDX-License-Identifier: MIT
"""Identity: cuGetProcAddress gives, for every hooked name, version and flags, the address that dlsym gives of that variant;
and with the pool preloaded each of these is the pool's own."""


def look(stage, pooled):
    command = [*stage.python("identity.py"), stage.tree / "src/entry/hooks.h"]
    return stage.run_json("identity-pooled" if pooled else "identity", command, pooled=pooled)


def run(stage, part):
    stage.need_device()
    driver, pooled = look(stage, False), look(stage, True)
    part.say(
        f"{driver['hooks']} hooked functions, driver {driver['version']}, {driver['lookups']:,} look-ups of cuGetProcAddress in its "
        f"two forms: {len(driver['exceptions'])} gave another address than dlsym."
    )
    part.data("driver", driver)
    part.data("pooled", {name: pooled[name] for name in ("inside", "outside", "exceptions", "shared")})
    if driver["exceptions"]:
        part.table(
            "Exceptions",
            ["form", "name", "version", "flags", "expected", "found"],
            [
                [row[name] for name in ("form", "name", "version", "flags", "expected", "found")]
                for row in driver["exceptions"]
            ],
        )
        part.fail(
            f"{len(driver['exceptions'])} look-ups gave another address than dlsym: the first {driver['exceptions'][0]}"
        )
    part.expect(
        driver["forms"] == {"11030": ["cuGetProcAddress"], "12000": ["cuGetProcAddress_v2"]},
        f"cuGetProcAddress of itself gives for 11030 and 12000: {driver['forms']}",
    )
    part.expect(
        not driver["shared"], f"several hooked names at one address, none of which is hooked: {driver['shared']}"
    )
    if driver["missing"]:
        part.say(f"The driver lacks: {', '.join(driver['missing'])}")
    part.say(
        f"With the pool preloaded: {pooled['inside']} of {driver['hooks'] - len(driver['missing'])} addresses are the pool's."
    )
    part.expect(not pooled["outside"], f"not hooked with the pool preloaded: {', '.join(pooled['outside'])}")
    part.expect(
        not pooled["exceptions"],
        f"with the pool preloaded {len(pooled['exceptions'])} look-ups gave another address than dlsym",
    )

# SPDX-License-Identifier: MIT
"""Whatever is wrong with /dev/shm, the program runs as natively, and is pooled; it goes without figures."""
import os
import subprocess
import tempfile

from isolated import SHM, await_ready, isolate, segments, unshare
from preload import Guest, LIBRARY, built, environment
from tap import case, main, skip

GUEST = "hazard_process"
os.environ["MALLOC_PERTURB_"] = "0"  # as in test_processes.py

FULL = f"mount -t tmpfs -o size=1m none {SHM} && (head -c 2m /dev/zero >{SHM}/filler 2>/dev/null; true)"
TROUBLES = {
    f"mount -t tmpfs -o size=64k none {SHM}": "cannot size the segment: No space left on device",
    FULL: "cannot size the segment: No space left on device",
    f"mount -t tmpfs -o ro none {SHM}": "cannot create the segment: Read-only file system",
    f"mount -t tmpfs -o mode=0 none {SHM}; test $(id -u) = 0": None,
    f"mount -t tmpfs -o nr_inodes=1 none {SHM}": "cannot create the segment: No space left on device",
    "mount -t tmpfs none /dev": "cannot create the segment: No such file or directory",
}


def in_mounts(script, words, pool=True, variables=None, **settings):
    """A guest in a mount namespace of its own, after the shell has run the script."""
    command = unshare("--mount")
    if not command:
        skip("no mount namespace may be made here")
    variables = dict(variables or {}, **({"LD_PRELOAD": LIBRARY} if pool else {}))
    given = [f"{name}={value}" for name, value in variables.items()]
    inside = ["sh", "-c", f'{script} && exec "$@"', "sh", "env", *given, built(GUEST), *words]
    return subprocess.Popen([*command, *inside], env=environment(pool=False), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out.splitlines(), err


@case
def hazard_46_trouble_in_shared_memory_costs_the_figures_alone():
    for script, reason in TROUBLES.items():
        native = ended(in_mounts(script, ["use"], pool=False, stdin=subprocess.DEVNULL))
        with tempfile.NamedTemporaryFile("r") as counts:
            pooled = ended(in_mounts(script, ["later"], stdin=subprocess.DEVNULL,
                                     variables={"SIM_COUNTS_FILE": counts.name}))
            calls = {line.split()[0]: int(line.split()[1]) for line in counts}
        assert native[0] == 0 and native[1], (script, native)
        assert (pooled[0], pooled[1][-len(native[1]):], pooled[2]) == (native[0], native[1], ""), (script, native, pooled)
        assert pooled[1][1] == "calls that failed: 0", (script, pooled)
        assert calls["cuMemAllocFromPoolAsync"] < 40, f"{script}: not pooled: {calls}"  # of 200 allocations
        code, _, err = ended(in_mounts(script, ["use"], variables={"POOL_LOG": "1"}, stdin=subprocess.DEVNULL))
        said = [line.partition(" warning: ")[2] for line in err.splitlines()]
        expected = [f"no figures are published: {reason}"] if reason else []
        assert (code, said) == (0, expected), (script, code, err)


@case
def hazard_46_a_shared_memory_that_fills_up_later_does_not_end_the_program():
    process = in_mounts(f"mount -t tmpfs -o size=1m none {SHM}", ["later"], stdin=subprocess.PIPE)
    try:
        await_ready(process)
        inside = f"/proc/{process.pid}/root{SHM}"
        left = [name for name in os.listdir(inside) if name.startswith("poolcuda-")]
        assert len(left) == 1, left
        with open(os.path.join(inside, "filler"), "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass
        assert os.statvfs(inside).f_bfree == 0
        process.stdin.write("\n")
        process.stdin.flush()
        code, lines, err = ended(process)
        assert (code, lines[0], err) == (0, "calls that failed: 0", ""), (code, lines, err)
    finally:
        process.kill()
        process.communicate()


@case
def hazard_46_figures_that_are_removed_while_the_program_runs_do_not_end_it():
    with Guest([GUEST, "later"]) as guest:
        guest.until_ready()
        for name in segments(guest.process.pid):
            os.unlink(os.path.join(SHM, name))
        assert guest.figures() is None
        guest.go_on()
        assert "calls that failed: 0" in guest.end()


isolate()
main()

# SPDX-License-Identifier: MIT
"""Tests of processes run in pid and mount namespaces of their own, where those may be made: nothing else is then in
/dev/shm, and no process is left behind."""
import os
import subprocess
import sys

from tap import skip

SHM = "/dev/shm"
ISOLATED = "HAZARDS_ISOLATED"


def unshare(*flags):
    """The command that makes such namespaces, as root or as one may; None where they may not be made."""
    for users in [], ["--map-root-user"]:
        command = ["unshare", *users, *flags]
        try:
            probe = [*command, "sh", "-c", f"mount -t tmpfs none {SHM}"]
            if subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0:
                return command
        except FileNotFoundError:
            break
    return None


def isolate():
    if ISOLATED in os.environ or "--list" in sys.argv:
        return
    command = unshare("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    os.environ[ISOLATED] = "1" if command else "0"
    if command:
        inside = f'mount -t tmpfs -o size=256m none {SHM} && exec "$@"'
        os.execvp(command[0], [*command, "sh", "-c", inside, "sh", sys.executable, *sys.argv])


def need_isolation():
    if os.environ.get(ISOLATED) != "1":
        skip("no pid and mount namespaces may be made here")


def segments(pid=None):
    middle = "-" if pid is None else f"-{pid}-"
    return {name for name in os.listdir(SHM) if name.startswith("poolcuda-") and middle in name}


def segment_bytes(pid):
    (name,) = segments(pid)
    with open(os.path.join(SHM, name), "rb") as file:
        return file.read()


def await_ready(process):
    for line in process.stdout:
        if line == "ready\n":
            return
    raise AssertionError("the guest ended")

# SPDX-License-Identifier: MIT
"""Runs guest programs natively and under the pool. Where things are built comes from the environment, set by meson."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

GUESTS = os.environ["PRELOAD_GUESTS"].split(":")
LIBRARY = os.environ["PRELOAD_LIBRARY"]
SIM = os.environ["PRELOAD_SIM"]
EMULATOR = os.environ.get("PRELOAD_EMULATOR", "").split()  # what runs guests of another processor, with its arguments
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def built(name):
    """Where a guest or library of the tests lies: each folder builds its own."""
    places = [os.path.join(folder, name) for folder in GUESTS]
    return next((place for place in places if os.path.exists(place)), places[0])


def environment(pool=True, variables=None, beside=(), sim=SIM):
    """The guest's environment. `beside`: libraries preloaded after the pool's. POOL_* of the caller's do not count."""
    result = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "SIM_"))}
    libraries = ([LIBRARY] if pool else []) + list(beside)
    if libraries:
        result["LD_PRELOAD"] = ":".join(os.path.basename(path) if " " in path else path for path in libraries)
    # Blanks separate the entries of LD_PRELOAD, but not those of LD_LIBRARY_PATH.
    folders = [os.path.dirname(path) for path in libraries if " " in path]
    result["LD_LIBRARY_PATH"] = ":".join([*dict.fromkeys(folders), sim])
    result.update(variables or {})
    return result


def launch(command, variables):
    """What subprocess takes to start a guest in this environment."""
    command = [built(command[0]), *command[1:]]
    if not EMULATOR:
        return {"args": command, "env": variables}
    # The dynamic linker's variables are the guest's: the emulator is a program of this machine.
    linkers = [name for name in variables if name.startswith("LD_")]
    inside = [word for name in linkers for word in ("-E", f"{name}={variables[name]}")]
    outside = {name: value for name, value in variables.items() if name not in linkers}
    return {"args": [*EMULATOR, *inside, *command], "env": outside}


def run(command, pool=True, variables=None, beside=(), sim=SIM, status=0):
    """Output of a guest that ends by itself; with `status`, its exit status is checked (None: any)."""
    done = subprocess.run(**launch(command, environment(pool, variables, beside, sim)), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)
    if status is not None:
        assert done.returncode == status, f"{command}: status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == "", f"{command}: on stderr:\n{done.stderr}"
    return done.stdout


def same(command, variables=None, **options):
    """Run natively and under the pool: the outputs must be equal. Returns the lines."""
    native = run(command, pool=False, variables=variables, **options).splitlines()
    pooled = run(command, pool=True, variables=variables, **options).splitlines()
    different = [f"native: {a}\npooled: {b}" for a, b in zip(native, pooled) if a != b]
    assert not different, f"{command}:\n" + "\n".join(different)
    assert len(native) == len(pooled), f"{command}: {len(native)} lines natively, {len(pooled)} pooled\n{native}\n{pooled}"
    assert native, f"{command}: no output"
    return native


class Guest:
    """A guest that says `ready` and waits while its figures are read."""

    def __init__(self, command, variables=None, beside=(), sim=SIM, pool=True):
        self.process = subprocess.Popen(**launch(command, environment(pool, variables, beside, sim)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []

    def __enter__(self):
        return self

    def until_ready(self):
        for line in self.process.stdout:
            if line == "ready\n":
                return self
            self.lines.append(line.rstrip("\n"))
        raise AssertionError(f"the guest ended: {self.lines} {self.process.stderr.read()}")

    def figures(self):
        return figures(self.process.pid)

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, status=0):
        out, err = self.process.communicate("\n", timeout=60)
        assert self.process.returncode == status, f"status {self.process.returncode}, not {status}: {self.lines} {out} {err}"
        return out

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def figures(pid):
    """The figures of a process as a dict, None when it has no segment."""
    environment_of_reader = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    done = subprocess.run(**launch(["preload_figures", str(pid)], environment_of_reader), capture_output=True, text=True,
                          timeout=60)
    if done.returncode == 1:
        return None
    assert done.returncode == 0, done.stderr
    return {name: int(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def expect(figures_read, **expected):
    assert figures_read is not None, "there is no segment of figures"
    wrong = {name: (figures_read[name], value) for name, value in expected.items() if figures_read[name] != value}
    assert not wrong, "(is, should be): " + str(wrong)

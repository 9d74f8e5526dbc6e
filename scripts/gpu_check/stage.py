# SPDX-License-Identifier: MIT
"""Where the check runs: the built tree, the device or the simulated CUDA, the compilers, and how programs are started and
looked at from outside."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from part import Skip

MIB = 2**20
FORGET = ("POOL_", "LD_PRELOAD", "PYTORCH_")  # the caller's own settings do not count


def die_with_parent():
    """In a child: a part that is ended takes with it what it started."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Stage:
    """Made anew in each process from `words()`."""

    def __init__(self, tree, build, out, simulated, device=None, why_not=None):
        self.tree, self.build, self.out = Path(tree), Path(build), Path(out)
        self.simulated, self.device, self.why_not = simulated, device, why_not
        self.library = self.build / "src/libpoolcuda.so"
        self.poolstat = self.build / "src/poolstat/poolstat"
        self.toolkit = self._toolkit()
        self.nvcc = self._nvcc()
        self.compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc")
        self.architecture = f"sm_{device['capability']}" if device and not simulated else None

    def words(self):
        return {
            "tree": str(self.tree),
            "build": str(self.build),
            "out": str(self.out),
            "simulated": self.simulated,
            "device": self.device,
            "why_not": self.why_not,
        }

    def _toolkit(self):
        found = shutil.which("nvcc")
        places = [
            os.environ.get("CUDA_HOME"),
            os.environ.get("CUDA_PATH"),
            found and Path(found).resolve().parents[1],
            "/usr/local/cuda",
        ]
        return next(
            (Path(place) for place in places if place and Path(place, "include/cuda.h").exists()),
            Path("/usr/local/cuda"),
        )

    def _nvcc(self):
        inside = self.toolkit / "bin/nvcc"
        found = inside if inside.exists() else shutil.which("nvcc")
        return found if found and shutil.which("g++") else None

    @property
    def runtime_folder(self):
        return self.build / "src/sim/runtime" if self.simulated else self.toolkit / "lib64"

    @property
    def driver_folder(self):
        """Where programs are linked against the driver; on a device they find the installed one."""
        return self.build / "src/sim/driver" if self.simulated else self.toolkit / "lib64/stubs"

    def need_device(self):
        if not self.simulated and not self.device:
            raise Skip(f"no GPU: {self.why_not}")

    def not_simulated(self, why):
        if self.simulated:
            raise Skip(f"not over the simulated CUDA: {why}")
        self.need_device()

    def environment(self, pooled=False, toolkit=False, **variables):
        """`toolkit`: with the toolkit's libraries on the path, for what names the runtime itself. Frameworks bring their own."""
        result = {name: value for name, value in os.environ.items() if not name.startswith(FORGET)}
        path = [self.library.parent] if pooled else []
        if self.simulated:
            path += [self.build / "src/sim/driver", self.build / "src/sim/runtime"]
        path += [os.environ.get("LD_LIBRARY_PATH"), self.toolkit / "lib64" if toolkit and not self.simulated else None]
        result["LD_LIBRARY_PATH"] = ":".join(str(folder) for folder in path if folder)
        if pooled:  # by its name: a path with a blank could not be named
            result["LD_PRELOAD"] = self.library.name
        result.update({name: str(value) for name, value in variables.items()})
        return result

    def log(self, name, text):
        folder = self.out / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")

    def run(self, log, command, pooled=False, timeout=60, **variables):
        """(exit status, stdout, stderr) of a program that ends by itself; all of it is kept under `log`. The status is
        None when it was ended after `timeout` seconds."""
        words = [str(word) for word in command]
        process = subprocess.Popen(
            words,
            env=self.environment(pooled, **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            out, err = process.communicate(timeout=timeout)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            status = None
        self.log(
            log,
            f"$ {' '.join(words)}\n{out}{err}exit status {'none: ended after %s s' % timeout if status is None else status}\n",
        )
        return status, out, err

    def run_json(self, log, command, **options):
        """The object that a program prints as its last line; an Exception when it does not."""
        status, out, err = self.run(log, command, **options)
        last = (out.strip().splitlines() or [""])[-1]
        try:
            return json.loads(last)
        except ValueError:
            how = f"was ended after {options.get('timeout', 60)} s" if status is None else f"ended with status {status}"
            raise RuntimeError(f"{Path(str(command[0])).name} {how}: {(err or out).strip()[-300:]}") from None

    def python(self, script):
        return [sys.executable, "-B", self.tree / "tests/gpu" / script]

    def figures(self, pid):
        """What poolstat tells of a process; None when it has no figures."""
        done = subprocess.run(
            [str(self.poolstat), "show", "--json", str(pid)], capture_output=True, text=True, check=False
        )
        try:
            return json.loads(done.stdout).get("process")
        except ValueError:
            return None


def total(process, name, kind=None):
    """A figure of a process's pools, summed."""
    return sum(pool[name] or 0 for pool in process["pools"] if kind is None or pool["kind"] == kind)


class Watched:
    """A program that says `ready` and waits for a line while its figures are read."""

    def __init__(self, stage, log, command, pooled=True, **variables):
        self.stage, self.log, self.lines = stage, log, []
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=stage.environment(pooled, **variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=die_with_parent,
        )

    def until_ready(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line == "ready\n":
                return
        raise RuntimeError(f"it ended early: {' / '.join(self.lines[-5:])}")

    def figures(self):
        return self.stage.figures(self.process.pid)

    def end(self):
        """The status; all lines are kept."""
        out, _ = self.process.communicate("\n", timeout=30)
        self.lines += out.splitlines()
        self.stage.log(self.log, "\n".join([*self.lines, f"exit status {self.process.returncode}", ""]))
        return self.process.returncode

    def values(self):
        """The lines `name: number`."""
        pairs = (line.split(": ", 1) for line in self.lines if ": " in line)
        return {name: int(value) for name, value in pairs if value.lstrip("-").isdigit()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

# SPDX-License-Identifier: MIT
"""The programs that the parts run, compiled when they are first asked for: by several processes at once each only once.
Those of a part are compiled ahead in the background. `programs.py STAGE NAME…` compiles them all."""

import concurrent.futures
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

from part import Skip

SHARED, STATIC, NONE = "shared", "static", "none"

# name: (source below tests/gpu, compiler, options, runtime that is linked)
C, NVCC, CUBIN, LIBRARY = "c", "nvcc", "cubin", "library"
PROGRAMS = {
    "door-shared": ("door.c", C, ["-DDOOR=1"], SHARED),
    "door-static": ("door.c", C, ["-DDOOR=1"], STATIC),
    "door-nvcc": ("door.c", NVCC, ["-x", "cu", "-DDOOR=1"], STATIC),
    "door-driver": ("door.c", C, ["-DDOOR=2"], NONE),
    "door-dlopen": ("door.c", C, ["-DDOOR=3"], NONE),
    "hits-shared": ("hits.c", C, ["-DDOOR=1"], SHARED),
    "hits-static": ("hits.c", C, ["-DDOOR=1"], STATIC),
    "hits-driver": ("hits.c", C, ["-DDOOR=2"], NONE),
    "hits-dlopen": ("hits.c", C, ["-DDOOR=3"], NONE),
    "latency": ("latency.c", C, [], SHARED),
    "graphs": ("graphs.c", C, [], SHARED),
    "long": ("long.c", C, [], SHARED),
    "thrust": ("thrust.cu", NVCC, [], STATIC),
    "late": ("late.c", C, [], SHARED),
    "injected.so": ("injected.c", LIBRARY, [], NONE),
    "kernels.cubin": ("kernels.cu", CUBIN, [], NONE),
}


class CompileError(Exception):
    pass


def command(stage, name, target):
    source, how, options, runtime = PROGRAMS[name]
    source = stage.tree / "tests/gpu" / source
    runtimes = {SHARED: ["-l:libcudart.so.13"], STATIC: ["-l:libcudart_static.a"], NONE: []}
    if how in (NVCC, CUBIN):
        if not stage.nvcc:
            raise Skip("there is no nvcc here, or no g++ that it needs")
        architecture = [f"-arch={stage.architecture}"] if stage.architecture else []
        kind = (
            ["-cubin"]
            if how == CUBIN
            else ["-cudart", "shared" if stage.simulated else "static", "-lcuda", f"-L{stage.driver_folder}"]
        )
        return [stage.nvcc, "-O2", "-std=c++17", *architecture, *options, *kind, "-o", target, source]
    if not stage.compiler:
        raise Skip("there is no C compiler here (CC, cc)")
    folders = [f"-L{folder}" for folder in (stage.driver_folder, stage.runtime_folder)]
    return [
        stage.compiler,
        "-O2",
        "-std=gnu11",
        "-D_GNU_SOURCE",
        *options,
        *(["-shared", "-fPIC"] if how == LIBRARY else []),
        "-isystem",
        stage.toolkit / "include",
        "-I",
        stage.tree / "src/sim",
        "-o",
        target,
        source,
        *folders,
        f"-Wl,--enable-new-dtags,-rpath,{stage.runtime_folder}",
        *runtimes[runtime],
        "-lcuda",
        "-lpthread",
        "-ldl",
        "-lrt",
        "-lm",
    ]


def program(stage, name):
    """Path of the program; Skip where nothing here can compile it."""
    folder = stage.out / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    with open(folder / f".{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            words = [str(word) for word in command(stage, name, folder / f".{name}")]
            done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            (stage.out / "logs").mkdir(exist_ok=True)
            (stage.out / "logs" / f"compile-{name}.txt").write_text(" ".join(words) + "\n" + done.stdout + done.stderr)
            if done.returncode != 0:
                raise CompileError(f"{name} does not compile: {(done.stderr or done.stdout).strip()[-300:]}")
            os.replace(folder / f".{name}", target)
    return target


def main():
    from stage import Stage

    stage = Stage(**json.loads(sys.argv[1]))

    def compile_one(name):
        try:
            program(stage, name)
        except (Skip, CompileError):
            pass  # the part that asks for it says so

    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as executor:
        list(executor.map(compile_one, sys.argv[2:]))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()

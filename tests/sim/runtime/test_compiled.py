# SPDX-License-Identifier: MIT
"""Programs compiled by nvcc run on the simulated CUDA unchanged.

    test_compiled.py NVCC DRIVER RUNTIME STATIC_RUNTIME SANITIZERS

NVCC is empty where there is none; SANITIZERS is what the runtime was built with, "none" or a list with commas.
"""
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "support"))
from tap import case, main, skip

NVCC, DRIVER, RUNTIME, ARCHIVE, SANITIZERS = sys.argv[1:6]
del sys.argv[1:6]
DRIVER, RUNTIME, ARCHIVE = map(os.path.abspath, (DRIVER, RUNTIME, ARCHIVE))
HOST = [] if SANITIZERS == "none" else ["-Xcompiler", f"-fsanitize={SANITIZERS}".replace(",", "\\,")]
SHARED = ["-cudart", "shared"]
STATIC = ["-cudart", "none", ARCHIVE, "-ldl", "-lpthread", "-lrt"]


def compile_and_run(source, how, *options, **variables):
    if not NVCC:
        skip("no nvcc here")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program")
        built = subprocess.run([NVCC, "-o", program, os.path.join(HERE, source), *options, *HOST, *how],
                               capture_output=True, text=True, timeout=240)
        assert built.returncode == 0, built.stdout + built.stderr
        path = f"{os.path.dirname(DRIVER)}:{os.path.dirname(RUNTIME)}"
        start = time.monotonic()
        result = subprocess.run([program], env={**os.environ, "LD_LIBRARY_PATH": path, **variables},
                                capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, (result.returncode, result.stdout, result.stderr)
        return time.monotonic() - start


@case
def kernels_launch_on_the_shared_runtime():
    compile_and_run("compiled.cu", SHARED)


@case
def kernels_launch_on_the_static_runtime():
    compile_and_run("compiled.cu", STATIC)


@case
def kernels_launch_with_per_thread_default_streams():
    compile_and_run("compiled.cu", SHARED, "--default-stream", "per-thread")


@case
def kernels_take_their_simulated_time():
    elapsed = compile_and_run("compiled.cu", SHARED, SIM_KERNEL_US="60000")
    assert elapsed >= 0.24, f"four kernels of 60 ms on one stream took {elapsed} s"


@case
def thrust_runs():
    compile_and_run("thrust.cu", SHARED)


main()

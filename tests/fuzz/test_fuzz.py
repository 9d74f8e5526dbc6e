# SPDX-License-Identifier: MIT
"""The corpus through each fuzz target, and, where libFuzzer was there to build with, some time of looking further:
FUZZ_SECONDS, 10 unless set. What is found is kept in the build folder, and belongs into the corpus once it is repaired."""
import os
import re
import subprocess
import tempfile
from pathlib import Path

from tap import case, main, skip

BUILD = Path(os.environ["FUZZ_BUILD"])
CORPUS = Path(__file__).resolve().parent / "corpus"
SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
ELF_SHARE = 0.2  # of the time; its inputs take a hundredth of that of segments


def replay(name):
    files = sorted((CORPUS / name).iterdir())
    done = subprocess.run([BUILD / f"{name}_replay", *files], stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    tail = done.stderr.decode(errors="replace")[-3000:]
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}: {tail}")
    if done.stderr.count(b"input ") < len(files):
        raise AssertionError(f"{len(files)} files, but: {tail}")


def looks_for_leaks(program):
    """The leak checker needs ptrace, which some containers refuse."""
    return subprocess.run([program, "-runs=1"], capture_output=True, timeout=60).returncode == 0


def fuzz(name, seconds):
    program = BUILD / f"{name}_fuzz"
    if not program.exists():
        skip("no clang with libFuzzer (Debian: clang, libclang-rt-14-dev) when the tests were built")
    if seconds < 1:
        skip(f"FUZZ_SECONDS is {SECONDS:g}")
    leaks = looks_for_leaks(program)
    with tempfile.TemporaryDirectory() as found:
        done = subprocess.run([program, f"-max_total_time={int(seconds)}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536",
                               "-print_final_stats=1", "-close_fd_mask=3", f"-detect_leaks={int(leaks)}",
                               f"-artifact_prefix={BUILD}/found-{name}-", found, CORPUS / name],
                              env={**os.environ, **({} if leaks else {"ASAN_OPTIONS": "detect_leaks=0"})},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds + 300)
    log = done.stderr.decode(errors="replace")
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}: {log[-4000:]}")
    runs = int(re.search(r"number_of_executed_units: (\d+)", log).group(1))
    if runs < 100:
        raise AssertionError(f"only {runs} inputs in {seconds} s")
    print(f"# {runs} inputs")


@case
def corpus_of_segments_is_survived():
    replay("segment")


@case
def corpus_of_elf_files_is_survived():
    replay("elf")


@case
def fuzzing_segments_finds_nothing():
    fuzz("segment", SECONDS)


@case
def fuzzing_elf_files_finds_nothing():
    fuzz("elf", SECONDS * ELF_SHARE)


main()

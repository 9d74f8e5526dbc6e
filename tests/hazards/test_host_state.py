# SPDX-License-Identifier: MIT
"""No call of a hook changes anything of the program but what the call is for."""
import functools
import os
import re
import subprocess
import tempfile

from preload import LIBRARY, SOURCE, run
from tap import case, main, skip

SANITIZER = os.environ.get("PRELOAD_SANITIZER", "none")
GUEST = "hazard_state"
# Filled heaps cost more than the calls: the simulated driver has large tables.
DEVICES = {"SIM_DEVICES": "2", "MALLOC_PERTURB_": "0"}

UNSIMULATED = "801"
RUNTIME = {"cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaMemGetInfo", "cudaDeviceReset"}


def hooks():
    with open(os.path.join(SOURCE, "src", "entry", "hooks.h"), encoding="utf-8") as file:
        return set(re.findall(r"\bX\((cu\w+),", file.read()))


def parse(out):
    """[(call, code, what it changed)], what is open at the end, the last line."""
    lines = out.splitlines()
    calls = [re.fullmatch(r"(\w+): (-?\d+)(.*)", line) for line in lines]
    open_at_end = [line for line in lines if line.startswith("descriptor")]
    return [found.groups() for found in calls if found], open_at_end, lines[-1] if lines else ""


def observe(pool, mode, *arguments, variables=None):
    out = run([GUEST, mode, *arguments], pool=pool, variables=dict(DEVICES, **(variables or {})))
    if arguments:
        with open(arguments[0], encoding="utf-8") as file:
            out = file.read()
    return parse(out)


observe_natively = functools.cache(functools.partial(observe, False))


def check(mode, *arguments, variables=None, complete=False):
    """As natively, call by call, and nothing is changed. What is open at the end, natively and under the pool."""
    native, native_open, _ = observe_natively(mode, *arguments)
    pooled, pooled_open, last = observe(True, mode, *arguments, variables=variables)
    assert len(native) > 100 and native == pooled, [pair for pair in zip(native, pooled) if pair[0] != pair[1]]
    changed = [call for call in pooled if call[2]]
    assert not changed, changed
    assert last == "signals raised: 0", last
    missing = hooks() - {name for name, _, _ in pooled}
    assert not missing, f"never called: {missing}"
    if complete:
        failed = (hooks() | RUNTIME) - {name for name, code, _ in pooled if code in ("0", UNSIMULATED)}
        assert not failed, f"never called with right arguments: {failed}"
        wrong = (hooks() | RUNTIME) - {name for name, code, _ in pooled if code != "0"}
        # Zeros are right arguments of these.
        assert wrong <= {"cuCtxSetLimit", "cudaMemGetInfo", "cudaDeviceReset", "cuMemGetInfo_v2",
                         "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease"}, wrong
    return native_open, pooled_open


@case
def hazard_19_no_call_changes_anything_of_the_program():
    for variables in {}, {"POOL_FREE": "event"}, {"POOL_FILL": "poison"}, {"POOL_STATS": "0"}, {"POOL_ENABLE": "0"}:
        check("all", variables=variables, complete=True)


@case
def hazard_19_nor_does_one_that_is_logged():
    with tempfile.TemporaryDirectory() as folder:
        check("all", variables={"POOL_LOG": "3", "POOL_LOG_FILE": os.path.join(folder, "log")}, complete=True)
        assert os.stat(os.path.join(folder, "log")).st_size > 0


@case
def hazard_19_nor_does_one_that_is_recorded():
    with tempfile.TemporaryDirectory() as folder:
        variables = {"POOL_TRACE": os.path.join(folder, "recording.%p")}
        for mode in "all", "thread":
            native, pooled = check(mode, variables=variables, complete=True)
            kept = [line for line in pooled if folder in line]
            assert len(kept) == 1 and not [line for line in native if folder in line], kept
        with tempfile.NamedTemporaryFile("r") as report:
            native, pooled = check("closed", report.name, variables=variables, complete=True)
        assert not [line for line in pooled if re.match(r"descriptor [012]:", line) and folder in line], pooled
        assert len(os.listdir(folder)) >= 3, os.listdir(folder)


@case
def hazard_19_nor_does_one_in_a_thread():
    check("thread", complete=True)


@case
def hazard_19_nor_does_the_first_call_of_a_process_whichever_it_is():
    check("first")
    with tempfile.TemporaryDirectory() as folder:
        check("first", variables={"POOL_LOG": "3", "POOL_LOG_FILE": os.path.join(folder, "log")})


@case
def hazard_19_nothing_of_the_library_stays_open_but_its_exports():
    native, pooled = check("all")
    ours = [line for line in pooled if "poolcuda" in line or "/dev/shm" in line]
    assert len(ours) == 1 and re.fullmatch(r"descriptor: /dev/shm/poolcuda-ipc-\S+", ours[0]), ours
    kinds = [sorted(line.split("[")[0] for line in lines if line not in ours) for lines in (native, pooled)]
    assert kinds[0] == kinds[1], kinds


@case
def hazard_19_standard_descriptors_that_are_closed_are_not_taken():
    with tempfile.NamedTemporaryFile("r") as report:
        native, pooled = check("closed", report.name, complete=True)
    for lines in native, pooled:
        taken = [line for line in lines if re.match(r"descriptor [012]:", line) and "socket:" not in line]
        assert not taken, taken


@case
def hazard_19_the_library_uses_nothing_that_changes_a_program():
    if SANITIZER != "none":
        skip("a sanitizer's runtime is among what the library uses")
    done = subprocess.run(["nm", "-D", "--undefined-only", LIBRARY], capture_output=True, text=True, check=True)
    used = {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}
    assert "pthread_mutex_lock" in used, used
    # pthread_create is for POOL_CONTROL=1 alone: preload/control finds no thread without it.
    changing = r"""pthread_kill|pthread_cancel|clone|fork|vfork|posix_spawn\w*|system|popen|exec\w+|exit|_exit|_Exit|
        abort|atexit|on_exit|__assert_fail|signal|sigaction|sigaltstack|raise|alarm|setitimer|timer_create|umask|
        chdir|fchdir|chroot|setlocale|uselocale|setenv|putenv|unsetenv|clearenv|srand\w*|rand\w*|drand48|strtok|
        fesetround|fesetenv|feclearexcept|feenableexcept|setrlimit\w*|prctl|nice|setpriority|sched_setaffinity|
        printf|puts|putchar|perror|syslog|fopen\w*|getopt\w*|dup|dup2|dup3|socket|set\w*uid|set\w*gid|mallopt|
        sem_open|shmget|brk|sbrk|mlock\w*"""
    found = {name for name in used if re.fullmatch(re.sub(r"\s", "", changing), name)}
    assert not found, found


# ---- the stack ----

# What a call takes beyond the driver's own, at most: the first of a process, and later ones (of a debug build).
STACK_BOUNDS = 5 << 10, 8 << 10


@case
def hazard_19_a_call_takes_little_of_the_callers_stack():
    if SANITIZER != "none":
        skip("a sanitizer's code takes more stack")
    with tempfile.TemporaryDirectory() as folder:
        for variables in ({}, {"POOL_LOG": "3", "POOL_LOG_FILE": os.path.join(folder, "log"), "POOL_FREE": "event"},
                          {"POOL_TRACE": os.path.join(folder, "recording.%p")}):
            native, pooled = ({name: (int(first), int(later)) for name, first, later in
                               re.findall(r"(\w+): (\d+) (\d+)", run([GUEST, "stack"], pool=pool,
                                                                     variables=dict(DEVICES, **variables)))}
                              for pool in (False, True))
            assert hooks() < set(native) and set(native) == set(pooled)
            more = {name: (pooled[name][0] - native[name][0], pooled[name][1] - native[name][1]) for name in native}
            much = {name: both for name, both in more.items() if both[0] > STACK_BOUNDS[0] or both[1] > STACK_BOUNDS[1]}
            assert not much, f"bytes more than natively, in the first call and in later ones: {much}"


@case
def hazard_19_calls_are_made_on_the_smallest_stack():
    if SANITIZER != "none":
        skip("a sanitizer's code takes more stack")
    lines = ["call 0: 0", "call 1: 0", "call 2: 0", "call 3: 0", "call 4: 0", "call 5: 0", "call 6: 2"]
    for pool in False, True:
        assert run([GUEST, "small"], pool=pool).splitlines() == lines


main()

# SPDX-License-Identifier: MIT
"""Many processes, and children of every kind: programs run on as natively, and what one process publishes is touched by
no other."""
import json
import os
import random
import signal
import subprocess
import threading
import time

from isolated import ISOLATED, SHM, await_ready, isolate, need_isolation, segment_bytes, segments, unshare
from preload import Guest, LIBRARY, built, environment, expect, figures, launch, run, same
from tap import case, main

POOLSTAT = os.environ["PRELOAD_POOLSTAT"]
SANITIZER = os.environ.get("PRELOAD_SANITIZER", "none")
GUEST = "hazard_process"

# Filled heaps cost more than all else in so many processes: the simulated driver has large tables.
os.environ["MALLOC_PERTURB_"] = "0"


NEVER_COMPLETED = "the segment was never completed by its process; try again"


def read_poolstat(codes=(0,)):
    """What `poolstat --json` says of all processes. Code 4: of one that was killed while it began."""
    done = subprocess.run([POOLSTAT, "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode in codes, (done.returncode, done.stdout, done.stderr)
    document = json.loads(done.stdout)
    problems = {problem["message"] for problem in document["problems"]}
    assert problems == ({NEVER_COMPLETED} if done.returncode == 4 else set()), document
    return document


def numbers(value):
    """Every number in a document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


# ---- 36: many processes ----


class Reader(threading.Thread):
    """poolstat, over and over, until the block ends."""

    def __init__(self):
        super().__init__()
        self.over, self.error, self.seen = threading.Event(), None, 0

    def run(self):
        while not self.over.is_set() and not self.error:
            try:
                processes = read_poolstat(codes=(0, 1, 4))["processes"]
                self.seen = max(self.seen, len(processes))
                for process in processes:
                    negative = [number for number in numbers(process) if number < 0]
                    assert not negative, process
            except Exception as error:  # pylint: disable=broad-except
                self.error = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        if self.error:
            raise self.error


@case
def hazard_36_processes_killed_under_load_harm_no_reader_and_no_other_process():
    need_isolation()
    rounds, chance = (8 if "thread" in SANITIZER else 16), random.Random(36)
    with Guest([GUEST, "later"]) as witness, Reader() as reader:
        witness.until_ready()
        before = segment_bytes(witness.process.pid)
        for _ in range(rounds):
            workers = [subprocess.Popen(**launch([GUEST, "work"], environment()), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
            time.sleep(chance.uniform(0, 0.12) * (1 if SANITIZER == "none" else 4))
            for worker in workers:
                worker.send_signal(signal.SIGKILL)
            for worker in workers:
                out = worker.communicate(timeout=60)[0]
                assert (worker.returncode, out) == (-signal.SIGKILL, b""), (worker.returncode, out)
        assert segment_bytes(witness.process.pid) == before, "the figures of another process were changed"
        expect(witness.figures(), allocs=2, frees=1)
        witness.go_on()
        assert "calls that failed: 0" in witness.end()
    assert reader.seen >= 2, reader.seen
    # What the last of them left goes with the next that starts, but for a file that was not yet one of figures.
    run([GUEST, "use"])
    for name in segments():
        with open(os.path.join(SHM, name), "rb") as file:
            assert file.read(8).strip(b"\0") == b"", f"{name} is left"
        os.unlink(os.path.join(SHM, name))


@case
def hazard_36_sixty_four_processes_start_and_end_at_once():
    need_isolation()
    count = 16 if "thread" in SANITIZER else 64
    guests = [Guest([GUEST, "come_and_go"]) for _ in range(count)]
    try:
        with Reader():
            for guest in guests:
                guest.until_ready()
            for guest in guests:
                guest.go_on()
            for guest in guests:
                guest.until_ready()
            assert len(read_poolstat()["processes"]) == count
            for guest in guests:
                guest.go_on()
            for guest in guests:
                assert guest.process.wait(timeout=120) == 0, guest.process.stderr.read()
        for guest in guests:
            assert guest.process.stderr.read() == ""
        assert not segments(), segments()
    finally:
        for guest in guests:
            guest.__exit__()


def in_other_pids(*words):
    """A guest that is process 1 of pid namespaces of its own, over the same /dev/shm."""
    command = [*unshare("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"), "env",
               f"LD_PRELOAD={LIBRARY}", built(GUEST), *words]
    return subprocess.Popen(command, env=environment(pool=False), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@case
def hazard_36_two_pid_namespaces_share_one_shared_memory():
    need_isolation()
    others = []
    try:
        for _ in range(2):
            others.append(in_other_pids("later"))
            time.sleep(0.05)  # each is process 1: it is by the clock tick of their start that their names differ
        for other in others:
            await_ready(other)
        theirs = segments(1)
        assert len(theirs) == 2, segments()
        with Guest([GUEST, "later"]) as own:
            own.until_ready()
            # No start has removed the figures of another namespace's process 1, and each is shown under its own pid.
            assert len(segments()) == 3 and theirs < segments(), segments()
            shown = read_poolstat()["processes"]
            assert len({process["pid"] for process in shown}) == 3, shown
            assert sorted(process["namespace_pid"] for process in shown)[:2] == [1, 1], shown
            others[0].kill()
            others[0].wait()
            run([GUEST, "use"])
            assert segments(1) == theirs, "the figures of a process that cannot be seen from here were removed"
            assert len(read_poolstat()["processes"]) == 2
            others[1].stdin.write("\n")
            others[1].stdin.flush()
            assert others[1].wait(timeout=60) == 0
            assert len(segments(1)) == 1, segments()
            own.go_on()
            own.end()
    finally:
        for other in others:
            other.kill()
            other.communicate()
        for name in segments(1):
            os.unlink(os.path.join(SHM, name))


# ---- 37: children ----

WAYS = "fork", "raw", "raw_fork", "clone", "daemon"


def ways():
    # A sanitizer's own state does not survive a clone that it is not told of.
    return WAYS if SANITIZER == "none" else ("fork", "daemon")


@case
def hazard_37_a_child_made_before_the_first_call_uses_cuda_as_any_process():
    for way in ways():
        for parent in "before", "looked":
            lines = same([GUEST, parent, way])
            assert "child: cudaMalloc: 0" in lines and "parent: cudaMalloc: 0" in lines, lines


@case
def hazard_37_such_a_child_has_figures_of_its_own():
    for way in [way for way in ways() if way != "daemon"]:
        for parent in "before", "looked":
            with Guest([GUEST, parent, way, "wait"]) as guest:
                guest.until_ready()
                (child,) = [int(line.split()[1]) for line in guest.lines if line.startswith("pid ")]
                expect(figures(child), allocs=4, frees=3, pass_forked=0, bad_frees=0, state=1)
                own = guest.figures()
                assert own is None if parent == "before" else own["allocs"] == 0, own
                guest.go_on()
                if parent == "before":
                    guest.until_ready()
                    assert "child: 3" in guest.lines, guest.lines
                    assert not segments(child), "a child that ended has left its figures"
                    expect(guest.figures(), allocs=3, frees=3, pass_forked=0)
                guest.end()
            assert not segments(child) and not segments(guest.process.pid)


@case
def hazard_37_a_child_of_a_parent_that_uses_cuda_is_answered_as_natively():
    for way in ways():
        for variables in {}, {"POOL_FREE": "event"}:
            lines = same([GUEST, "after", way], variables=variables)
            assert "child: cudaMalloc: 3" in lines and "parent frees: 0" in lines, lines


@case
def hazard_37_no_child_touches_its_parents_figures():
    for way in ways():
        with Guest([GUEST, "after", way, "wait"]) as guest:
            guest.until_ready()
            before = segment_bytes(guest.process.pid)
            guest.go_on()
            guest.until_ready()  # it has had a child that ended, and one that had a child
            assert guest.lines.count("child: 3") == 1 and "child: 4" in guest.lines, guest.lines
            assert segment_bytes(guest.process.pid) == before, f"{way}: the child wrote into its parent's figures"
            assert len(segments()) == 1 or os.environ.get(ISOLATED) != "1", segments()
            expect(guest.figures(), allocs=2, frees=1, pass_forked=0, bad_frees=0, state=1)
            guest.end()
        assert not segments(guest.process.pid)


@case
def hazard_37_programs_that_the_program_starts_are_pooled_for_themselves():
    lines = same([GUEST, "programs"])
    assert lines.count("program: cudaMalloc: 0") == 5, lines
    with Guest([GUEST, "programs"]) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=6, frees=5, pass_forked=0, bad_frees=0)
        assert len(segments()) == 1 or os.environ.get(ISOLATED) != "1", segments()
        guest.end()


@case
def hazard_37_a_program_that_becomes_another_has_that_ones_figures():
    same([GUEST, "exec"])
    with Guest([GUEST, "exec"]) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=3, frees=3, state=1)
        assert len(segments(guest.process.pid)) == 1
        guest.end()
    assert not segments(guest.process.pid)


def amid(what, variables=None):
    for way in [way for way in ways() if way in ("fork", "raw")]:
        lines = same([GUEST, "amid", way, what], variables=variables)
        assert lines == ["children that came back with 3: 24 of 24"], lines


@case
def hazard_37_a_fork_amid_hits_does_not_hang_the_child():
    amid("hits")


@case
def hazard_37_a_fork_amid_misses_does_not_hang_the_child():
    amid("misses", {"SIM_LATENCY": "cuMemAlloc_v2:300,cuMemFree_v2:300", "POOL_TRIM_MB": "1"})


@case
def hazard_37_a_fork_amid_look_ups_does_not_hang_the_child():
    amid("lookups")


@case
def hazard_37_handlers_of_the_program_may_call_cuda_around_a_fork():
    # Those of parent and child run side by side.
    lines, native = (sorted(run([GUEST, "handlers", "fork"], pool=pool).splitlines()) for pool in (True, False))
    assert lines == native, f"native: {native}\npooled: {lines}"
    assert "first in child: cudaMalloc: 3, cudaFree: 3" in lines, lines
    assert "last in parent: cudaMalloc: 0, cudaFree: 0" in lines, lines


isolate()
main()

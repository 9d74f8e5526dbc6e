# SPDX-License-Identifier: MIT
"""Ends and forks of a process under the pool are as natively; its figures end with it."""
import os
import signal

from preload import Guest, expect, same
from tap import case, main, skip


def segments(pid):
    return [name for name in os.listdir("/dev/shm") if name.startswith("poolcuda-") and f"-{pid}-" in name]


def end(how, status):
    return same(["preload_exit", how], status=status)


@case
def hazard_26_exit_with_late_frees_as_natively():
    lines = end("exit", 5)
    assert len(lines) == 3, lines


@case
def hazard_26_return_from_main_with_late_frees_as_natively():
    lines = end("return", 6)
    assert len(lines) == 3, lines


@case
def hazard_26_a_normal_end_leaves_no_figures():
    with Guest(["preload_exit", "wait"]) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=3, frees=1)
        assert len(segments(guest.process.pid)) == 1
        guest.end(status=6)
        assert segments(guest.process.pid) == []


def ends_at_once(how, status):
    """Ends without handlers: the figures stay behind, for poolstat to find them stale."""
    with Guest(["preload_exit", how]) as guest:
        out, err = guest.process.communicate("", timeout=60)
        assert guest.process.returncode == status, (guest.process.returncode, out, err)
        left = segments(guest.process.pid)
        for name in left:
            os.unlink(os.path.join("/dev/shm", name))
        assert len(left) == 1, left


@case
def hazard_26_an_end_at_once_as_natively():
    ends_at_once("_exit", 4)


@case
def hazard_26_abort_as_natively():
    ends_at_once("abort", -signal.SIGABRT)


@case
def kill_as_natively():
    ends_at_once("kill", -signal.SIGKILL)


@case
def hazard_37_a_forked_child_is_answered_as_natively():
    lines = same(["preload_exit", "fork"])
    assert "after: child's status: 3" in lines, lines


@case
def hazard_37_a_fork_amid_the_first_call_does_not_hang_the_child():
    if "thread" in os.environ.get("PRELOAD_SANITIZER", "none"):
        skip("the sanitizer's pthread_once does not begin anew in a child")
    lines = same(["preload_exit", "fork_amid"])
    assert lines == ["amid: child came back from its call: 1"], lines


@case
def hazard_37_a_fork_amid_a_look_up_does_not_hang_the_child():
    lines = same(["preload_exit", "fork_looking_up"], variables={"SIM_LATENCY": "cuGetProcAddress:20000"})
    assert lines == ["looking up: child came back: 1"], lines


@case
def hazard_37_a_fork_amid_a_memory_pools_making_does_not_hang_the_child():
    if os.environ.get("PRELOAD_SANITIZER", "none") != "none":
        skip("the program's own realloc stands before the sanitizer's")
    lines = same(["preload_fork_pools"])
    assert lines == ["child came back: 1"], lines


@case
def hazard_37_a_forked_child_leaves_its_parents_figures_alone():
    with Guest(["preload_exit", "fork"]) as guest:
        guest.until_ready()
        expect(guest.figures(), allocs=3, frees=0, pass_forked=0, bad_frees=0, state=1)
        guest.end()


main()

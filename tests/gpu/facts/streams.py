# SPDX-License-Identifier: MIT
"""Questions about streams and events: their numbers and handles, their order, and what becomes of them."""

import ctypes
from ctypes import byref

from ask import fact
from cuda import (
    CAPTURES_NOT,
    INVALIDATED,
    RELAXED,
    U64,
    begin,
    captured,
    cu,
    done,
    end,
    hold,
    in_child,
    in_thread,
    load_kernels,
    made,
    malloc,
    malloc_async,
    primary,
    recorded,
    run_kernel,
    status,
    stream,
    waited,
)

BLOCKING = 0
GARBAGE = 0xDEADBEEF000


def number(on):
    value = U64()
    code = cu.cuStreamGetId(on, byref(value))
    return value.value if code == 0 else f"code {code}"


@fact(32)
def captures_of_destroyed_streams(answer):
    def joined():
        first, second = stream(), stream()
        begin(first)
        done(cu.cuStreamWaitEvent(second, recorded(first), 0), "cuStreamWaitEvent")
        return first, second

    first, second = joined()
    answer("cuStreamDestroy of the first", 0, cu.cuStreamDestroy(first))
    answer("status of the joined one", CAPTURES_NOT, status(second))
    answer("cuMemAlloc in the thread", 0, cu.cuMemAlloc(byref(U64()), 512))
    first, second = joined()
    answer("cuStreamDestroy of the joined one", 0, cu.cuStreamDestroy(second))
    answer("status of the first", INVALIDATED, status(first))
    answer("cuStreamEndCapture", 901, end(first)[0])


@fact(34)
def events_of_ended_captures(answer):
    on, marks = stream(), []
    captured(on, lambda: marks.append(recorded(on)))
    answer("cuStreamWaitEvent", 907, cu.cuStreamWaitEvent(stream(), marks[0], 0))
    answer("cuCtxWaitEvent", 907, cu.cuCtxWaitEvent(made(cu.cuCtxGetCurrent), marks[0]))


@fact(40, alone=True)
def event_before_a_destroy(answer):
    load_kernels()
    on = stream()
    hold(on)
    mark = recorded(on)
    answer("cuStreamDestroy", (0, False), waited(cu.cuStreamDestroy, on))
    answer("cuEventQuery at once", 600, cu.cuEventQuery(mark))
    answer("after a synchronise", 0, (cu.cuCtxSynchronize(), cu.cuEventQuery(mark))[1])


@fact(41, alone=True)
def stream_ordered_calls_on_the_legacy_stream(answer):
    load_kernels()
    for what in "cuMemFreeAsync", "cuMemAllocAsync":
        first, second = stream(BLOCKING), stream(BLOCKING)
        address = malloc_async(4096, second)
        done(cu.cuCtxSynchronize())
        hold(first)
        if what == "cuMemFreeAsync":
            done(cu.cuMemFreeAsync(address, 0), what)
        else:
            done(cu.cuMemAllocAsync(byref(U64()), 4096, 0), what)
        done(run_kernel(second), "a launch")
        answer(
            f"a kernel on a blocking stream after {what}(…, 0) waits for one on another",
            600,
            cu.cuEventQuery(recorded(second)),
        )
        done(cu.cuCtxSynchronize())


@fact(54)
def numbers_of_streams(answer):
    mine = [number(handle) for handle in (0, 1, 2)]
    theirs = in_thread(lambda: [number(handle) for handle in (0, 1, 2)])
    answer("0's is 1's", True, mine[0] == mine[1])
    answer("0's is the same in another thread", True, mine[0] == theirs[0])
    answer("2's is another there", True, mine[2] != theirs[2])
    value = U64()
    done(cu.cuStreamGetId_ptsz(0, byref(value)), "cuStreamGetId_ptsz")
    answer("cuStreamGetId_ptsz of 0 is that of 2", mine[2], value.value)
    seen, handles = [], []
    for _ in range(8):
        on = stream()
        seen.append(number(on))
        handles.append(on)
        cu.cuStreamDestroy(on)
    answer("numbers of destroyed streams come again", False, len(set(seen)) < len(seen))
    answer.note("numbers", [*mine, *theirs, *seen])
    answer.note("different handles of eight", len(set(handles)))


def anew(work):
    """What `work` returns in a child that initialises CUDA itself."""
    return in_child(lambda: (primary(), work())[1])


@fact(55, bare=True)
def handles_of_nothing(answer):
    calls = {
        "cuStreamQuery": lambda on: cu.cuStreamQuery(on),
        "cuStreamWaitEvent": lambda on: cu.cuStreamWaitEvent(on, recorded(0), 0),
        "cuMemAllocAsync": lambda on: cu.cuMemAllocAsync(byref(U64()), 512, on),
        "cuMemFreeAsync": lambda on: cu.cuMemFreeAsync(malloc_async(512, 0), on),
        "cuStreamGetId": lambda on: number(on),
        "cuStreamDestroy": lambda on: cu.cuStreamDestroy(on),
    }

    def destroyed(call):
        def work():
            on = stream()
            done(cu.cuStreamDestroy(on))
            return call(on)

        return work

    for name, call in calls.items():
        answer(f"{name} of a destroyed stream", "709", anew(destroyed(call)).removeprefix("code "))
        answer(f"{name} of garbage", "400", anew(lambda call=call: call(GARBAGE)).removeprefix("code "))
    answer("cuStreamIsCapturing of garbage", "ends", anew(lambda: status(GARBAGE)).split(" ")[0])
    answer(
        "cuStreamDestroy of 0, 1, 2",
        "[400, 400, 400]",
        anew(lambda: [cu.cuStreamDestroy(handle) for handle in (0, 1, 2)]),
    )


@fact(33)
def copy_on_the_per_thread_stream(answer):
    address, blocking, host = malloc(), stream(BLOCKING), ctypes.create_string_buffer(64)
    begin(blocking, RELAXED)
    answer(
        "cuMemcpyDtoH_v2_ptds amid a relaxed capture of a blocking stream",
        0,
        cu.cuMemcpyDtoH_v2_ptds(host, address, 64),
    )
    answer("the capture ends", 0, end(blocking)[0])

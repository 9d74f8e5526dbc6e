# SPDX-License-Identifier: MIT
"""Questions about contexts: primary, created and green ones, resets, forks, and work between devices."""

import ctypes
import threading
from ctypes import byref

from ask import fact
from cuda import (
    LONG_MS,
    MIB,
    U64,
    cu,
    created,
    default_pool,
    device,
    done,
    event,
    executable,
    captured,
    hold,
    in_child,
    load_kernels,
    made,
    malloc,
    malloc_async,
    primary,
    recorded,
    run_kernel,
    stream,
    waited,
)
from memory import Access


def primary_state(ordinal=0):
    flags, active = ctypes.c_uint(), ctypes.c_int()
    done(cu.cuDevicePrimaryCtxGetState(device(ordinal), byref(flags), byref(active)), "cuDevicePrimaryCtxGetState")
    return [flags.value, active.value]


@fact(1)
def retain_and_release_in_turn(answer):
    address = malloc()
    before = primary_state()
    context = made(cu.cuDevicePrimaryCtxRetain, 0)
    answer("cuDevicePrimaryCtxRelease", 0, cu.cuDevicePrimaryCtxRelease(0))
    answer("state as before", before, primary_state())
    answer("the same handle is current", context, made(cu.cuCtxGetCurrent))
    answer("cuMemFree of memory from before", 0, cu.cuMemFree(address))


@fact(13, bare=True)
def reset_of_the_primary_context(answer):
    context = primary()
    answer("cuDevicePrimaryCtxReset", 0, cu.cuDevicePrimaryCtxReset(0))
    answer("active in between", 0, primary_state()[1])
    answer("the same handle on the next retain", True, made(cu.cuDevicePrimaryCtxRetain, 0) == context)


@fact(14, bare=True)
def releases_after_a_reset(answer):
    primary()
    primary()
    cu.cuDevicePrimaryCtxReset(0)
    answer(
        "three releases after two retains and a reset", [0, 0, 201], [cu.cuDevicePrimaryCtxRelease(0) for _ in range(3)]
    )


@fact(19)
def forked_child(answer):
    said = in_child(lambda: [cu.cuInit(0), cu.cuMemAlloc(byref(U64()), 512), cu.cuCtxGetCurrent(byref(U64()))])
    answer("cuInit, cuMemAlloc, cuCtxGetCurrent in the child", "[3, 3, 3]", said)


class Green:
    """A green context with all multiprocessors of the first device."""

    def __init__(self):
        resource, description, self.handle, context = ctypes.create_string_buffer(1024), U64(), U64(), U64()
        done(cu.cuDeviceGetDevResource(0, resource, 1), "cuDeviceGetDevResource")
        done(cu.cuDevResourceGenerateDesc(byref(description), resource, 1), "cuDevResourceGenerateDesc")
        done(cu.cuGreenCtxCreate(byref(self.handle), description.value, 0, 1), "cuGreenCtxCreate")
        done(cu.cuCtxFromGreenCtx(byref(context), self.handle.value), "cuCtxFromGreenCtx")
        self.context = context.value

    def stream(self):
        return made(cu.cuGreenCtxStreamCreate, self.handle.value, 1, 0)


def number(on):
    value = U64()
    code = cu.cuStreamGetId(on, byref(value))
    return value.value if code == 0 else f"code {code}"


@fact(28, alone=True)
def default_stream_of_a_green_context(answer):
    load_kernels()
    context, green = primary(), Green()
    legacy = number(0)
    cu.cuCtxSetCurrent(green.context)
    load_kernels()
    answer("its stream 0 is another", True, number(0) != legacy)
    answer("cuStreamGetId(2) under it", "code 400", number(2))
    hold(0)
    cu.cuCtxSetCurrent(context)
    done(run_kernel(0))
    mark = recorded(0)
    answer("the primary's stream 0 comes after it: cuEventQuery", 600, cu.cuEventQuery(mark))
    answer("and then", 0, cu.cuEventSynchronize(mark))


@fact(29, alone=True)
def green_context_destroyed(answer):
    load_kernels()
    context, green = primary(), Green()
    cu.cuCtxSetCurrent(green.context)
    on = green.stream()
    load_kernels()
    hold(on)
    cu.cuCtxSetCurrent(context)
    answer("cuGreenCtxDestroy", (0, False), waited(cu.cuGreenCtxDestroy, green.handle.value))
    mark = event()
    done(cu.cuCtxRecordEvent(context, mark), "cuCtxRecordEvent")
    answer("its work is covered by a later event: cuEventQuery", 600, cu.cuEventQuery(mark))


@fact(30, alone=True)
def synchronise_under_a_green_context(answer):
    load_kernels()
    green, on = Green(), stream()
    cu.cuCtxSetCurrent(green.context)
    cu.cuCtxSynchronize()
    primary()
    hold(on)
    cu.cuCtxSetCurrent(green.context)
    answer("cuCtxSynchronize waits for an ordinary stream", (0, False), waited(cu.cuCtxSynchronize))


@fact(35)
def copies_without_peer_access(answer):
    context, here = primary(), malloc()
    primary(1)
    there = malloc()
    cu.cuCtxSetCurrent(context)
    on = stream()
    codes = [
        cu.cuMemsetD8Async(there, 1, 4096, on),
        cu.cuMemcpyDtoDAsync(there, here, 4096, on),
        cu.cuStreamSynchronize(on),
    ]
    answer("fill, copy, synchronise", [0, 0, 0], codes)


@fact(36, alone=True)
def access_when_the_kernel_runs(answer):
    context, second = primary(), primary(1)
    there = malloc()
    cu.cuCtxSetCurrent(context)
    load_kernels()
    on = stream()
    hold(on)
    done(run_kernel(on, 0, [there]))
    answer("cuCtxEnablePeerAccess amid a kernel", 0, cu.cuCtxEnablePeerAccess(second, 0))
    answer("the kernel launched before it", 0, cu.cuStreamSynchronize(on))


@fact(37)
def access_to_graph_memory(answer):
    context, other = primary(), device(1)
    pool, on, addresses = default_pool(), stream(), []
    done(cu.cuMemPoolSetAccess(pool, byref(Access(1, other, 3)), 1))
    before = captured(on, lambda: addresses.append(malloc_async(4096, on)))
    done(cu.cuMemPoolSetAccess(pool, byref(Access(1, other, 0)), 1))
    after = captured(on, lambda: addresses.append(malloc_async(4096, on)))
    done(cu.cuMemPoolSetAccess(pool, byref(Access(1, other, 3)), 1))
    for graph in before, after:
        done(cu.cuGraphLaunch(executable(graph), on))
    cu.cuStreamSynchronize(on)
    primary(1)
    codes = []
    for address in addresses:
        done(run_kernel(0, 0, [address]), "a launch")
        codes.append(cu.cuCtxSynchronize())
    answer("kernels of the other device: with access before the capture, set after it", [0, 700], codes)
    cu.cuCtxSetCurrent(context)


@fact(39, alone=True)
def reach_of_a_context_event(answer):
    load_kernels()
    context = primary()
    green = Green()
    cu.cuCtxSetCurrent(green.context)
    of_green = green.stream()
    load_kernels()
    cu.cuCtxSetCurrent(context)

    def on_own_stream():
        done(cu.cuCtxSetCurrent(context))
        hold(2)

    def on_destroyed():
        on = stream()
        hold(on)
        cu.cuStreamDestroy(on)

    def in_green():
        cu.cuCtxSetCurrent(green.context)
        hold(of_green)

    for what, work in (
        ("a non-blocking stream", lambda: hold(made(cu.cuStreamCreate, 1))),
        ("a per-thread stream", on_own_stream),
        ("a stream of a green context", in_green),
        ("a destroyed stream", on_destroyed),
    ):

        def run(work=work):
            cu.cuCtxSetCurrent(context)
            work()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        mark = event()
        code, slow = waited(cu.cuCtxRecordEvent, context, mark)
        answer(f"{what}: cuCtxRecordEvent, waits", (0, False), (code, slow))
        answer(f"{what}: cuEventQuery at once", 600, cu.cuEventQuery(mark))
        answer(f"{what}: after a synchronise", 0, (cu.cuCtxSynchronize(), cu.cuEventQuery(mark))[1])

    full = stream()
    hold(full)

    def fill():
        cu.cuCtxSetCurrent(context)
        for _ in range(2000):
            run_kernel(full)

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join(LONG_MS / 1000 / 4)
    mark = event()
    answer("a full stream: cuCtxRecordEvent, waits", (0, False), waited(cu.cuCtxRecordEvent, context, mark))
    thread.join()


@fact(68)
def memory_of_a_destroyed_context(answer):
    first, context = primary(), created()
    plain = malloc()
    on = stream()
    ordered = malloc_async(MIB, on)
    cu.cuStreamSynchronize(on)
    cu.cuCtxDestroy(context)
    cu.cuCtxSetCurrent(first)
    answer("cuMemFree of its memory", 1, cu.cuMemFree(plain))
    found = U64()
    answer("CU_POINTER_ATTRIBUTE_CONTEXT of it", 1, cu.cuPointerGetAttribute(byref(found), 1, plain))
    answer("cuMemFree of its stream-ordered memory", 0, cu.cuMemFree(ordered))


@fact(81)
def attach_and_detach(answer):
    first, context = primary(), created()
    attached = U64()
    answer("cuCtxAttach", 0, cu.cuCtxAttach(byref(attached), 0))
    answer("cuCtxDetach that is not the last", 0, cu.cuCtxDetach(context))
    answer("it stays current", context, made(cu.cuCtxGetCurrent))
    answer("cuMemAlloc", 0, cu.cuMemAlloc(byref(U64()), 512))
    cu.cuCtxAttach(byref(attached), 0)
    answer("cuCtxDestroy whatever the count", 0, cu.cuCtxDestroy(context))
    answer("it has ended: cuCtxSetCurrent succeeds", False, cu.cuCtxSetCurrent(context) == 0)
    cu.cuCtxSetCurrent(first)
    answer("cuCtxAttach to a primary context", 201, cu.cuCtxAttach(byref(attached), 0))


@fact(82, bare=True)
def frees_under_a_reset_context(answer):
    primary()
    on = stream()
    address = malloc_async(MIB, on)
    cu.cuStreamSynchronize(on)
    cu.cuDevicePrimaryCtxReset(0)
    answer("cuMemFree of stream-ordered memory", 709, cu.cuMemFree(address))
    primary()
    answer("after another retain", 0, cu.cuMemFree(address))

# SPDX-License-Identifier: MIT
"""Questions about captures: what is refused amid them, in which mode and thread, and what they survive."""

import ctypes
import mmap
from ctypes import byref

from ask import fact
from cuda import (
    CAPTURES_NOT,
    CAPTURING,
    GLOBAL,
    INVALIDATED,
    MODES,
    RELAXED,
    U64,
    begin,
    cu,
    default_pool,
    done,
    end,
    event,
    exchange,
    in_thread,
    made,
    malloc,
    malloc_async,
    recorded,
    rt,
    run_kernel,
    status,
    stream,
)
from memory import pool_made
from streams import BLOCKING, number

REFUSED, ALLOWED = [900, INVALIDATED], [0, CAPTURING]
IMPLICIT = 906


def amid(mode, work, flags=1, elsewhere=False):
    """[what `work` of the capturing stream answers, the capture's status after it], in the capturing thread or in another."""
    on = stream(flags)
    begin(on, mode)
    code = in_thread(lambda: work(on)) if elsewhere else work(on)
    found = [code, status(on)]
    end(on)
    return found


def refused_in(mode, elsewhere):
    return mode == GLOBAL if elsewhere else mode != RELAXED


@fact(17)
def small_allocations_ask_for_frees(answer):
    for mode, name in MODES.items():
        for elsewhere in False, True:
            address = malloc(512)
            allocation = amid(mode, lambda _: cu.cuMemAlloc(byref(U64()), 512), elsewhere=elsewhere)
            free = amid(mode, lambda _: cu.cuMemFree(address), elsewhere=elsewhere)
            where = "another thread" if elsewhere else "the capturing thread"
            answer(f"{name}, {where}: cuMemAlloc of 512 bytes as cuMemFree", free, allocation)


@fact(18)
def context_synchronise_amid_a_capture(answer):
    answer("cuCtxSynchronize", REFUSED, amid(GLOBAL, lambda _: cu.cuCtxSynchronize()))


@fact(31)
def numbers_of_capturing_streams(answer):
    for mode, name in MODES.items():
        for own, own_name in MODES.items():

            def ask(on, own=own):
                before = exchange(own)
                found = number(on)
                exchange(before)
                return 0 if isinstance(found, int) else found

            answer(
                f"{name} capture, thread in {own_name} mode: cuStreamGetId",
                ALLOWED if mode == RELAXED else ["code 900", INVALIDATED],
                amid(mode, ask),
            )


@fact(38)
def fills_amid_a_global_capture(answer):
    address, other, on = malloc(), stream(), stream()
    begin(on)

    def fill():
        exchange(RELAXED)
        new = U64()
        codes = [cu.cuStreamCreate(byref(new), 1)]
        for used in new.value, other:
            codes += [cu.cuMemsetD8Async(address, 1, 4096, used), cu.cuStreamSynchronize(used)]
        return codes

    answer("create, fill, synchronise; fill, synchronise on another", [0] * 5, in_thread(fill))
    answer("status", CAPTURING, status(on))
    answer("cuStreamEndCapture", 0, end(on)[0])


@fact(44)
def frees_in_relaxed_mode(answer):
    for mode, name in MODES.items():
        for elsewhere in False, True:
            plain, other = malloc(), stream()
            ordered = malloc_async(65536, other)
            done(cu.cuStreamSynchronize(other))
            pool = default_pool()

            def free(_, plain=plain, ordered=ordered, pool=pool):
                before = exchange(RELAXED)
                codes = [cu.cuMemFree(plain), cu.cuMemFree(ordered), cu.cuMemPoolTrimTo(pool, 0)]
                exchange(before)
                return codes

            answer(
                f"{name}, {'another' if elsewhere else 'the capturing'} thread: cuMemFree, of stream-ordered memory, cuMemPoolTrimTo",
                [[0, 0, 0], CAPTURING],
                amid(mode, free, elsewhere=elsewhere),
            )


@fact(45)
def events_recorded_amid_captures(answer):
    other, on, mark, taken = stream(), stream(), event(), event()
    begin(on)
    answer("cuEventRecord on a stream that does not capture", 0, in_thread(lambda: cu.cuEventRecord(mark, other)))
    answer("status", CAPTURING, status(on))
    answer("cuEventRecord on the one that does, from another thread", 0, in_thread(lambda: cu.cuEventRecord(taken, on)))
    answer("status after it", CAPTURING, status(on))
    answer("cuStreamEndCapture", 0, end(on)[0])
    answer("cuEventQuery of the first is 0 or 600", True, cu.cuEventQuery(mark) in (0, 600))
    answer("cuEventQuery of the second", 907, cu.cuEventQuery(taken))


@fact(48)
def frees_amid_captures(answer):
    for mode, name in MODES.items():
        assumed = REFUSED if refused_in(mode, False) else ALLOWED
        pointer = U64()
        rt.cudaMalloc(byref(pointer), 65536)
        plain = malloc()
        for what, work in (
            ("cudaFree(NULL)", lambda _: rt.cudaFree(None)),
            ("cudaFree(p)", lambda _, p=pointer.value: rt.cudaFree(p)),
            ("cuMemFree(d)", lambda _, p=plain: cu.cuMemFree(p)),
        ):
            answer(f"{name}: {what}", assumed, amid(mode, work))
            rt.cudaGetLastError()
        for what, work in (
            ("cudaFree(NULL)", lambda _: rt.cudaFree(None)),
            ("cuMemFree(d)", lambda _: cu.cuMemFree(malloc_before)),
        ):
            malloc_before = malloc()
            answer.note(f"{name}: {what} of another thread", amid(mode, work, elsewhere=True))
            rt.cudaGetLastError()


@fact(49)
def ordinary_memory_freed_in_a_capture(answer):
    other = stream()
    ordered = malloc_async(65536, other)
    done(cu.cuStreamSynchronize(other))
    for what, address in ("cudaMalloc's", malloc()), ("a pool's", ordered):
        answer(
            f"cudaFreeAsync of {what} memory",
            [1, INVALIDATED],
            amid(GLOBAL, lambda on, address=address: rt.cudaFreeAsync(address, on)),
        )
        rt.cudaGetLastError()


def unsafe_calls():
    """Calls that a capture forbids by its mode; each made anew for one try."""
    pinned, plain, idle, mark = made(cu.cuMemHostAlloc, 4096, 0), malloc(), stream(), recorded(0)
    page = ctypes.addressof(ctypes.c_char.from_buffer(mmap.mmap(-1, 4096)))
    cu.cuCtxSynchronize()
    handle, pool = ctypes.create_string_buffer(64), default_pool()
    return {
        "cuMemAlloc": lambda on: cu.cuMemAlloc(byref(U64()), 512),
        "cuMemFree": lambda on: cu.cuMemFree(plain),
        "cuMemAllocManaged": lambda on: cu.cuMemAllocManaged(byref(U64()), 512, 1),
        "cuMemHostAlloc": lambda on: cu.cuMemHostAlloc(byref(U64()), 512, 0),
        "cuMemFreeHost": lambda on: cu.cuMemFreeHost(pinned),
        "cuMemHostRegister": lambda on: cu.cuMemHostRegister(page, 4096, 0),
        "cuIpcGetMemHandle": lambda on: cu.cuIpcGetMemHandle(handle, plain),
        "cuMemPoolCreate": lambda on: refused(pool_made),
        "cuMemPoolTrimTo": lambda on: cu.cuMemPoolTrimTo(pool, 0),
        "cuMemGetInfo": lambda on: cu.cuMemGetInfo(byref(U64()), byref(U64())),
        "cuEventQuery": lambda on: cu.cuEventQuery(mark),
        "cuEventSynchronize": lambda on: cu.cuEventSynchronize(mark),
        "cuStreamSynchronize of another": lambda on: cu.cuStreamSynchronize(idle),
    }


def refused(work):
    """The code of what raises it."""
    try:
        work()
    except Exception as reason:  # pylint: disable=broad-except
        return int(str(reason).rsplit(" ", 1)[1])
    return 0


def harmless_calls():
    other, value, number_of, one = stream(), U64(), ctypes.c_int(), ctypes.c_uint(1)
    ordered, plain, context = malloc_async(512, other), malloc(), made(cu.cuCtxGetCurrent)
    cu.cuCtxSynchronize()
    return {
        "cuCtxGetCurrent": lambda on: cu.cuCtxGetCurrent(byref(value)),
        "cuCtxSetCurrent": lambda on: cu.cuCtxSetCurrent(context),
        "cuCtxGetDevice": lambda on: cu.cuCtxGetDevice(byref(number_of)),
        "cuDeviceGetAttribute": lambda on: cu.cuDeviceGetAttribute(byref(number_of), 1, 0),
        "cuStreamIsCapturing": lambda on: cu.cuStreamIsCapturing(on, byref(number_of)),
        "cuEventCreate": lambda on: cu.cuEventCreate(byref(value), 2),
        "cuMemAllocAsync on another": lambda on: cu.cuMemAllocAsync(byref(value), 512, other),
        "cuMemFreeAsync on another": lambda on: cu.cuMemFreeAsync(ordered, other),
        "cuPointerGetAttribute": lambda on: cu.cuPointerGetAttribute(byref(value), 11, plain),
        "cuPointerSetAttribute": lambda on: cu.cuPointerSetAttribute(byref(one), 6, plain),
    }


def of_the_capture():
    """Questions about the capturing stream itself."""
    value, number_of = U64(), ctypes.c_int()
    return {
        "cuStreamGetId": lambda on: cu.cuStreamGetId(on, byref(value)),
        "cuStreamGetCtx": lambda on: cu.cuStreamGetCtx(on, byref(value)),
        "cuStreamGetDevice": lambda on: cu.cuStreamGetDevice(on, byref(number_of)),
    }


@fact(56)
def table_of_refusals(answer):
    for mode, name in MODES.items():
        for elsewhere in False, True:
            where = f"{name}, {'another' if elsewhere else 'the same'} thread"
            assumed = REFUSED if refused_in(mode, elsewhere) else ALLOWED
            for what in unsafe_calls():
                answer(f"{where}: {what}", assumed, amid(mode, unsafe_calls()[what], elsewhere=elsewhere))
            for what in harmless_calls():
                answer(f"{where}: {what}", ALLOWED, amid(mode, harmless_calls()[what], elsewhere=elsewhere))
            for what, work in of_the_capture().items():
                answer(
                    f"{where}: {what} of the capturing stream",
                    ALLOWED if mode == RELAXED else REFUSED,
                    amid(mode, work, elsewhere=elsewhere),
                )


@fact(57)
def waits_of_another_thread(answer):
    address, host, mark, idle = malloc(), ctypes.create_string_buffer(64), recorded(0), stream()
    cu.cuCtxSynchronize()
    calls = {
        "cuEventQuery": lambda _: cu.cuEventQuery(mark),
        "cuStreamSynchronize": lambda _: cu.cuStreamSynchronize(idle),
        "cuCtxSynchronize": lambda _: cu.cuCtxSynchronize(),
        "cuMemcpyDtoH": lambda _: cu.cuMemcpyDtoH(host, address, 64),
    }
    for mode, name in MODES.items():
        for flags, kind in (BLOCKING, "blocking"), (1, "non-blocking"):
            for what, work in calls.items():
                assumed = REFUSED if refused_in(mode, True) else ALLOWED
                if flags == BLOCKING and what == "cuMemcpyDtoH":
                    assumed = [IMPLICIT, INVALIDATED]
                if what == "cuCtxSynchronize":
                    assumed = REFUSED
                answer(f"{name}, {kind}: {what}", assumed, amid(mode, work, flags, elsewhere=True))


@fact(58)
def after_a_refusal(answer):
    on = stream()

    def again():
        graph = U64(1)
        codes = [
            status(on),
            run_kernel(on),
            cu.cuStreamBeginCapture(on, GLOBAL),
            cu.cuStreamEndCapture(on, byref(graph)),
            graph.value,
            status(on),
        ]
        begin(on)
        return codes + [end(on)[0]]

    begin(on)
    cu.cuMemAlloc(byref(U64()), 512)
    answer(
        "status, launch, begin, end, the graph, status, a new capture",
        [INVALIDATED, 901, 401, 901, 0, CAPTURES_NOT, 0],
        again(),
    )

    def value_of_legacy(_):
        return cu.cuStreamIsCapturing(0, byref(ctypes.c_int()))

    address, host = malloc(), ctypes.create_string_buffer(64)
    answer(
        "906 of cuMemcpyDtoH",
        [IMPLICIT, INVALIDATED],
        amid(RELAXED, lambda _: cu.cuMemcpyDtoH(host, address, 64), BLOCKING),
    )
    answer("906 of cuStreamIsCapturing(0)", [IMPLICIT, CAPTURING], amid(RELAXED, value_of_legacy, BLOCKING))

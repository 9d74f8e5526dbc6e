# SPDX-License-Identifier: MIT
"""Questions about single calls: look-ups, empty sizes, what is answered where no context is current, the last error."""

import ctypes
import os
import subprocess
from ctypes import byref

from ask import fact
from cuda import MIB, U64, Lacking, attributes, begin, cu, end, hold, malloc, primary, rt, stream
from importer import Importer, handle

UNSET = 0x1


@fact(4, bare=True)
def unknown_names(answer):
    cu.cuInit(0)
    newest = ctypes.c_int()
    cu.cuDriverGetVersion(byref(newest))

    def look_up(name, version, flags=0):
        found, status = U64(UNSET), ctypes.c_int(-1)
        code = cu.cuGetProcAddress(name, byref(found), version, flags, byref(status))
        return f"{code}, {'NULL' if found.value == 0 else 'an address' if found.value != UNSET else 'unchanged'}, {status.value}"

    for name in b"cuNoSuchCall", b"", b"cuMemAlloc_v2":
        answer(
            f"cuGetProcAddress({name.decode()!r}, 12000): result, pointer, status", "0, NULL, 1", look_up(name, 12000)
        )
    answer("cuGetProcAddress('', 0)", "0, NULL, 1", look_up(b"", 0))
    answer("cuGetProcAddress(cuMemAllocAsync, 2000)", "0, NULL, 2", look_up(b"cuMemAllocAsync", 2000))
    pointer = U64()
    answer(
        "a version above the driver's: result",
        1,
        cu.cuGetProcAddress(b"cuMemAlloc", byref(pointer), newest.value + 1000, 0, None),
    )
    answer("NULL name", 1, cu.cuGetProcAddress(None, byref(pointer), 12000, 0, None))
    answer("NULL pointer", 1, cu.cuGetProcAddress(b"cuMemAlloc", None, 12000, 0, None))
    answer("flags 64", 1, cu.cuGetProcAddress(b"cuMemAlloc", byref(pointer), 12000, 64, None))


@fact(5)
def empty_cuda_malloc(answer):
    pointer = U64(UNSET)
    answer("cudaMalloc(&q, 0)", 0, rt.cudaMalloc(byref(pointer), 0))
    answer("q", 0, pointer.value)


@fact(6)
def free_without_a_context(answer):
    context, address = primary(), malloc()
    cu.cuCtxSetCurrent(None)
    answer("cuMemFree(d) with none current", 201, cu.cuMemFree(address))
    cu.cuCtxSetCurrent(context)
    answer("cuMemFree(d) after", 0, cu.cuMemFree(address))


@fact(15)
def memory_info_of_nobody(answer):
    value = U64()
    answer("cuMemGetInfo(NULL, &total)", 0, cu.cuMemGetInfo(None, byref(value)))
    answer("cuMemGetInfo(&free, NULL)", 0, cu.cuMemGetInfo(byref(value), None))
    answer("cuMemGetInfo(NULL, NULL)", 0, cu.cuMemGetInfo(None, None))


def helper(name, **variables):
    """Output of a program that is built beforehand, in GPU_CHECK_PROGRAMS."""
    path = os.path.join(os.environ.get("GPU_CHECK_PROGRAMS", ""), name)
    if not os.path.exists(path):
        raise Lacking(f"{name} is not built")
    environment = {**os.environ, **variables}
    if "LD_PRELOAD" in variables:  # by its name: a path with a blank could not be named
        folder, environment["LD_PRELOAD"] = os.path.split(variables["LD_PRELOAD"])
        environment["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run([path], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


@fact(16, bare=True)
def calls_at_the_end(answer):
    said = helper("late")
    for when in "atexit handler", "static destructor":
        for call in "cudaFree", "cuMemFree", "cudaMalloc":
            answer(f"{call} in {'an' if when[0] == 'a' else 'a'} {when}", "4", said.get(f"{when}, {call}"))


@fact(46, bare=True)
def injected_library(answer):
    library = os.environ.get("GPU_CHECK_POOL")
    if not library:
        raise Lacking("the pool's library is not named")
    injected = os.path.join(os.environ["GPU_CHECK_PROGRAMS"], "injected.so")
    said = helper("door-driver", CUDA_INJECTION64_PATH=injected, LD_PRELOAD=library)
    answer("InitializeInjection is called in cuInit", "yes", said.get("injected"))
    for call in "cuInit", "cuMemAlloc", "cuMemFree":
        answer(f"its {call}", "0", said.get(f"injected, {call}"))
    answer("its dlsym(RTLD_DEFAULT, cuMemAlloc_v2) is of", "libpoolcuda.so", said.get("injected, object"))


@fact(47)
def empty_allocations(answer):
    for name, arguments, assumed in (
        ("cudaMallocHost", (0,), "0, NULL"),
        ("cudaHostAlloc", (0, 0), "0, NULL"),
        ("cudaMallocManaged", (0, 1), "0, NULL"),
        ("cuMemHostAlloc", (0, 0), 0),
        ("cuMemAllocManaged", (0, 1), 1),
    ):
        pointer = U64(UNSET)
        code = getattr(rt if name.startswith("cuda") else cu, name)(byref(pointer), *arguments)
        empty = "NULL" if pointer.value == 0 else "unchanged" if pointer.value == UNSET else "an address"
        answer(f"{name} of 0", assumed, f"{code}, {empty}" if isinstance(assumed, str) else code)
        if not isinstance(assumed, str):
            answer.note(f"{name} of 0: pointer", empty)
    for width, height in (0, 1), (1, 0):
        pointer, pitch = U64(UNSET), U64()
        code = rt.cudaMallocPitch(byref(pointer), byref(pitch), width, height)
        answer(
            f"cudaMallocPitch of {width} × {height}",
            "0, NULL",
            f"{code}, {'NULL' if pointer.value == 0 else pointer.value}",
        )


@fact(50)
def empty_stream_ordered(answer):
    on = stream()
    for name, library in (("cudaMallocAsync", rt), ("cuMemAllocAsync", cu)):
        pointer = U64(UNSET)
        answer(f"{name}(&q, 0)", 0, getattr(library, name)(byref(pointer), 0, on))
        answer(f"{name}: q", 0, pointer.value)


@fact(51)
def null_frees_in_streams(answer):
    on = stream()
    rt.cudaGetLastError()
    answer("cudaFreeAsync(NULL)", 1, rt.cudaFreeAsync(None, on))
    answer.note("the last error after it", rt.cudaGetLastError())
    answer("cuMemFreeAsync(0)", 1, cu.cuMemFreeAsync(0, on))


@fact(62, bare=True)
def attributes_of_unknown_addresses(answer):
    importer = Importer()  # forked before this process calls CUDA
    primary()
    pointer = U64()
    rt.cudaMalloc(byref(pointer), 65536)
    shared = pointer.value
    rt.cudaMalloc(byref(pointer), 4 * MIB)
    freed = pointer.value
    rt.cudaFree(freed)
    host = ctypes.create_string_buffer(64)

    answer("of NULL", "1", attributes(0))
    answer("of freed memory", "0, type 0, device -2", attributes(freed))
    answer("of a host variable", "0, type 0, device -2", attributes(ctypes.addressof(host)))
    answer("of a closed import", "0, type 0, device -2", importer.ask("attributes after close", handle(shared)))


@fact(63)
def last_errors(answer):
    on, mark = stream(), U64()
    rt.cudaEventCreateWithFlags(byref(mark), 2)
    hold(on, 50)
    rt.cudaEventRecord(mark, on)

    def after(what, assumed):
        value = ctypes.c_int()
        first = rt.cudaPeekAtLastError()
        rt.cudaGetDevice(byref(value))
        answer(
            f"{what}: peek, a success, peek, get, get",
            assumed,
            f"{first} {rt.cudaPeekAtLastError()} {rt.cudaGetLastError()} {rt.cudaGetLastError()}",
        )

    rt.cudaGetLastError()
    answer("cudaEventQuery amid the kernel", 600, rt.cudaEventQuery(mark))
    after("after 600", "0 0 0 0")
    cu.cuMemFree(0x1000)
    after("after a failure of the driver's", "0 0 0 0")
    rt.cudaFree(0x1000)
    after("after cudaFree of garbage", "1 1 1 0")
    begin(on)
    pointer = U64()
    rt.cudaMalloc(byref(pointer), 512)
    after("after a cudaMalloc in a capture", "900 900 900 0")
    end(on)


@fact(66)
def exchange_of_no_mode(answer):
    answer("cuThreadExchangeStreamCaptureMode(NULL)", 1, cu.cuThreadExchangeStreamCaptureMode(None))
    for mode in 3, -1:
        answer(f"of {mode}", 1, cu.cuThreadExchangeStreamCaptureMode(byref(ctypes.c_int(mode))))

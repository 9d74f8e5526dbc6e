# SPDX-License-Identifier: MIT
"""Questions about cuMemAlloc, cuMemFree and what tells about memory."""

import ctypes
import time
from ctypes import byref

from ask import fact
from cuda import (
    LONG_MS,
    MIB,
    RELAXED,
    U64,
    Lacking,
    begin,
    created,
    cu,
    default_pool,
    device,
    end,
    free_bytes,
    hold,
    in_thread,
    load_kernels,
    made,
    malloc,
    malloc_async,
    pool_bytes,
    primary,
    rt,
    run_kernel,
    simulated,
    stream,
    waited,
)

RESERVED_NOW = 5
SYNC_MEMOPS = 6
POOL_OF = 17


@fact(7)
def free_under_another_context(answer):
    first, address = primary(), malloc()
    created()
    answer("cuMemFree with another context current", 0, cu.cuMemFree(address))
    cu.cuCtxSetCurrent(first)
    address = malloc()
    try:
        primary(1)
    except Lacking:
        answer.note("with another device's current", "not asked: one device only")
        return
    answer("with another device's current", 0, cu.cuMemFree(address))


@fact(8)
def frees_of_wrong_addresses(answer):
    address, pinned = malloc(), made(cu.cuMemHostAlloc, 65536, 0)
    host = ctypes.create_string_buffer(64)
    for what, wrong in (
        ("d + 512", address + 512),
        ("a host variable", ctypes.addressof(host)),
        ("pinned memory", pinned),
        ("garbage", 0xDEADBEEF000),
    ):
        answer(f"cuMemFree of {what}", 1, cu.cuMemFree(wrong))
    answer("cuMemFree(d) after", 0, cu.cuMemFree(address))
    answer("cuMemFreeHost after", 0, cu.cuMemFreeHost(pinned))


@fact(9, alone=True)
def what_a_free_waits_for(answer):
    load_kernels()
    context, unrelated, on = primary(), malloc(4 * MIB), stream()
    hold(on)
    answer("a kernel on a non-blocking stream", (0, True), waited(cu.cuMemFree, unrelated))
    unrelated = malloc(4 * MIB)
    created()
    load_kernels()
    hold(stream())
    cu.cuCtxSetCurrent(context)
    answer("a kernel of another context of the device", (0, False), waited(cu.cuMemFree, unrelated))
    unrelated = malloc(4 * MIB)
    try:
        primary(1)
    except Lacking:
        answer.note("a kernel on another device", "not asked: one device only")
        return
    load_kernels()
    hold(stream())
    cu.cuCtxSetCurrent(context)
    answer("a kernel on another device", (0, False), waited(cu.cuMemFree, unrelated))


@fact(10)
def ranges(answer):
    address = malloc(1000)
    base, size = U64(), U64()
    for offset in 0, 999, 1000:
        code = cu.cuMemGetAddressRange(byref(base), byref(size), address + offset)
        found = code if code else f"{base.value - address}, {size.value}"
        answer(f"base and size at base + {offset}", "0, 1000" if offset < 1000 else 500, found)


@fact(11, alone=True)
def steps_of_free_memory(answer):
    malloc(512)
    steps = []
    for size in 512, 65536, MIB, 2 * MIB, 2 * MIB + 512, 4 * MIB:
        before = free_bytes()
        malloc(size)
        steps.append(before - free_bytes())
    answer("free memory moves in steps of 2 MiB", True, all(step % (2 * MIB) == 0 for step in steps))
    answer.note("steps after 512, 64 KiB, 1, 2, 2.0005 and 4 MiB", steps)


@fact(12)
def alignment(answer):
    addresses = [malloc(size) for size in (512, 1000, 65536, MIB, 2 * MIB, 16 * MIB, 64 * MIB)]
    answer("all aligned to 512", True, all(address % 512 == 0 for address in addresses))
    answer.note("of 2, 16, 64 MiB aligned to 2 MiB", [address % (2 * MIB) == 0 for address in addresses[-3:]])
    answer.note("addresses", [hex(address) for address in addresses])


@fact(21, alone=True)
def free_after_a_fault(answer):
    load_kernels()
    address, on = malloc(), stream()
    hold(on)
    run_kernel(on, 0, [0x10])
    answer("cuMemFree behind a faulting kernel", 700, cu.cuMemFree(address))
    answer.note("cuMemFree again", cu.cuMemFree(address))
    answer.note("cuMemAlloc after", cu.cuMemAlloc(byref(U64()), 512))


@fact(42, alone=True)
def small_frees_wait(answer):
    load_kernels()
    on, capturing = stream(), stream()
    for size in 512, 64 * MIB:
        address = malloc(size)
        hold(on)
        answer(f"cuMemFree of {size} bytes waits", (0, True), waited(cu.cuMemFree, address))
    for size in 512, 64 * MIB:
        address = malloc(size)
        in_thread(lambda: begin(capturing, RELAXED))
        hold(on)
        answer(
            f"cuMemFree of {size} bytes waits, amid a relaxed capture of another thread",
            (0, True),
            waited(cu.cuMemFree, address),
        )
        answer("that capture ends", 0, end(capturing)[0])


@fact(43, alone=True)
def ordered_memory_goes_back_at_once(answer):
    load_kernels()
    on, other = stream(), stream()
    address = malloc_async(64 * MIB, on)
    cu.cuStreamSynchronize(on)
    hold(other)
    answer("cuMemFree of stream-ordered memory", (0, False), waited(cu.cuMemFree, address))
    answer("cuMemPoolTrimTo", (0, False), waited(cu.cuMemPoolTrimTo, default_pool(), 0))


@fact(53)
def steps_of_a_memory_pool(answer):
    on, pool, reserved = stream(), default_pool(), []
    addresses = []
    for _ in range(64):
        addresses.append(malloc_async(MIB, on))
        reserved.append(pool_bytes(pool, RESERVED_NOW))
    answer("reserved memory is a multiple of 32 MiB", True, all(size % (32 * MIB) == 0 for size in reserved))
    answer.note("reserved, MiB", sorted({size // MIB for size in reserved}))
    answer.note("addresses", [hex(address) for address in addresses[:4]])
    for address in addresses:
        cu.cuMemFreeAsync(address, on)
    cu.cuStreamSynchronize(on)
    answer("reserved after all are freed, and a synchronise", 0, pool_bytes(pool, RESERVED_NOW))


@fact(64)
def pitches(answer):
    found = {}
    for width in 1, 511, 512, 513, 4096, 65537:
        pointer, pitch = U64(), U64()
        rt.cudaMallocPitch(byref(pointer), byref(pitch), width, 4)
        found[width] = (pitch.value, pointer.value % 512)
    answer("every pitch is a multiple of 512", True, all(pitch % 512 == 0 and pitch > 0 for pitch, _ in found.values()))
    answer.note("width: pitch, address modulo 512", {str(width): list(pair) for width, pair in found.items()})


class Property(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of a device."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int),
        ("number", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc"""

    _fields_ = [("location", ctypes.c_int), ("number", ctypes.c_int), ("flags", ctypes.c_int)]


def mapped(size):
    """(address, handle) of virtual memory, mapped."""
    address, handle = made(cu.cuMemAddressReserve, size, 0, 0, 0), U64()
    assert cu.cuMemCreate(byref(handle), size, byref(Property(type=1, location=1)), 0) == 0
    assert cu.cuMemMap(address, size, 0, handle.value, 0) == 0
    assert cu.cuMemSetAccess(address, size, byref(Access(1, 0, 3)), 1) == 0
    return address, handle.value


@fact(65, alone=True)
def virtual_memory(answer):
    if simulated():
        answer(
            "cuMemAddressReserve over the simulated driver", 801, cu.cuMemAddressReserve(byref(U64()), 2 * MIB, 0, 0, 0)
        )
        return
    for name, option in (("minimum", 0), ("recommended", 1)):
        answer(
            f"{name} granularity",
            2 * MIB,
            made(cu.cuMemGetAllocationGranularity, byref(Property(type=1, location=1)), option),
        )
    for count in 1, 8, 64, 512:
        begun = time.monotonic()
        pieces = [mapped(2 * MIB) for _ in range(count)]
        middle = time.monotonic()
        for address, handle in pieces:
            cu.cuMemUnmap(address, 2 * MIB)
            cu.cuMemRelease(handle)
            cu.cuMemAddressFree(address, 2 * MIB)
        answer.note(
            f"µs a handle of 2 MiB, {count} of them: reserve to access, unmap to release",
            [round((middle - begun) / count * 1e6, 1), round((time.monotonic() - middle) / count * 1e6, 1)],
        )


@fact(67)
def sync_memops(answer):
    on, plain = stream(), malloc(65536)
    ordered, managed = malloc_async(65536, on), made(cu.cuMemAllocManaged, 65536, 1)
    host, freed = made(cu.cuMemHostAlloc, 65536, 0), malloc(4 * MIB)
    cu.cuStreamSynchronize(on)
    cu.cuMemFree(freed)
    one = ctypes.c_uint(1)
    for what, address, assumed in (
        ("inside an allocation", plain + 4096, 0),
        ("of a pool", ordered, 0),
        ("managed", managed, 0),
        ("host", host, 1),
        ("freed", freed, 1),
    ):
        answer(
            f"cuPointerSetAttribute(SYNC_MEMOPS): {what}",
            assumed,
            cu.cuPointerSetAttribute(byref(one), SYNC_MEMOPS, address),
        )
    for offset in 0, 65535:
        value = ctypes.c_uint(7)
        cu.cuPointerGetAttribute(byref(value), SYNC_MEMOPS, plain + offset)
        answer(f"it is set at d + {offset}", 1, value.value)


@fact(70)
def inside_an_ordered_allocation(answer):
    on, pool = stream(), default_pool()
    address = U64()
    assert cu.cuMemAllocFromPoolAsync(byref(address), 4 * MIB, pool, on) == 0
    cu.cuStreamSynchronize(on)
    start = address.value
    base, size, of = U64(), U64(), U64()
    for offset in 0, 512, 4 * MIB - 1:
        cu.cuMemGetAddressRange(byref(base), byref(size), start + offset)
        answer(f"range at + {offset}", [0, 4 * MIB], [base.value - start, size.value])
        cu.cuPointerGetAttribute(byref(of), POOL_OF, start + offset)
        answer(f"its pool is told at + {offset}", True, of.value == pool)
    answer("cuMemFreeAsync of an inner address", 1, cu.cuMemFreeAsync(start + 512, on))
    try:
        other = device(1)
    except Lacking:
        answer.note("access from another device", "not asked: one device only")
        return
    assert cu.cuMemPoolSetAccess(pool, byref(Access(1, other, 3)), 1) == 0
    primary(1)
    for offset in 0, 4 * MIB - 1:
        code = cu.cuMemsetD8(start + offset, 1, 1)
        answer(f"another device with access writes at + {offset}", 0, code)


class PoolProperty(ctypes.Structure):
    """CUmemPoolProps of a device's memory."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int),
        ("number", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("most", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


def pool_made(handles=0, most=0):
    return made(cu.cuMemPoolCreate, byref(PoolProperty(type=1, handles=handles, location=1, most=most)))


@fact(76)
def bounded_pool(answer):
    on, pool, address = stream(), pool_made(most=6 * MIB), U64()
    codes = [cu.cuMemAllocFromPoolAsync(byref(address), size * MIB, pool, on) for size in (7, 4, 3, 2)]
    answer("a pool of 6 MiB: 7, 4, 3, 2 MiB", [2, 0, 2, 0], codes)


@fact(77)
def pool_destroyed_twice(answer):
    on, pool, address = stream(), pool_made(), U64()
    assert cu.cuMemAllocFromPoolAsync(byref(address), MIB, pool, on) == 0
    cu.cuStreamSynchronize(on)
    answer("cuMemPoolDestroy with live memory", 0, cu.cuMemPoolDestroy(pool))
    answer("again", 1, cu.cuMemPoolDestroy(pool))
    answer("cuMemFree of what lives", 0, cu.cuMemFree(address.value))


@fact(80)
def trims_of_a_pool(answer):
    on, pool = stream(), default_pool()
    most = U64(2**63)
    cu.cuMemPoolSetAttribute(pool, 4, byref(most))  # what is freed stays in it
    addresses = [malloc_async(16 * MIB, on) for _ in range(8)]
    cu.cuStreamSynchronize(on)
    grown = pool_bytes(pool, RESERVED_NOW)
    steps = []
    for address in addresses:
        cu.cuMemFree(address)
        for keep in 16, 80:
            reserved = pool_bytes(pool, RESERVED_NOW)
            cu.cuMemPoolTrimTo(pool, max(reserved - keep * MIB, 0))
            steps.append(reserved - pool_bytes(pool, RESERVED_NOW))
    answer("reserved at first", 128 * MIB, grown)
    answer("it shrinks in multiples of 32 MiB", True, all(step % (32 * MIB) == 0 for step in steps))
    answer("all was trimmed at once", 0, pool_bytes(pool, RESERVED_NOW))
    answer.note("steps, MiB", [step // MIB for step in steps])


@fact(83)
def unregister_a_device_address(answer):
    address = malloc(4 * MIB)
    answer("cuMemHostUnregister of live memory", 1, cu.cuMemHostUnregister(address))
    cu.cuMemFree(address)
    answer("of freed memory", 713, cu.cuMemHostUnregister(address))


@fact(20, alone=True)
def plain_memory_freed_in_a_stream(answer):
    load_kernels()
    on, size = stream(), 64 * MIB
    pointer = U64()
    rt.cudaMalloc(byref(pointer), size)
    freed = pointer.value
    hold(on, 2 * LONG_MS, [freed])
    answer("cudaFreeAsync of cudaMalloc's memory", (0, False), waited(rt.cudaFreeAsync, freed, on))
    early = False
    for _ in range(8):
        rt.cudaMalloc(byref(pointer), size)
        if pointer.value == freed:
            early = cu.cuStreamQuery(on) == 600
            break
    answer("cudaMalloc gave the address out while the kernel ran", False, early)
    answer.note("the address came back", pointer.value == freed)

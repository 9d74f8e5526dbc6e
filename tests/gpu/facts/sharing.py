# SPDX-License-Identifier: MIT
"""Questions about memory that two processes share. The importer is forked first, before this process calls CUDA."""

import ctypes
import os
import random
import signal
from ctypes import byref

from ask import fact
from cuda import (
    MIB,
    U64,
    Lacking,
    captured,
    cu,
    default_pool,
    device,
    done,
    executable,
    fork,
    made,
    malloc,
    malloc_async,
    primary,
    simulated,
    stream,
)
from importer import HANDLE_BYTES, Handle, Importer, handle
from memory import mapped, pool_made

IPC_CAPABLE, ALLOWED_HANDLES, POOL_OF = 10, 14, 17
DESCRIPTOR = 1


def filled(size, byte):
    address = malloc(size)
    done(cu.cuMemsetD8(address, byte, size), "cuMemsetD8")
    return address


@fact(52, bare=True)
def free_of_memory_that_is_not_freed_so(answer):
    importer = Importer()
    primary()
    shared = filled(4096, 7)
    answer(
        "an importer's cuMemFree, a read after it, cuIpcCloseMemHandle",
        [1, 7, 0],
        importer.ask("free of opened", handle(shared)),
    )
    if simulated():
        answer.note("cuMemFree of mapped memory", "not simulated")
        return
    address, _ = mapped(2 * MIB)
    answer("cuMemFree of mapped memory", 1, cu.cuMemFree(address))
    answer("a fill of it after", 0, cu.cuMemsetD8(address, 1, 4096))


@fact(59, bare=True)
def handle_of_a_small_block(answer):
    importer = Importer()
    primary()
    blocks = [filled(4096, byte) for byte in (1, 2, 3)]
    answer.note("they share 2 MiB", len({block // (2 * MIB) for block in blocks}) == 1)
    first, inside = handle(blocks[1]), handle(blocks[1] + 512)
    answer("the importer of the second block: first byte, range", [2, [0, 4096]], importer.ask("what is there", first))
    answer("an address inside it has the same handle", True, first == inside)


@fact(60, bare=True)
def flags_of_an_open(answer):
    importers = Importer(), Importer()
    primary()
    shared = handle(malloc())
    for importer, flags in zip(importers, (0, 2)):
        answer(f"cuIpcOpenMemHandle with flags {flags}", 0, importer.ask("open with", shared, flags))


@fact(61)
def what_can_be_exported(answer):
    on, addresses = stream(), []
    graph = captured(on, lambda: addresses.append(malloc_async(65536, on)))
    done(cu.cuGraphLaunch(executable(graph), on), "cuGraphLaunch")
    kinds = {
        "plain": malloc(),
        "managed": made(cu.cuMemAllocManaged, 65536, 1),
        "pinned": made(cu.cuMemHostAlloc, 65536, 0),
        "graph": addresses[0],
        "pool": malloc_async(65536, on),
    }
    done(cu.cuStreamSynchronize(on))
    if not simulated():
        kinds["virtual"] = mapped(2 * MIB)[0]
    for kind, address in kinds.items():
        capable, handles, pool = ctypes.c_int(-1), U64(), U64()
        codes = [
            cu.cuPointerGetAttribute(byref(value), attribute, address)
            for value, attribute in ((capable, IPC_CAPABLE), (handles, ALLOWED_HANDLES), (pool, POOL_OF))
        ]
        answer(
            f"{kind}: cuIpcGetMemHandle", 0 if kind == "plain" else 1, cu.cuIpcGetMemHandle(byref(Handle()), address)
        )
        answer(f"{kind}: IS_LEGACY_CUDA_IPC_CAPABLE", 1 if kind == "plain" else 0, capable.value)
        answer.note(
            f"{kind}: codes of the three, handle types, of the default pool",
            [codes, handles.value, pool.value == default_pool()],
        )


@fact(71, bare=True)
def bytes_that_no_driver_made(answer):
    importer = Importer()
    primary()
    real = bytearray(handle(malloc()))
    real[20] ^= 255
    tries = {
        "zeros": bytes(HANDLE_BYTES),
        "random bytes": random.Random(1).randbytes(HANDLE_BYTES),
        "a real handle with one byte changed": bytes(real),
    }
    for what, data in tries.items():
        code = importer.ask("open with", data, 1)
        answer(f"{what}: 1 or 400", True, code in (1, 400))
        answer.note(f"{what}: code", code)


@fact(72, bare=True)
def exporter_that_has_ended(answer):
    reading, writing = os.pipe()
    release, ended = os.pipe()

    def export():
        primary()
        os.write(writing, handle(filled(4096, 9)))
        os.read(release, 1)

    exporter = fork(export)
    importer, second = Importer(), Importer()
    data = os.read(reading, HANDLE_BYTES)
    answer("what is open", 9, importer.ask("keep open", data))
    os.kill(exporter, signal.SIGKILL)
    os.waitpid(exporter, 0)
    os.close(ended)
    answer("what was opened is still there", 9, importer.ask("read kept"))
    answer("another process opens it", 1, second.ask("open with", data, 1))


@fact(73, bare=True)
def exported_again(answer):
    importer, second = Importer(), Importer(CUDA_VISIBLE_DEVICES="1")
    primary()
    shared = handle(malloc())
    answer(
        "cuIpcGetMemHandle of what was opened, IS_LEGACY_CUDA_IPC_CAPABLE", [1, 0], importer.ask("export again", shared)
    )
    try:
        device(1)
    except Lacking:
        answer.note("memory of a device that the importer does not see", "not asked: one device only")
        return
    answer("memory of a device that the importer does not see", 1, second.ask("open with", shared, 1))


@fact(74, alone=True, bare=True)
def close_waits(answer):
    importer = Importer()
    primary()
    answer(
        "cuIpcCloseMemHandle amid a kernel on it",
        [0, True],
        list(importer.ask("close behind a kernel", handle(malloc(4 * MIB)))),
    )


@fact(75, bare=True)
def memory_of_a_pool_that_can_be_exported(answer):
    importer = Importer()
    primary()
    on, pool, plain_pool, address, other = stream(), pool_made(DESCRIPTOR), pool_made(), U64(), U64()
    done(cu.cuMemAllocFromPoolAsync(byref(address), 4 * MIB, pool, on))
    done(cu.cuMemAllocFromPoolAsync(byref(other), 4 * MIB, plain_pool, on))
    done(cu.cuStreamSynchronize(on))
    done(cu.cuMemsetD8(address.value, 5, 1))
    descriptor = ctypes.c_int()
    done(
        cu.cuMemPoolExportToShareableHandle(byref(descriptor), pool, DESCRIPTOR, 0), "cuMemPoolExportToShareableHandle"
    )
    exported = []
    for offset in 0, 512:
        data = ctypes.create_string_buffer(64)
        answer(f"cuMemPoolExportPointer at + {offset}", 0, cu.cuMemPoolExportPointer(data, address.value + offset))
        exported.append(data.raw)
    handles = U64()
    cu.cuPointerGetAttribute(byref(handles), ALLOWED_HANDLES, address.value)
    answer("ALLOWED_HANDLE_TYPES of it", DESCRIPTOR, handles.value)
    answer(
        "cuMemPoolExportPointer of a pool without handle types",
        1,
        cu.cuMemPoolExportPointer(ctypes.create_string_buffer(64), other.value),
    )
    found = importer.ask("import from a pool", exported, descriptor=descriptor.value)
    if isinstance(found, str):
        answer("the importer", "imports", found)
        return
    answer("both imported at the start: code, byte", [0, 5], found[0][0])
    answer.note("the pointer exported inside it", found[0][1])
    answer("the imported pool set as current, and allocated from", [1, 1], found[1])

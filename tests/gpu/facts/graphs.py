# SPDX-License-Identifier: MIT
"""Questions about graphs that allocate: when they take memory and give it back, and what frees it."""

from ctypes import byref

from ask import fact
from cuda import (
    CAPTURING,
    INVALIDATED,
    MIB,
    U64,
    begin,
    captured,
    cu,
    done,
    end,
    executable,
    free_bytes,
    hold,
    load_kernels,
    malloc_async,
    primary,
    status,
    stream,
    waited,
)

USED, RESERVED = 0, 2
STEP = 2 * MIB


def allocating(on, size, frees=False):
    """(graph, address)"""
    addresses = []

    def work():
        addresses.append(malloc_async(size, on))
        if frees:
            done(cu.cuMemFreeAsync(addresses[0], on), "cuMemFreeAsync")

    return captured(on, work), addresses[0]


def graph_bytes(attribute):
    value = U64()
    done(cu.cuDeviceGetGraphMemAttribute(0, attribute, byref(value)), "cuDeviceGetGraphMemAttribute")
    return value.value


@fact(23, alone=True)
def when_a_graphs_memory_goes_back(answer):
    on = stream()
    for how in "when graph and executable are destroyed", "at cuDeviceGraphMemTrim":
        graph, _ = allocating(on, 64 * MIB, frees=True)
        run = executable(graph)
        before = free_bytes()
        done(cu.cuGraphLaunch(run, on), "cuGraphLaunch")
        done(cu.cuStreamSynchronize(on))
        answer.note("taken by the launch, MiB", (before - free_bytes()) // MIB)
        if how.startswith("when"):
            done(cu.cuGraphExecDestroy(run))
            done(cu.cuGraphDestroy(graph))
        else:
            done(cu.cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim")
        answer(f"free memory is as before {how}", True, free_bytes() == before)
    graph, address = allocating(on, 64 * MIB)
    run = executable(graph)
    done(cu.cuGraphLaunch(run, on), "cuGraphLaunch")
    done(cu.cuStreamSynchronize(on))
    done(cu.cuGraphExecDestroy(run))
    done(cu.cuGraphDestroy(graph))
    answer("what is live goes on: a fill", [0, 0], [cu.cuMemsetD8(address, 1, 4096), cu.cuMemFree(address)])


@fact(24, alone=True)
def steps_of_graph_memory(answer):
    load_kernels()
    on = stream()
    graph, address = allocating(on, 512 << 10)
    done(cu.cuGraphLaunch(executable(graph), on), "cuGraphLaunch")
    done(cu.cuStreamSynchronize(on))
    used, reserved = graph_bytes(USED), graph_bytes(RESERVED)
    answer("USED after 512 KiB", STEP, used)
    answer("RESERVED is a multiple of 2 MiB", True, reserved > 0 and reserved % STEP == 0)
    answer.note("RESERVED", reserved)
    hold(on)
    done(cu.cuMemFreeAsync(address, on), "cuMemFreeAsync")
    answer("USED right after the free's call", used, graph_bytes(USED))
    done(cu.cuStreamSynchronize(on))
    answer("USED when it has run", 0, graph_bytes(USED))


@fact(25, alone=True)
def free_of_a_graphs_allocation(answer):
    load_kernels()
    on = stream()
    graph, address = allocating(on, MIB)
    answer("cuMemFree before the first launch", 1, cu.cuMemFree(address))
    done(cu.cuGraphLaunch(executable(graph), on), "cuGraphLaunch")
    done(cu.cuStreamSynchronize(on))
    hold(on)  # it does not touch the memory, which would be gone
    answer("cuMemFree amid a kernel", (0, False), waited(cu.cuMemFree, address))
    answer("again", 1, cu.cuMemFree(address))


@fact(26, bare=True)
def graph_memory_and_a_reset(answer):
    primary()
    on = stream()
    graph, address = allocating(on, MIB)
    done(cu.cuGraphLaunch(executable(graph), on), "cuGraphLaunch")
    done(cu.cuStreamSynchronize(on))
    done(cu.cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset")
    primary()
    answer("cuMemFree of a graph's memory after a reset", 0, cu.cuMemFree(address))


@fact(27)
def graphs_amid_a_global_capture(answer):
    on, other, run = stream(), stream(), U64()
    graph, _ = allocating(other, MIB, frees=True)
    old, spare = executable(graph), captured(other, lambda: None)
    begin(on)
    answer("cuGraphInstantiate", [0, CAPTURING], [cu.cuGraphInstantiate(byref(run), spare, 0), status(on)])
    answer("cuStreamEndCapture", 0, end(on)[0])
    begin(on)
    answer("cuGraphExecDestroy", [900, INVALIDATED], [cu.cuGraphExecDestroy(old), status(on)])
    end(on)
    begin(on)
    answer("cuGraphDestroy", [900, INVALIDATED], [cu.cuGraphDestroy(graph), status(on)])
    end(on)

# SPDX-License-Identifier: MIT
"""Questions about a device whose memory is full: which calls fail, with which code, and whether they may be made again."""

import ast
from ctypes import byref

from ask import fact
from cuda import MIB, U64, cu, done, executable, free_bytes, function, image, made, malloc, run_kernel, stream
from graphs import allocating
from streams import anew

OUT_OF_MEMORY = 2
ROOM = 512 * MIB
SMALL = {"SIM_MEMORY_MB": "2048"}
PRINTF_BUFFER = 1  # CU_LIMIT_PRINTF_FIFO_SIZE


def fill():
    """Takes all device memory, a block of ROOM first; that one's address."""
    spare, address, size = malloc(ROOM), U64(), 16384 * MIB
    while size >= 2 * MIB:
        if cu.cuMemAlloc(byref(address), size) != 0:
            size //= 2
    return spare


@fact(22, alone=True, **SMALL)
def graph_on_a_full_device(answer):
    on = stream()
    graph, _ = allocating(on, 64 * MIB, frees=True)
    before = free_bytes()
    run = executable(graph)
    answer("taken by instantiating it", 0, before - free_bytes())
    spare = fill()
    for call in "cuGraphUpload", "cuGraphLaunch":
        answer(call, OUT_OF_MEMORY, getattr(cu, call)(run, on))
    done(cu.cuMemFree(spare))
    answer("cuGraphLaunch when memory was given back", 0, cu.cuGraphLaunch(run, on))
    answer("and it runs", 0, cu.cuStreamSynchronize(on))


def starved(prepare):
    """In a process of its own: [code on a full device, code when memory was given back, of a synchronise after both]."""

    def work():
        call = prepare()
        spare = fill()
        first = call()
        done(cu.cuMemFree(spare), "cuMemFree")
        return [first, call() if first else 0, cu.cuCtxSynchronize()]

    said = anew(work)
    return ast.literal_eval(said) if said.startswith("[") else said


def tell(answer, tries):
    for what, prepare in tries.items():
        found = starved(prepare)
        answer.note(f"{what}: on a full device, once more when memory was given back, a synchronise after", found)
        good = isinstance(found, list) and found[0] in (0, OUT_OF_MEMORY) and found[1:] == [0, 0]
        answer(f"{what}: 0 or {OUT_OF_MEMORY}; it works when memory was given back", True, good)


def graph_of(frees=True):
    on = stream()
    return on, allocating(on, 64 * MIB, frees)[0]


def instantiate():
    _, graph = graph_of()
    return lambda: cu.cuGraphInstantiate(byref(U64()), graph, 0)


def launch_graph():
    on, graph = graph_of()
    run = executable(graph)
    return lambda: cu.cuGraphLaunch(run, on)


def upload_graph():
    on, graph = graph_of()
    run = executable(graph)
    return lambda: cu.cuGraphUpload(run, on)


def launch_of(name):
    def prepare():
        function(name)
        return lambda: run_kernel(0, name=name)

    return prepare


@fact(69, alone=True, bare=True, **SMALL, SIM_LAZY_MB="64")
def calls_on_a_full_device(answer):
    tell(
        answer,
        {
            "the first launch of a kernel": launch_of("touch"),
            "one that prints": launch_of("prints"),
            "one with much local memory": launch_of("deep"),
            "cuGraphInstantiate": instantiate,
            "cuGraphLaunch": launch_graph,
            "cuStreamCreate": lambda: lambda: cu.cuStreamCreate(byref(U64()), 1),
            "cuCtxSetLimit (printf buffer of 64 MiB)": lambda: lambda: cu.cuCtxSetLimit(PRINTF_BUFFER, 64 * MIB),
        },
    )


@fact(78, alone=True, bare=True, **SMALL)
def calls_made_again(answer):
    def module_function():
        module = made(cu.cuModuleLoadData, image())
        return lambda: cu.cuModuleGetFunction(byref(U64()), module, b"touch")

    def load():
        return lambda: cu.cuModuleLoadData(byref(U64()), image())

    def load_library():
        return lambda: cu.cuLibraryLoadData(byref(U64()), image(), None, None, 0, None, None, 0)

    def kernel_function():
        library, kernel = U64(), U64()
        done(cu.cuLibraryLoadData(byref(library), image(), None, None, 0, None, None, 0), "cuLibraryLoadData")
        done(cu.cuLibraryGetKernel(byref(kernel), library.value, b"touch"), "cuLibraryGetKernel")
        return lambda: cu.cuKernelGetFunction(byref(U64()), kernel.value)

    def function_load():
        loaded = function("deep")
        return lambda: cu.cuFuncLoad(loaded)

    tell(
        answer,
        {
            "cuModuleLoadData": load,
            "cuLibraryLoadData": load_library,
            "cuModuleGetFunction": module_function,
            "cuKernelGetFunction": kernel_function,
            "cuFuncLoad": function_load,
            "cuGraphUpload": upload_graph,
            "cuCtxCreate": lambda: lambda: cu.cuCtxCreate(byref(U64()), None, 0, 0),
        },
    )


@fact(79, alone=True, bare=True, **SMALL, SIM_LAZY_MB="64", CUDA_MODULE_LOADING="LAZY")
def launches_without_memory(answer):
    for name, needs in (
        ("touch", "code"),
        ("deep", "200 KiB of local memory a thread"),
        ("prints", "the printf buffer"),
    ):
        found = starved(launch_of(name))
        answer.note(f"a launch that needs {needs}: on a full device, once more, a synchronise after", found)
        answer(
            f"a launch that needs {needs}: 2, where it fails",
            True,
            isinstance(found, list) and found[0] in (0, OUT_OF_MEMORY),
        )

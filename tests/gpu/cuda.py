# SPDX-License-Identifier: MIT
"""The CUDA driver and runtime by ctypes, for short questions to them: `cu.cuMemAlloc(address, 4096)` gives the code.

The libraries are loaded at the first call, so that a process may set their variables and fork before. Names are those
of the header, which stand for the newest variants. Whole numbers are passed in 64 bits. There is a kernel of a stated
duration on a GPU (kernels.cu, compiled beforehand and named by GPU_CHECK_KERNELS) and on the simulated driver (sim.h).
"""

import ctypes
import os
import signal
import threading
import time
from ctypes import byref

U64 = ctypes.c_uint64
MIB = 2**20

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
MODES = {GLOBAL: "global", THREAD_LOCAL: "thread-local", RELAXED: "relaxed"}
NON_BLOCKING = 1
WITHOUT_TIMING = 2
CAPTURES_NOT, CAPTURING, INVALIDATED = 0, 1, 2

RENAMED = {
    "cuCtxCreate": "cuCtxCreate_v4",
    "cuCtxDestroy": "cuCtxDestroy_v2",
    "cuCtxPopCurrent": "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent": "cuCtxPushCurrent_v2",
    "cuDevicePrimaryCtxRelease": "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset": "cuDevicePrimaryCtxReset_v2",
    "cuEventDestroy": "cuEventDestroy_v2",
    "cuGetProcAddress": "cuGetProcAddress_v2",
    "cuGraphInstantiate": "cuGraphInstantiateWithFlags",
    "cuIpcOpenMemHandle": "cuIpcOpenMemHandle_v2",
    "cuMemAlloc": "cuMemAlloc_v2",
    "cuMemAllocHost": "cuMemAllocHost_v2",
    "cuMemAllocPitch": "cuMemAllocPitch_v2",
    "cuMemFree": "cuMemFree_v2",
    "cuMemGetAddressRange": "cuMemGetAddressRange_v2",
    "cuMemGetInfo": "cuMemGetInfo_v2",
    "cuMemHostRegister": "cuMemHostRegister_v2",
    "cuMemcpyDtoD": "cuMemcpyDtoD_v2",
    "cuMemcpyDtoDAsync": "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoH": "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD": "cuMemcpyHtoD_v2",
    "cuMemsetD8": "cuMemsetD8_v2",
    "cuStreamBeginCapture": "cuStreamBeginCapture_v2",
    "cuStreamDestroy": "cuStreamDestroy_v2",
    "cuDeviceTotalMem": "cuDeviceTotalMem_v2",
}


class Failed(Exception):
    """A call that only prepares a question did not succeed."""


class Lacking(Exception):
    """What a question needs is not on this machine."""


class Library:
    """Functions of a shared library, as attributes."""

    def __init__(self, name):
        self.name, self.library = name, None

    def raw(self, name):
        if self.library is None:
            try:
                self.library = ctypes.CDLL(self.name)
            except OSError as reason:
                raise Lacking(str(reason)) from None
        return getattr(self.library, name)

    def has(self, name):
        try:
            return bool(self.raw(name))
        except AttributeError:
            return False

    def __getattr__(self, name):
        try:
            function = self.raw(RENAMED.get(name, name))
        except AttributeError:
            raise Lacking(f"{self.name} has no {name}") from None

        def call(*arguments):
            return function(*(U64(word & 2**64 - 1) if isinstance(word, int) else word for word in arguments))

        call.__name__ = name
        setattr(self, name, call)
        return call


cu = Library("libcuda.so.1")
rt = Library("libcudart.so.13")


def done(code, what="a call"):
    if code != 0:
        raise Failed(f"{what} answered {code}")


def made(function, *arguments):
    """What a call writes to its first argument."""
    value = U64(0)
    done(function(byref(value), *arguments), function.__name__)
    return value.value


def device(ordinal=0):
    done(cu.cuInit(0), "cuInit")
    count = ctypes.c_int()
    done(cu.cuDeviceGetCount(byref(count)), "cuDeviceGetCount")
    if count.value <= ordinal:
        raise Lacking("one device only" if count.value else "no device")
    return made(cu.cuDeviceGet, ordinal)


def primary(ordinal=0):
    """Its handle, current from here on."""
    context = made(cu.cuDevicePrimaryCtxRetain, device(ordinal))
    done(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    return context


def created(ordinal=0):
    """A context of its own, current from here on."""
    context = U64(0)
    done(cu.cuCtxCreate(byref(context), None, 0, device(ordinal)), "cuCtxCreate")
    return context.value


def malloc(size=65536):
    return made(cu.cuMemAlloc, size)


def malloc_async(size, stream):
    return made(cu.cuMemAllocAsync, size, stream)


def stream(flags=NON_BLOCKING):
    return made(cu.cuStreamCreate, flags)


def event():
    return made(cu.cuEventCreate, WITHOUT_TIMING)


def recorded(on):
    mark = event()
    done(cu.cuEventRecord(mark, on), "cuEventRecord")
    return mark


def free_bytes():
    free, total = U64(), U64()
    done(cu.cuMemGetInfo(byref(free), byref(total)), "cuMemGetInfo")
    return free.value


def default_pool(ordinal=0):
    return made(cu.cuDeviceGetDefaultMemPool, device(ordinal))


def pool_bytes(pool, attribute):
    value = U64()
    done(cu.cuMemPoolGetAttribute(pool, attribute, byref(value)), "cuMemPoolGetAttribute")
    return value.value


class Attributes(ctypes.Structure):
    """cudaPointerAttributes, with room for what later runtimes add."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
        ("reserved", ctypes.c_long * 16),
    ]


def attributes(address):
    """What the runtime tells about it, as text."""
    found = Attributes()
    code = rt.cudaPointerGetAttributes(byref(found), address)
    return f"{code}, type {found.type}, device {found.device}" if code == 0 else str(code)


# ---- captures ----


def begin(on, mode=GLOBAL):
    done(cu.cuStreamBeginCapture(on, mode), "cuStreamBeginCapture")


def end(on):
    """(code, graph)"""
    graph = U64(0)
    code = cu.cuStreamEndCapture(on, byref(graph))
    return code, graph.value


def status(on):
    value = ctypes.c_int(-1)
    code = cu.cuStreamIsCapturing(on, byref(value))
    return value.value if code == 0 else code


def exchange(mode):
    value = ctypes.c_int(mode)
    done(cu.cuThreadExchangeStreamCaptureMode(byref(value)), "cuThreadExchangeStreamCaptureMode")
    return value.value


def captured(on, work, mode=RELAXED):
    """The graph of what `work` does on the stream."""
    begin(on, mode)
    work()
    code, graph = end(on)
    done(code, "cuStreamEndCapture")
    return graph


def executable(graph):
    return made(cu.cuGraphInstantiate, graph, 0)


# ---- kernels ----


def simulated():
    return cu.has("sim_launch")


class Range(ctypes.Structure):
    _fields_ = [("address", U64), ("bytes", ctypes.c_size_t), ("writes", ctypes.c_bool)]


class SimKernel(ctypes.Structure):
    _fields_ = [
        ("microseconds", ctypes.c_uint32),
        ("until_released", ctypes.c_bool),
        ("ranges", ctypes.c_void_p),
        ("range_count", ctypes.c_size_t),
        ("run", ctypes.c_void_p),
        ("argument", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("number", U64),
    ]


_functions = {}


def image():
    """The kernels, compiled; the simulated driver takes anything."""
    path = os.environ.get("GPU_CHECK_KERNELS")
    if simulated():
        return b"any"
    if not path:
        raise Lacking("the kernels are not compiled (nvcc)")
    with open(path, "rb") as file:
        return file.read()


def function(name):
    """A kernel of kernels.cu in the current context."""
    current = made(cu.cuCtxGetCurrent)
    if (current, name) not in _functions:
        module = made(cu.cuModuleLoadData, image())
        _functions[current, name] = made(cu.cuModuleGetFunction, module, name.encode())
    return _functions[current, name]


def launch(name, on, *parameters):
    values = [U64(value) for value in parameters]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
    return cu.cuLaunchKernel(function(name), 1, 1, 1, 1, 1, 1, 0, on, pointers, None)


def run_kernel(on, microseconds=0, writes=(), name="touch"):
    """Starts one that takes so long, and then writes to the first byte of each address; the code of the launch."""
    if not simulated():
        first = writes[0] if writes else 0
        return launch(name, on, microseconds * 1000, first)
    ranges = (Range * max(len(writes), 1))(*(Range(address, 1, True) for address in writes))
    kernel = SimKernel(microseconds=microseconds, ranges=ctypes.cast(ranges, ctypes.c_void_p), range_count=len(writes))
    return cu.sim_launch(byref(kernel), on)


LONG_MS = 200


def load_kernels():
    """What is loaded at the first launch would wait for other work then."""
    done(run_kernel(0), "a launch")
    done(cu.cuCtxSynchronize(), "cuCtxSynchronize")


def hold(on, milliseconds=LONG_MS, writes=()):
    """Keeps the stream busy."""
    done(run_kernel(on, milliseconds * 1000, writes), "a launch")


def waited(function, *arguments):
    """(code, whether the call took as long as a kernel that was just started by hold)"""
    begun = time.monotonic()
    code = function(*arguments)
    return code, time.monotonic() - begun > LONG_MS / 1000 * 0.6


# ---- threads and processes ----

PR_SET_PDEATHSIG = 1


def die_with_parent():
    """In a child: it shall not outlive the process that made it, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def fork(work):
    """The process number of a child that does this; it never returns into the code of its parent."""
    child = os.fork()
    if child == 0:
        try:
            die_with_parent()
            work()
        finally:
            os._exit(0)
    return child


def in_child(work):
    """What `work` returns in a child, as text, or how that ended."""
    reading, writing = os.pipe()

    def say():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = str(work())
        except (Failed, Lacking) as reason:
            said = f"not asked: {reason}"
        os.write(writing, said.encode())

    child = fork(say)
    os.close(writing)
    said = os.read(reading, 1000).decode()
    os.close(reading)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        return f"ends ({signal.Signals(os.WTERMSIG(ended)).name})"
    return said


def in_thread(work, context=None):
    """What `work` returns, done in another thread with this context (the current one) current."""
    context = made(cu.cuCtxGetCurrent) if context is None else context
    result = []

    def run():
        cu.cuCtxSetCurrent(context)
        try:
            result.append(work())
        except Exception as reason:  # pylint: disable=broad-except
            result.append(reason)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]

# SPDX-License-Identifier: MIT
"""Another process that opens what this one shares: forked before either calls CUDA, it answers questions by name."""

import ctypes
import multiprocessing.connection
import multiprocessing.reduction
import os
from ctypes import byref

from cuda import MIB, U64, attributes, cu, done, fork, hold, load_kernels, primary, stream, waited

HANDLE_BYTES = 64
LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed as a whole."""

    _fields_ = [("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


def handle(address):
    """The handle of an address, as bytes."""
    made = Handle()
    done(cu.cuIpcGetMemHandle(byref(made), address), "cuIpcGetMemHandle")
    return bytes(made)


def open_handle(data, flags=LAZY_PEER_ACCESS):
    """(code, address)"""
    address = U64(0)
    code = cu.cuIpcOpenMemHandle(byref(address), Handle.from_buffer_copy(data), ctypes.c_uint(flags))
    return code, address.value


def opened(data):
    code, address = open_handle(data)
    done(code, "cuIpcOpenMemHandle")
    return address


def first_byte(address):
    byte = ctypes.c_ubyte()
    done(cu.cuMemcpyDtoH(byref(byte), address, 1), "cuMemcpyDtoH")
    return byte.value


def range_of(address):
    base, size = U64(), U64()
    code = cu.cuMemGetAddressRange(byref(base), byref(size), address)
    return [base.value - address, size.value] if code == 0 else code


# ---- what an importer does; each has the primary context current ----


def attributes_after_close(data):
    address = opened(data)
    done(cu.cuIpcCloseMemHandle(address), "cuIpcCloseMemHandle")
    return attributes(address)


def free_of_opened(data):
    address = opened(data)
    freed = cu.cuMemFree(address)
    return [freed, first_byte(address), cu.cuIpcCloseMemHandle(address)]


def what_is_there(data):
    address = opened(data)
    return [first_byte(address), range_of(address)]


def open_with(data, flags):
    return open_handle(data, flags)[0]


def export_again(data):
    address, made, capable = opened(data), Handle(), ctypes.c_int(-1)
    code = cu.cuIpcGetMemHandle(byref(made), address)
    cu.cuPointerGetAttribute(byref(capable), 10, address)
    return [code, capable.value]


def close_behind_a_kernel(data):
    address, on = opened(data), stream()
    load_kernels()
    hold(on, writes=[address])
    return waited(cu.cuIpcCloseMemHandle, address)


def byte_at(data, offset):
    address = opened(data)
    byte = first_byte(address + offset)
    done(cu.cuIpcCloseMemHandle(address), "cuIpcCloseMemHandle")
    return byte


def write_at(data, offset, byte):
    address = opened(data)
    done(cu.cuMemsetD8(address + offset, byte, 16), "cuMemsetD8")
    done(cu.cuCtxSynchronize(), "cuCtxSynchronize")
    done(cu.cuIpcCloseMemHandle(address), "cuIpcCloseMemHandle")
    return "written"


_kept = []


def keep_open(data):
    _kept.append(opened(data))
    return first_byte(_kept[-1])


def read_kept():
    return first_byte(_kept[-1])


def import_from_a_pool(pointers, descriptor):
    """For each exported pointer: code, first byte; and codes of setting the imported pool and of allocating from it."""
    pool = U64()
    done(cu.cuMemPoolImportFromShareableHandle(byref(pool), descriptor, 1, 0), "cuMemPoolImportFromShareableHandle")
    found = []
    for data in pointers:
        address = U64()
        exported = ctypes.create_string_buffer(data, 64)
        code = cu.cuMemPoolImportPointer(byref(address), pool.value, exported)
        found.append([code, first_byte(address.value) if code == 0 else None])
    on, address = stream(), U64()
    codes = [cu.cuDeviceSetMemPool(0, pool.value), cu.cuMemAllocFromPoolAsync(byref(address), MIB, pool.value, on)]
    return [found, codes]


class Importer:
    """Runs the functions above in its process, by their names ("attributes after close")."""

    def __init__(self, **variables):
        self.pipe, theirs = multiprocessing.connection.Pipe()

        def work():
            self.pipe.close()
            os.environ.update(variables)
            self.serve(theirs)

        self.pid = fork(work)
        theirs.close()

    @staticmethod
    def serve(pipe):
        ready = False
        while True:
            try:
                name, arguments, descriptor_follows = pipe.recv()
                if descriptor_follows:
                    arguments = (*arguments, multiprocessing.reduction.recv_handle(pipe))
                if not ready:
                    primary()
                    ready = True
                pipe.send((True, globals()[name.replace(" ", "_")](*arguments)))
            except (EOFError, OSError):
                return
            except Exception as reason:  # pylint: disable=broad-except
                pipe.send((False, f"{type(reason).__name__}: {reason}"))

    def ask(self, name, *arguments, descriptor=None):
        """A descriptor comes as the last argument."""
        self.pipe.send((name, arguments, descriptor is not None))
        if descriptor is not None:
            multiprocessing.reduction.send_handle(self.pipe, descriptor, self.pid)
        good, found = self.pipe.recv()
        return found if good else f"the importer failed: {found}"

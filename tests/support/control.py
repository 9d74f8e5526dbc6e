# SPDX-License-Identifier: MIT
"""Asks a process by its control file, as include/poolcuda/control.h says; and what can be wrong with that file."""
import ctypes
import mmap
import os
import struct
import time

BYTES, REQUEST_AT, ANSWER_AT = 4096, 64, 128
REQUEST, ANSWER = struct.Struct("=IIQ40x"), struct.Struct("=IIIIQQQQQQQ48x")
NONE, TRIM, LIMIT, RESET_PEAK = range(4)
TAKEN, DONE, UNKNOWN_COMMAND, BAD_VALUE, NOT_POOLED = range(1, 6)
NO_LIMIT = 2**64 - 1
FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]


def files(pid):
    return [name for name in os.listdir("/dev/shm") if name.startswith("poolcuda-control-") and f"-{pid}-" in name]


def check_of(record):
    sum_ = 0xcbf29ce484222325
    for byte in record:
        sum_ = (sum_ ^ byte) * 0x100000001b3 & 2**64 - 1
    return struct.pack("=Q", sum_)


class Control:
    """The control file of a process, kept open."""

    def __init__(self, pid):
        names = files(pid)
        assert len(names) == 1, f"control files of {pid}: {names}"
        self.path = os.path.join("/dev/shm", names[0])
        self.fd = os.open(self.path, os.O_RDWR)
        self.page = mmap.mmap(self.fd, BYTES)
        self.sequence = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()
        os.close(self.fd)

    def wake(self):
        place = (ctypes.c_char * BYTES).from_buffer(self.page)
        ctypes.CDLL(None).syscall(FUTEX, ctypes.c_void_p(ctypes.addressof(place) + REQUEST_AT), 1, 1, None, None, 0)
        del place

    def write(self, command, value=0, sequence=None, check=None):
        self.sequence = self.sequence + 1 if sequence is None else sequence
        record = REQUEST.pack(self.sequence, command, value)
        os.pwrite(self.fd, record + (check_of(record) if check is None else check), REQUEST_AT)
        self.wake()

    def answer(self):
        """The last answer, None where there is no whole one."""
        record = os.pread(self.fd, ANSWER.size + 8, ANSWER_AT)
        if len(record) < ANSWER.size + 8 or record[ANSWER.size:] != check_of(record[:ANSWER.size]):
            return None
        names = ("turn", "sequence", "code", "", "given_back", "reserved", "live", "cached", "limit", "limit_before", "over")
        return dict(zip(names, ANSWER.unpack(record[:ANSWER.size])))

    def answered(self, seconds=10):
        """The answer to what was written last, None when there is none in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self.answer()
            if found and found["sequence"] == self.sequence and found["code"] != TAKEN:
                return found
            time.sleep(0.001)
        return None

    def ask(self, command, value=0, code=DONE, seconds=10):
        self.write(command, value)
        found = self.answered(seconds)
        assert found, f"no answer in {seconds} s: {self.answer()}"
        assert found["code"] == code, (found, code)
        return found

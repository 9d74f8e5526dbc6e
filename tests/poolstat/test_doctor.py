# SPDX-License-Identifier: MIT
"""doctor: real programs over the simulated CUDA, loaded in every way that goes wrong, and patched figures."""
import contextlib
import json
import os
import platform
import shutil
import stat
import struct
import subprocess
import tempfile
from pathlib import Path

import schema
from common import POOLSTAT, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main, skip

GUEST = os.environ.get("DOCTOR_GUEST")
LIBRARY = os.environ["LIBRARY"]
SIM = os.environ.get("SIM_FOLDERS")
PRELOADED = os.environ.get("PRELOADED")  # folder of libraries to be preloaded beside the pool's
PROGRAMS = Path(os.environ["PROGRAMS"])
NOBODY = 65534

# Fields of the header that the layout fixes.
PASS_THROUGH, LOOKUPS, HOOKED = 256, 512, 520
PASS_REASONS = ("disabled", "forked", "no_context", "created_context", "closed_context", "capture", "async",
                "zero_or_null", "foreign", "tool", "no_host_memory", "no_driver")
CELLS_SECTION, IN_DRIVER, CELL_DRIVER_DOOR = 224, 80, 32


def doctor(*arguments, code, folder=None, environment=(), wrapper=()):
    """The findings by their ids, and the verdict."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "LD_"))}
    variables["POOLSTAT_LIBRARY"] = LIBRARY
    if folder is not None:
        variables["POOLSTAT_SHM_DIR"] = str(folder)
    variables.update(environment)
    for form in ([], ["--json"]):
        done = subprocess.run([*wrapper, POOLSTAT, "doctor", *form, *map(str, arguments)], env=variables,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        expect(done.returncode, code, f"exit code of doctor {arguments} ({done.stdout}{done.stderr})")
    answer = json.loads(done.stdout)
    schema.check(answer)
    if answer["error"] is not None:
        return answer["error"], None
    expect(done.stderr, "", "stderr")
    findings = {}
    for finding in answer["doctor"]["findings"]:
        findings.setdefault(finding["id"], finding)
        if finding["severity"] == "problem" and not finding["advice"]:
            raise AssertionError(f"a problem without advice: {finding}")
    worst = any(finding["severity"] == "problem" for finding in answer["doctor"]["findings"])
    expect(code, int(worst), "exit code against the findings")
    return findings, answer["doctor"]["verdict"]


def need_guest():
    if not GUEST:
        skip("the simulated CUDA is not built")


def need_own_dlsym():
    need_guest()
    if os.environ["SANITIZER"] != "none":
        skip("the sanitizer looks its functions up before another library's dlsym can answer")


@contextlib.contextmanager
def running(command, preload=(LIBRARY,), variables=(), wrapper=()):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("POOL_", "SIM_", "LD_"))}
    environment["LD_LIBRARY_PATH"] = ":".join([*{os.path.dirname(path) for path in preload if " " in path}, SIM or ""])
    # Blanks separate the entries of LD_PRELOAD.
    names = [os.path.basename(path) if " " in path else path for path in preload]
    if names:
        environment["LD_PRELOAD"] = ":".join(names)
    environment.update(variables)
    process = subprocess.Popen([*wrapper, *map(str, command)], env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline().split()
        if line[:1] != ["ready"]:
            raise AssertionError(f"{command} did not start: {line}")
        yield int(line[1]) if len(line) > 1 else process.pid
    finally:
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


def beside(name):
    return os.path.join(PRELOADED, name)


def expect_finding(findings, name, severity, *parts):
    if name not in findings:
        raise AssertionError(f"no finding {name} in {findings}")
    expect(findings[name]["severity"], severity, f"severity of {name}")
    for part in parts:
        expect_in(part, f"{findings[name]['what']} {findings[name]['advice']}")


# ---- processes ----

@case
def pooled_process_is_well():
    need_guest()
    with running([GUEST]) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "pooled")
    for name in ("preloaded", "figures", "pooled", "driver_door"):
        expect_finding(findings, name, "ok")
    expect({finding["severity"] for finding in findings.values()}, {"ok"}, str(findings))


@case
def process_that_was_not_preloaded():
    need_guest()
    with running([GUEST], preload=()) as pid:
        findings, verdict = doctor(pid, code=1)
    expect(verdict, "not_pooled")
    expect_finding(findings, "not_preloaded", "problem", "LD_PRELOAD did not name it", "poolstat run")


@case
def process_that_made_no_call_yet():
    need_guest()
    with running([beside("preload_idle")]) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "not_yet")
    expect_finding(findings, "no_cuda_call", "note")


@case
def library_that_cannot_be_loaded():
    need_guest()
    with tempfile.TemporaryDirectory() as top:
        text = Path(top) / "libpoolcuda.so"
        text.write_text("no library\n")
        for path, part in (("/no/such/libpoolcuda.so", "cannot see"), (text, "no library for this processor"),
                           ("libpoolcuda.so", "without its folder")):
            with running([GUEST], preload=(str(path),)) as pid:
                findings, verdict = doctor(pid, code=1)
            expect(verdict, "not_pooled")
            expect_finding(findings, "preload_failed", "problem", part)


@case
def other_dlsym_in_front():
    need_own_dlsym()
    other = beside("libother_dlsym.so")
    with running([GUEST], preload=(other, LIBRARY)) as pid:
        findings, verdict = doctor(pid, code=1)
    expect(verdict, "not_pooled")
    expect_finding(findings, "other_dlsym", "problem", "libother_dlsym.so", "first in LD_PRELOAD")


@case
def other_dlsym_in_front_under_another_name():
    need_own_dlsym()
    with tempfile.TemporaryDirectory() as top:
        link = Path(top) / "innocent.so"
        link.symlink_to(beside("libother_dlsym.so"))
        with running([GUEST], preload=(str(link), LIBRARY)) as pid:
            findings, _ = doctor(pid, code=1)
    expect_finding(findings, "other_dlsym", "problem", "libother_dlsym.so")


@case
def other_dlsym_behind_is_harmless():
    need_guest()
    with running([GUEST], preload=(LIBRARY, beside("libother_dlsym.so"))) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "pooled")
    expect_finding(findings, "other_dlsym_behind", "ok", "libother_dlsym.so")


@case
def compute_sanitizer_is_named():
    need_guest()
    tool = beside("libsanitizer-collection.so")
    with running([GUEST], preload=(LIBRARY, tool)) as pid:
        findings, verdict = doctor(pid, code=1)
    expect(verdict, "not_pooled")
    expect_finding(findings, "compute_sanitizer", "problem", "POOL_ENABLE=1")
    with running([GUEST], preload=(LIBRARY, tool), variables={"POOL_ENABLE": "1"}) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "pooled")
    expect_finding(findings, "compute_sanitizer", "note")


@case
def settings_that_switch_off():
    need_guest()
    with running([GUEST], variables={"POOL_ENABLE": "0"}) as pid:
        findings, verdict = doctor(pid, code=1)
    expect(verdict, "not_pooled")
    expect_finding(findings, "disabled", "problem", "POOL_ENABLE=0")
    with running([GUEST], variables={"POOL_STATS": "0"}) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "unknown")
    expect_finding(findings, "figures_off", "note", "POOL_STATS=0")
    with running([GUEST, "export"], variables={"POOL_ASYNC": "0"}) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "pooled")
    expect_finding(findings, "async_off", "note", "3 calls")


@case
def memory_pool_of_the_program():
    need_guest()
    with running([GUEST, "export"]) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "pooled")
    expect_finding(findings, "async_given_up", "note", "3 calls", "the program's own memory pool", "cudaDeviceSetMemPool")


@case
def variables_that_were_not_accepted():
    need_guest()
    wrong = {"POOL_LIMT_MB": "3", "POOL_LOG": "9", "POOL_FIXED": "1MiB", "POOL_FREE": "event", "POOL_\x1b[31m": "x"}
    with running([GUEST], variables=wrong) as pid:
        findings, verdict = doctor(pid, code=1)
        text = poolstat("doctor", pid, folder="/dev/shm").out
    expect(verdict, "pooled")
    for part in ("POOL_LIMT_MB", "POOL_LIMIT_MB", "POOL_LOG=9", "0 to 3", "POOL_FIXED=1MiB", "POOL_\\x1b[31m"):
        expect_in(part, text)
    if "POOL_FREE" in text or "\x1b" in text:
        raise AssertionError(text)


@case
def child_of_a_pooled_process():
    need_guest()
    with running([GUEST, "fork"]) as pid:
        findings, verdict = doctor(pid, code=0)
    expect(verdict, "unknown")
    expect_finding(findings, "forked_child", "note", "parent")


@case
def frees_that_were_refused():
    need_guest()
    with running([GUEST, "twice"]) as pid:
        findings, _ = doctor(pid, code=0)
    expect_finding(findings, "bad_frees", "note", "refused 1 free of")


@case
def library_that_was_replaced():
    need_guest()
    with tempfile.TemporaryDirectory() as top:
        copy = str(shutil.copy(LIBRARY, Path(top) / "libpoolcuda.so"))
        with running([beside("preload_idle")], preload=(copy,)) as pid:
            os.unlink(copy)
            findings, _ = doctor(pid, code=0)
    expect_finding(findings, "library_replaced", "note", "replaced or removed")


@case
def figures_that_were_removed():
    need_guest()
    with running([GUEST]) as pid:
        (path,) = Path("/dev/shm").glob(f"poolcuda-*-{pid}-*")
        os.unlink(path)
        findings, verdict = doctor(pid, code=1)
    expect(verdict, "unknown")
    expect_finding(findings, "figures_removed", "problem", "removed")


@case
def shared_memory_that_is_full():
    need_guest()
    for users in [], ["--map-root-user"]:
        wrapper = ["unshare", *users, "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh"]
        if shutil.which("unshare") and subprocess.run([*wrapper, "true"], capture_output=True).returncode == 0:
            break
    else:
        skip("no mount namespaces may be made here")
    with running([GUEST], wrapper=["env", "-u", "LD_PRELOAD", *wrapper, "env", f"LD_PRELOAD={LIBRARY}"]) as pid:
        findings, verdict = doctor(pid, code=1)
    expect(verdict, "unknown")
    expect_finding(findings, "shared_memory_full", "problem", "--shm-size")


def need_root():
    if os.getuid() != 0:
        skip("needs root")


@case
def program_with_raised_privileges():
    need_root()
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        program = shutil.copy(os.path.realpath(shutil.which("sleep")), Path(top) / "raised")
        os.chown(program, NOBODY, NOBODY)
        os.chmod(program, 0o755 | stat.S_ISUID)
        if os.statvfs(top).f_flag & os.ST_NOSUID:
            skip("the temporary folder ignores setuid")
        findings, verdict = doctor("--", program, code=1)
        expect(verdict, "not_ready")
        expect_finding(findings, "secure_mode", "problem", "setuid")
        process = subprocess.Popen([program, "60"], env={"LD_PRELOAD": LIBRARY}, stderr=subprocess.DEVNULL)
        try:
            await_program(process.pid, "raised")
            findings, verdict = doctor(process.pid, code=1)
        finally:
            process.kill()
            process.wait()
    expect(verdict, "not_pooled")
    expect_finding(findings, "secure_mode", "problem", "LD_PRELOAD")


def await_program(pid, name):
    """Until exec has taken place and the loader is through."""
    for _ in range(1000):
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name and Path(f"/proc/{pid}/auxv").read_bytes():
            return
        subprocess.run(["sleep", "0.01"])
    raise AssertionError(f"{name} did not start")


@case
def process_of_another_user():
    need_root()
    if not shutil.which("setpriv"):
        skip("no setpriv")
    wrapper = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if subprocess.run([*wrapper, POOLSTAT, "--version"], capture_output=True).returncode != 0:
        skip("other users cannot execute poolstat where it was built")
    with running(["sh", "-c", "echo ready $$; read line"], preload=()) as pid:
        error, _ = doctor(pid, code=3, wrapper=wrapper)
    expect(error["code"], 3)
    expect_in("as root", error["message"])


@case
def process_that_is_not_there():
    for pid in ("0", "4194305", "99999999999999999999"):
        error, _ = doctor(pid, code=5)
        expect(error["code"], 5)


# ---- figures ----

def patch(path, offset, form, *values):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(struct.pack(form, *values))


@case
def each_reason_is_explained():
    severities = {"disabled": ("disabled", "problem"), "forked": ("forked_child", "problem"),
                  "no_context": ("no_context", "note"), "created_context": ("created_context", "note"),
                  "closed_context": ("closed_context", "note"), "capture": ("capture", "note"),
                  "async": ("async_given_up", "note"), "tool": ("compute_sanitizer", "problem"),
                  "no_host_memory": ("no_host_memory", "problem"), "no_driver": ("no_driver", "problem")}
    with one_guest() as (folder, started):
        for index, reason in enumerate(PASS_REASONS):
            patch(started.path, PASS_THROUGH, "=32Q", *(4711 * (i == index) for i in range(32)))
            name, severity = severities.get(reason, (None, None))
            findings, verdict = doctor(started.pid, folder=folder, code=int(severity == "problem"))
            expect(verdict, "pooled", reason)
            if name is None:
                if "4711" in str(findings):
                    raise AssertionError(findings)
            else:
                expect_finding(findings, name, severity, "4711 calls")


@case
def driver_door_that_was_never_asked():
    with one_guest() as (folder, started):
        patch(started.path, LOOKUPS, "=QQ", 440, 0)
        findings, _ = doctor(started.pid, folder=folder, code=0)
        expect_finding(findings, "driver_door", "ok")  # by calls, not by look-ups
        with open(started.path, "rb") as file:
            file.seek(CELLS_SECTION)
            offset, count, stride, _ = struct.unpack("=IIII", file.read(16))
        for cell in range(count):
            patch(started.path, offset + cell * stride + CELL_DRIVER_DOOR, "=Q", 0)
        findings, _ = doctor(started.pid, folder=folder, code=0)
    expect_finding(findings, "driver_door_unasked", "note", "440 look-ups", "RTLD_DEEPBIND")


@case
def call_that_does_not_return():
    with one_guest() as (folder, started):
        with open(started.path, "rb") as file:
            file.seek(48)
            (created,) = struct.unpack("=Q", file.read(8))
        patch(started.path, IN_DRIVER, "=Q", max(1, created - 20 * 10**9))
        findings, _ = doctor(started.pid, folder=folder, code=0)
    expect_finding(findings, "in_driver", "note", "inside one driver call")


@case
def figures_of_another_layout():
    with one_guest("other-version") as (folder, started):
        findings, verdict = doctor(started.pid, folder=folder, code=1)
    expect(verdict, "unknown")
    expect_finding(findings, "layout_differs", "problem", "one release")


@case
def figures_that_are_damaged():
    with one_guest("other-magic") as (folder, started):
        findings, verdict = doctor(started.pid, folder=folder, code=1)
        expect_finding(findings, "figures_damaged", "problem", "does not begin with")
        findings, verdict = doctor(folder=folder, code=1)
        expect_finding(findings, "figures_damaged", "problem", str(started.pid))


@case
def release_that_differs():
    with one_guest() as (folder, started):
        data = started.path.read_bytes()
        patch(started.path, data.index(b"0.1.0\0"), "=8s", b"0.0\x1b9")
        findings, _ = doctor(started.pid, folder=folder, code=0)
    expect_finding(findings, "versions_differ", "note", "0.0\\x1b9")


# ---- executables ----

def minimal_program(machine=None, word_size=2):
    """A static program of one segment that ends at once."""
    code = {"x86_64": b"\xb8\x3c\0\0\0\x31\xff\x0f\x05", "aarch64": b"\xa8\x0b\x80\xd2\0\0\x80\xd2\x01\0\0\xd4"}
    number = {"x86_64": 62, "aarch64": 183}
    start = 0x400000
    body = code[platform.machine()]
    size = 64 + 56 + len(body)
    header = struct.pack("<4sBBBBQHHIQQQIHHHHHH", b"\x7fELF", word_size, 1, 1, 0, 0, 2,
                         number[platform.machine()] if machine is None else machine, 1, start + 120, 64, 0, 0, 64, 56, 1,
                         0, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 4096) + body


@contextlib.contextmanager
def executable(data, mode=0o755):
    with tempfile.TemporaryDirectory() as top:
        path = Path(top) / "program"
        path.write_bytes(data)
        path.chmod(mode)
        yield path


@case
def static_program_is_named():
    with executable(minimal_program()) as path:
        expect(subprocess.run([path]).returncode, 0, "status of the static program")
        findings, verdict = doctor(path, code=1)
    expect(verdict, "not_ready")
    expect_finding(findings, "static_program", "problem", "dynamic loader")


@case
def program_of_another_processor_is_named():
    for machine, word_size, name in ((183 if platform.machine() == "x86_64" else 62, 2, ""), (3, 1, "32-bit x86"),
                                     (21, 2, "POWER"), (1234, 2, "another processor")):
        with executable(minimal_program(machine, word_size)) as path:
            findings, verdict = doctor(path, code=1)
        expect(verdict, "not_ready")
        expect_finding(findings, "wrong_architecture", "problem", name)


@case
def commands_are_found_as_the_shell_does():
    findings, verdict = doctor("--", "true", "-x", "--json", code=0)
    expect(verdict, "ready")
    expect_finding(findings, "library", "ok")
    expect_finding(findings, "links_none", "note")
    findings, verdict = doctor("no-such-command", code=1)
    expect(verdict, "not_ready")
    expect_finding(findings, "no_program", "problem", "no-such-command")
    for data, mode, part in ((b"", 0o755, "neither"), (b"#!/no/such\n", 0o755, "/no/such"),
                             (minimal_program(), 0o644, "cannot be executed")):
        with executable(data, mode) as path:
            findings, _ = doctor(path, code=1)
        expect_finding(findings, "no_program", "problem", part)
    with executable(b"#! /usr/bin/env  -S A=b sh -x\n") as path:
        findings, _ = doctor(path, code=0)
    expect_finding(findings, "script", "ok", "/sh")
    with executable(b"#!") as path:
        path.write_bytes(b"#!" + bytes(path) + b"\n")  # for ever itself
        findings, _ = doctor(path, code=1)
    expect_finding(findings, "no_program", "problem", "scripts")


@case
def door_of_an_executable_is_told():
    need_guest()
    findings, verdict = doctor(GUEST, code=0)
    expect(verdict, "ready")
    expect_finding(findings, "links_runtime", "ok")


@case
def executable_with_a_dlsym_of_its_own():
    for style in "gnu", "sysv":
        findings, verdict = doctor(PROGRAMS / f"dlsym_defines_{style}", code=1)
        expect(verdict, "not_ready")
        expect_finding(findings, "other_dlsym", "problem", f"dlsym_defines_{style}")
        findings, verdict = doctor(PROGRAMS / f"dlsym_uses_{style}", code=0)
        expect(verdict, "ready")


@case
def library_that_is_missing_is_told():
    findings, verdict = doctor("true", code=1, environment={"POOLSTAT_LIBRARY": "/no/such.so"})
    expect(verdict, "not_ready")
    expect_finding(findings, "library_missing", "problem", "/no/such.so")
    findings, _ = doctor("true", code=1, environment={"POOLSTAT_LIBRARY": __file__})
    expect_finding(findings, "library_wrong", "problem")


# ---- the machine ----

@case
def machine_is_ready():
    with folder_of_segments() as folder, guest(folder):
        findings, verdict = doctor(folder=folder, code=0)
    expect(verdict, "ready")
    expect_finding(findings, "library", "ok")
    expect_finding(findings, "shared_memory", "ok", str(folder))
    expect_finding(findings, "processes", "ok", "1 process ")


@case
def machine_that_is_not_ready():
    with folder_of_segments() as folder:
        for environment, name, part in (({"POOLSTAT_SHM_DIR": "/no/such"}, "shared_memory_missing", "/no/such"),
                                        ({"POOL_ENABLE": "0"}, "disabled", "POOL_ENABLE=0"),
                                        ({"POOL_ENABEL": "1"}, "unknown_variable", "POOL_ENABLE"),
                                        ({"POOL_OF_OTHERS": "1"}, "unknown_variable", "help config"),
                                        ({"POOL_FILL": "or"}, "bad_value", "none, zero or poison"),
                                        ({"POOL_TRIM_MB": "16777217"}, "bad_value", "0 to 16777216"),
                                        ({"POOL_LOG": ""}, "bad_value", "0 to 3")):
            findings, verdict = doctor(folder=folder, environment=environment, code=1)
            expect(verdict, "not_ready", str(environment))
            expect_finding(findings, name, "problem", part)
        good = {"POOL_FILL": "zero", "POOL_TRIM_MB": "0", "POOL_MAX_SPLIT_MB": "auto", "POOL_LIMIT_MB": "none",
                "POOL_LOG": "3"}
        doctor(folder=folder, environment=good, code=0)


@case
def programs_beside_the_pool_are_listed():
    need_guest()
    with folder_of_segments() as folder, running([GUEST], preload=()) as pid:
        done = poolstat("doctor", folder=folder)
    expect_in(f"Process {pid} ({os.path.basename(GUEST)[:15]}) uses CUDA without the pool.", done.out)


@case
def text_says_the_same():
    with folder_of_segments() as folder:
        result = poolstat("doctor", "--", "no-such-command", folder=folder)
    expect(result.code, 1)
    lines = result.out.splitlines()
    expect(lines[0], "no-such-command is not ready to be pooled.")
    expect(lines[1:3], ["problem   There is no command no-such-command.", "          Name it with its path."])


@case
def every_name_of_the_document_is_in_the_glossary():
    with folder_of_segments() as folder:
        answer = json.loads(poolstat("doctor", "--json", folder=folder).out)
        glossary = {line.split()[0] for line in poolstat("help", "fields", folder=folder).out.splitlines()
                    if line.startswith("  ")}
    expect(sorted({*answer, *answer["doctor"], *answer["doctor"]["findings"][0]} - glossary), [])


@case
def two_processes_are_too_many():
    with folder_of_segments() as folder:
        expect(poolstat("doctor", "1", "2", folder=folder).code, 2)


main()

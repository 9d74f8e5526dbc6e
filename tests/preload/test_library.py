# SPDX-License-Identifier: MIT
"""The built library: what it exports and what it needs."""
import os
import re
import shutil
import subprocess
import tempfile

from preload import EMULATOR, LIBRARY, SOURCE, environment, launch
from tap import case, main, skip


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def symbols(*options):
    done = subprocess.run(["nm", "-D", *options, LIBRARY], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def listed():
    text = re.sub(r"/\*.*?\*/", "", read("src/entry/libpoolcuda.map"), flags=re.S)
    return re.findall(r"\w+(?=;)", text.split("local:")[0])


@case
def hazard_09_exports_are_exactly_the_list():
    exported = symbols("--defined-only")
    names = sorted(fields[-1] for fields in exported)
    assert names == sorted(listed()), set(names) ^ set(listed())
    assert {fields[-2] for fields in exported} == {"T"}, exported


@case
def hazard_09_hook_table_and_export_list_agree():
    hooks = re.findall(r"^\s+X\((cu\w+),", read("src/entry/hooks.h"), re.M)
    door = re.findall(r"^\s+X\((cuda\w+),", read("src/entry/callers.h"), re.M)
    assert len(hooks) > 50 and len(door) == 8
    assert sorted(["dlsym", *hooks, *door]) == sorted(listed())


@case
def hazard_09_no_private_and_no_newer_symbol_of_glibc_is_needed():
    needed = {match for fields in symbols("--undefined-only") for match in re.findall(r"@(GLIBC_\w[\w.]*)", fields[-1])}
    assert needed
    assert "GLIBC_PRIVATE" not in needed
    newer = [version for version in needed if tuple(map(int, version[6:].split("."))) > (2, 34)]
    assert not newer, newer


@case
def only_libc_is_linked():
    done = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True)
    needed = re.findall(r"NEEDED.*\[(.*)\]", done.stdout)
    sanitizers = [name for name in needed if re.match(r"lib(asan|ubsan|tsan|clang_rt)", name)]
    assert set(needed) - set(sanitizers) <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
                                               "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, needed


@case
def hazard_01_the_library_works_from_an_odd_place():
    with tempfile.TemporaryDirectory(prefix="odd place ") as folder:
        place = shutil.copy(LIBRARY, os.path.join(folder, "libother name.so"))
        link = os.path.join(folder, "link.so")
        os.symlink(place, link)
        # LD_PRELOAD takes no spaces: through a link of a plain name.
        with tempfile.TemporaryDirectory(prefix="odd-place-") as plain:
            os.symlink(link, os.path.join(plain, "cuda.so"))
            variables = environment()
            variables["LD_PRELOAD"] = os.path.join(plain, "cuda.so")
            done = subprocess.run(**launch(["preload_guest_runtime", "neighbours"], variables), capture_output=True,
                                  text=True, timeout=60)
            assert done.returncode == 0 and done.stdout.count("neighbours hold: 1 1") == 2, done


@case
def programs_without_cuda_do_not_notice():
    if EMULATOR:
        skip("the programs of this machine are of another processor than the library")
    for command in (["true"], ["ls", "/dev/null"], ["sh", "-c", "echo a; exec echo b"]):
        if not shutil.which(command[0]):
            skip(f"no {command[0]}")
        native = subprocess.run(command, env=environment(pool=False), capture_output=True, timeout=60)
        pooled = subprocess.run(command, env=environment(), capture_output=True, timeout=60)
        assert (native.returncode, native.stdout, native.stderr) == (pooled.returncode, pooled.stdout, pooled.stderr)


main()

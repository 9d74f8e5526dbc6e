# SPDX-License-Identifier: MIT
"""Starting programs under the pool, and the command line: exit codes, environment, where the library is found."""
import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from common import POOLSTAT, Result, expect, expect_in, folder_of_segments, poolstat
from tap import case, main, skip

def without_blanks(library):
    """The library, or a copy where its path has a blank: LD_PRELOAD names a library by its path only without."""
    if " " not in library:
        return library
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return shutil.copy(library, folder)


STUB = without_blanks(os.environ["STUB"])


def run(*arguments, program=POOLSTAT, environment=(), library=STUB):
    variables = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    variables.update(environment)
    if library is not None:
        variables["POOLSTAT_LIBRARY"] = str(library)
    done = subprocess.run([str(program), "run", *arguments], env=variables, capture_output=True, text=True, timeout=20)
    return Result(done.returncode, done.stdout, done.stderr)


def installed(top, library="lib/libpoolcuda.so"):
    """A copy of poolstat and of the stub, as if installed below `top`."""
    for path, source in (("bin/poolstat", POOLSTAT), (library, STUB)):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, top / path)
    return top / "bin/poolstat"


@case
def program_runs_with_the_library():
    result = run("--", "sh", "-c", "echo $STUB_LOADED; echo $LD_PRELOAD")
    expect((result.code, result.err), (0, ""))
    expect(result.out.split(), ["yes", os.path.realpath(STUB)])


@case
def exit_status_is_that_of_the_program():
    for status in (0, 1, 37, 255):
        expect(run("--", "sh", "-c", f"exit {status}").code, status)


@case
def signal_that_ends_the_program_is_seen():
    expect(run("--", "sh", "-c", "kill -TERM $$").code, -signal.SIGTERM)


@case
def process_is_the_program_itself():
    variables = dict(os.environ, POOLSTAT_LIBRARY=STUB)
    process = subprocess.Popen([POOLSTAT, "run", "sh", "-c", "echo $$"], env=variables, stdout=subprocess.PIPE,
                               text=True)
    out, _ = process.communicate(timeout=20)
    expect(int(out), process.pid)


@case
def command_that_is_not_there_answers_127():
    for command in ("no-such-command", "/no/such/command"):
        result = run("--", command)
        expect((result.code, result.out), (127, ""))
        expect_in(command, result.err)


@case
def command_that_cannot_be_executed_answers_126():
    with tempfile.NamedTemporaryFile() as file:
        for command in (file.name, "/"):
            result = run("--", command)
            expect((result.code, result.out), (126, ""))
            expect_in("Permission denied", result.err)


@case
def options_of_the_program_are_its_own():
    for separator in ([], ["--"]):
        expect(run(*separator, "printf", "%s.", "-e", "--json", "--", "-h").out, "-e.--json.--.-h.")


@case
def variables_are_set():
    result = run("-e", "POOL_LIMIT_MB=64", "--env", "EMPTY=", "-eNEXT=a=b", "sh", "-c",
                 "echo \"$POOL_LIMIT_MB|${EMPTY-unset}|$NEXT\"")
    expect(result.out, "64||a=b\n")


@case
def malformed_variables_answer_2():
    for bad in ("NAME", "=value", ""):
        result = run("-e", bad, "true")
        expect(result.code, 2, f"code of -e {bad!r}")
        expect_in("VAR=VALUE", result.err)


@case
def present_preload_is_kept():
    with tempfile.TemporaryDirectory() as top:
        other = shutil.copy(STUB, Path(top) / "other.so")
        own = os.path.realpath(STUB)
        for before, after in ((other, f"{own}:{other}"), (f":{other} ", f"{own}:{other} "), (own, own),
                              (f"{other}:{own}", f"{other}:{own}"), ("", own)):
            result = run("-e", f"LD_PRELOAD={before}", "sh", "-c", "echo \"$LD_PRELOAD\"")
            expect(result.out, after + "\n", f"LD_PRELOAD after {before!r}")
            result = run("sh", "-c", "echo \"$LD_PRELOAD\"", environment={"LD_PRELOAD": before})
            if "Sanitizer" not in result.err and "runtime does not come first" not in result.err:
                expect(result.out, after + "\n", f"LD_PRELOAD after {before!r} in the environment")


@case
def sanitizer_stays_in_front():
    with tempfile.TemporaryDirectory() as top:
        runtime = shutil.copy(STUB, Path(top) / "libasan.so.8")
        result = run("-e", f"LD_PRELOAD={runtime} other.so", "sh", "-c", "echo \"$LD_PRELOAD\"")
        expect(result.out, f"{runtime}:{os.path.realpath(STUB)}:other.so\n")


@case
def library_is_found_as_installed():
    with tempfile.TemporaryDirectory() as top:
        for library in ("lib/libpoolcuda.so", "lib64/libpoolcuda.so", "bin/libpoolcuda.so"):
            place = Path(top) / library.replace("/", "-")
            program = installed(place, library)
            (Path(top) / "link").unlink(missing_ok=True)
            (Path(top) / "link").symlink_to(program)
            for way in (program, Path(top) / "link"):
                result = run("sh", "-c", "echo $STUB_LOADED $LD_PRELOAD", program=way, library=None)
                expect(result.out.split(), ["yes", os.path.realpath(place / library)], f"{library}, {result.err}")


@case
def library_that_is_missing_answers_125_and_says_where_it_was_looked_for():
    with tempfile.TemporaryDirectory() as top:
        program = installed(Path(top), "elsewhere/libpoolcuda.so")
        result = run("true", program=program, library=None)
        expect((result.code, result.out), (125, ""))
        for part in ("libpoolcuda.so", f"{top}/bin", "POOLSTAT_LIBRARY"):
            expect_in(part, result.err)
        result = run("true", library="/no/such/library.so")
        expect(result.code, 125)
        expect_in("/no/such/library.so", result.err)


@case
def path_with_blanks_works():
    with tempfile.TemporaryDirectory() as top:
        program = installed(Path(top) / "a folder")
        for before, after in ((None, ""), ("/opt/lib:/usr/x", "/opt/lib:/usr/x:")):
            environment = {} if before is None else {"LD_LIBRARY_PATH": before}
            result = run("sh", "-c", "echo \"$STUB_LOADED $LD_PRELOAD $LD_LIBRARY_PATH\"", program=program,
                         library=None, environment=environment)
            folder = os.path.realpath(Path(top) / "a folder" / "lib")
            expect(result.out, f"yes libpoolcuda.so {after}{folder}\n", result.err)


@case
def path_that_cannot_be_preloaded_is_refused():
    with tempfile.TemporaryDirectory() as top:
        for name in ("a:b", "a;b", "$ORIGIN"):
            program = installed(Path(top) / name)
            result = run("true", program=program, library=None)
            expect((result.code, result.out), (125, ""), name)
            expect_in("LD_PRELOAD", result.err)


@case
def wrong_usage_answers_2_and_says_so_on_stderr():
    with folder_of_segments() as folder:
        for arguments in (["frob"], ["--frob"], ["-x"], ["--json=yes"], ["show"], ["show", "1", "2"], ["show", "x"],
                          ["show", "-1"], ["show", "0"], ["show", "99999999999"], ["help", "frob"], ["run"],
                          ["run", "--frob", "true"], ["run", "-e"], ["--json", "run", "true"], ["help", "a", "b"]):
            result = poolstat(*arguments, folder=folder)
            expect(result.code, 2, f"code of {arguments}")
            if not result.err.startswith("poolstat: ") or "--json" not in arguments and result.out != "":
                raise AssertionError(f"{arguments}: {result}")


@case
def help_and_version_go_to_stdout():
    with folder_of_segments() as folder:
        for arguments, part in ((["--help"], "poolstat run [-e VAR=VALUE]"), (["-h"], "Exit codes"),
                                (["help"], "POOLSTAT_LIBRARY"), (["show", "--help"], "Usage"),
                                (["run", "--help"], "Usage"), (["--version"], "poolstat 0."),
                                (["help", "fields"], "external_fragmentation"),
                                (["help", "config"], "POOL_HEADROOM_MB   256      0 to 16777216"),
                                (["help", "config"], "POOL_FREE          sync     sync or event"),
                                (["help", "config"], "POOL_FILL          none     none, zero or poison")):
            result = poolstat(*arguments, folder=folder)
            expect((result.code, result.err), (0, ""), f"{arguments}")
            expect_in(part, result.out)
        for line in poolstat("--help", folder=folder).out.splitlines():
            if len(line) > 100:
                raise AssertionError(f"long line {line!r}")


@case
def answer_that_cannot_be_written_answers_125():
    if not os.path.exists("/dev/full"):
        skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([POOLSTAT, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
    expect(done.returncode, 125)
    expect_in("No space left", done.stderr)


main()

# SPDX-License-Identifier: MIT
"""--help, manuals and completions say the same; the manuals are sound; an installed tree is complete and works."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import POOLSTAT, expect, expect_in, folder_of_segments, guest
from tap import case, main, skip

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["BUILD"])
MAN, COMPLETIONS = BUILD / "man", BUILD / "completions"
PAGES = ("poolstat.1", "libpoolcuda.7", "poolcuda-stats.5")
OPTION = re.compile(r"^ +(?:-(\S), )?--([a-z-]+)", re.MULTILINE)
HEADER = (SOURCE / "include/poolcuda/stats.h").read_text()
VARIABLES = (SOURCE / "include/poolcuda/variables.h").read_text()


def run(*command, code=0, **settings):
    done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                          **settings)
    expect(done.returncode, code, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def commands():
    usage = run(POOLSTAT, "--help").split("\n\n")[0]
    return re.findall(r"^  poolstat ([a-z]+)", usage, re.MULTILINE)


def options(*command):
    """Long and short forms, as --help names them."""
    found = OPTION.findall(run(POOLSTAT, *command, "--help"))
    return {f"-{letter}" for letter, _ in found if letter}, {f"--{name}" for _, name in found}


def page(name):
    return (MAN / name).read_text()


def section(text, title):
    match = re.search(rf"^\.Sh {title}\n(.*?)(?=^\.Sh |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise AssertionError(f"no section {title}")
    return match[1]


# ---- manuals ----

@case
def options_of_the_manual_are_those_of_help():
    short, long = set(), set()
    for line in re.findall(r"^\.It Fl (.*)$", section(page("poolstat.1"), "OPTIONS"), re.MULTILINE):
        short |= {f"-{letter}" for letter in re.findall(r"^(\S) ,", line)}
        long |= {f"-{name}" for name in re.findall(r"(?:^|Fl )(-[a-z-]+)", line)}
    expect((short, long), options())


@case
def every_key_is_in_the_manual():
    keys = re.findall(r"^  (\S+(?:, \S+)*)  +\S", run(POOLSTAT, "help", "keys"), re.MULTILINE)
    if len(keys) < 20:
        raise AssertionError(f"help keys has {keys}")
    shown = re.findall(r"^\.It (.*)$", section(page("poolstat.1"), "KEYS"), re.MULTILINE)
    expect([line.replace("\\e", "\\").removeprefix("\\&") for line in shown], keys)


@case
def every_command_is_in_the_manual():
    text = page("poolstat.1")
    expect(re.findall(r"^\.Cm (\S+)$", section(text, "SYNOPSIS"), re.MULTILINE), commands())
    expect(re.findall(r"^\.Ss (\S+)$", section(text, "COMMANDS"), re.MULTILINE), commands())
    for name in commands():
        text = SOURCE / "man/commands" / f"{name}.mdoc"
        if not text.exists() or len(text.read_text().split()) < 20:
            raise AssertionError(f"{name} has no text of its own in man/commands")


@case
def exit_codes_of_the_manual_are_those_of_help():
    help_text = run(POOLSTAT, "--help")
    said = set(re.findall(r"\b\d+\b", re.search(r"Exit codes:\n((?: .*\n)+)", help_text)[1]))
    told = set(re.findall(r"\d+", " ".join(re.findall(r"^\.It (\d.*)$", section(page("poolstat.1"), "EXIT STATUS"),
                                                      re.MULTILINE))))
    expect(told, said)


@case
def environment_of_the_manual_is_that_of_help():
    said = re.findall(r"^  (POOLSTAT_\w+)", run(POOLSTAT, "--help"), re.MULTILINE)
    told = re.findall(r"^\.It Ev (POOLSTAT_\w+)", section(page("poolstat.1"), "ENVIRONMENT"), re.MULTILINE)
    expect(sorted(told), sorted(said))


@case
def variables_of_the_manual_are_those_of_the_header():
    declared = re.findall(r"^ +X\((POOL_\w+),", VARIABLES, re.MULTILINE)
    told = re.findall(r"^\.It Ev (POOL_\w+)$", section(page("libpoolcuda.7"), "ENVIRONMENT"), re.MULTILINE)
    expect(told, declared)
    if len(declared) < 10:
        raise AssertionError(declared)


@case
def fields_of_the_manual_are_those_of_the_glossary():
    said = [line.split()[0] for line in run(POOLSTAT, "help", "fields").splitlines() if line.startswith("  ")]
    told = re.findall(r"^\.It Va (\S+)", section(page("poolstat.1"), "FIELDS"), re.MULTILINE)
    expect(told, said)


@case
def figures_of_the_manual_are_those_of_the_header():
    told = re.findall(r"^\.It Va (\S+)", page("poolcuda-stats.5"), re.MULTILINE)
    declared = []
    for name in ("POOL_FIGURES", "CELL_FIGURES", "CLASS_FIGURES", "FIXED_FIGURES", "PASS_REASONS", "EVENT_TYPES"):
        body = HEADER.split(f"#define POOLCUDA_{name}(X)")[1].split("\n\n")[0]
        declared += re.findall(r"X\((\w+),", body)
    expect(told, declared)
    expect_in(re.search(r"LAYOUT_VERSION (\d+)u", HEADER)[1] + ".\n", section(page("poolcuda-stats.5"), "DESCRIPTION"))


@case
def manuals_are_clean():
    if not shutil.which("mandoc"):
        skip("no mandoc")
    for name in PAGES:
        expect(run("mandoc", "-T", "lint", "-W", "warning", MAN / name), "", name)


@case
def manuals_are_shown():
    if not shutil.which("groff"):
        skip("no groff")
    for name in PAGES:
        done = subprocess.run(["groff", "-mdoc", "-ww", "-Tutf8", MAN / name], capture_output=True, text=True, timeout=60)
        expect(done.stderr, "", name)
        expect_in("DESCRIPTION", re.sub("\x1b\\[[0-9]*m|.\b", "", done.stdout))


@case
def nothing_is_left_of_the_templates():
    for path in [*(MAN / name for name in PAGES), *COMPLETIONS.glob("*poolstat*")]:
        if path.is_file() and re.search(r"@[A-Z]+", path.read_text()):
            raise AssertionError(path)


# ---- completions ----

def need(shell):
    if not shutil.which(shell):
        skip(f"no {shell}")


def search_path():
    return f"{Path(POOLSTAT).parent}:{os.environ['PATH']}"


BASH = """source "$1"; shift; compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _poolstat poolstat "${@: -1}" ""; printf '%s\\n' "${COMPREPLY[@]}" """


def bash(*words):
    return set(run("bash", "--norc", "-c", BASH, "bash", COMPLETIONS / "poolstat", "poolstat", *words,
                   env={**os.environ, "PATH": search_path()}).split())


def fish(line):
    text = run("fish", "--no-config", "-c", f"source '{COMPLETIONS / 'poolstat.fish'}'; complete -C{line!r}",
               env={**os.environ, "PATH": search_path()})
    return {one.split("\t")[0] for one in text.splitlines()}


def zsh(line):
    return set(run("zsh", "-f", SOURCE / "tests/poolstat/complete.zsh", COMPLETIONS, search_path(), line).split())


@case
def bash_completes_what_help_says():
    need("bash")
    expect(bash(""), set(commands()))
    for command in commands():
        short, long = options(command)
        expect(bash(command, "-"), short | long, command)
        expect(bash(command, "--"), long, command)
    short, long = options()
    expect(bash("-"), short | long, "before a command")


@case
def fish_completes_what_help_says():
    need("fish")
    expect(fish("poolstat "), set(commands()))
    for command in commands():
        expect({name for name in fish(f"poolstat {command} --") if name.startswith("--")}, options(command)[1], command)
    expect(fish("poolstat --"), options()[1], "before a command")


@case
def zsh_completes_what_help_says():
    need("zsh")
    expect(zsh("poolstat "), set(commands()))
    for command in commands():
        expect(zsh(f"poolstat {command} --"), options(command)[1], command)


@case
def bash_completes_values():
    need("bash")
    expect(bash("ls", "--color", "=", "al"), {"always"})
    expect(bash("ls", "--color", ""), {"auto", "always", "never"})
    expect(bash("run", "-e", "POOL_L"), {name + "=" for name in re.findall(r"^ +X\((POOL_L\w+),", VARIABLES, re.MULTILINE)})
    expect(bash("ls", "-o", "pid,live"), {"pid,live_bytes"})
    expect(bash("run", "printe"), {"printenv"})
    expect(bash("run", "app", "--"), set())
    expect(bash("-p", "1", "sho"), {"show"}, "the value of an option is no command")
    expect(bash("help", "conf"), {"config"})


@case
def bash_completes_processes():
    need("bash")
    with folder_of_segments() as folder, guest(folder) as started:
        os.environ["POOLSTAT_SHM_DIR"] = str(folder)
        try:
            for words in (["show", ""], ["ls", "-p", ""], ["doctor", str(started.pid)[:1]]):
                expect_in(str(started.pid), bash(*words))
            expect(bash("ls", "-p", "1,"), {f"1,{started.pid}"})
        finally:
            del os.environ["POOLSTAT_SHM_DIR"]


# ---- an installed tree ----

@case
def installed_tree_is_complete_and_works():
    with tempfile.TemporaryDirectory() as top:
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", top)
        files = {path.name: path for path in Path(top).rglob("*") if path.is_file()}
        for name in (*PAGES, "_poolstat", "poolstat.fish", "poolstat.schema.json", "libpoolcuda.so", "stats.h"):
            if name not in files:
                raise AssertionError(f"{name} is not installed")
        places = {str(path.relative_to(top)) for path in Path(top).rglob("*")}
        for end in ("/bin/poolstat", "/man1/poolstat.1", "/man7/libpoolcuda.7", "/man5/poolcuda-stats.5",
                    "/bash-completion/completions/poolstat", "/zsh/site-functions/_poolstat",
                    "/fish/vendor_completions.d/poolstat.fish", "/poolcuda/poolstat.schema.json"):
            if not any(("/" + place).endswith(end) for place in places):
                raise AssertionError(f"nothing is at {end}")
        expect(json.loads(files["poolstat.schema.json"].read_text())["title"], "Documents of poolstat --json")
        (program,) = (path for path in Path(top).rglob("bin/poolstat"))
        environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "POOLSTAT_LIBRARY")}
        preloaded = run(program, "run", "sh", "-c", "echo $LD_PRELOAD", env=environment).strip()
        expect(os.path.realpath(preloaded), os.path.realpath(files["libpoolcuda.so"]))
        expect_in("The library is there", run(program, "doctor", "true", env=environment))


main()

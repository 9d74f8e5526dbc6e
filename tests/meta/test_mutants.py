# SPDX-License-Identifier: MIT
"""The mutants runner (scripts/mutants.py): what each kind of patch is answered with."""
import functools

from fixture import TREE, expect, folder, project, run
from tap import case, main

TEST = """
print('1..2')
source = open(os.path.join(os.path.dirname(__file__), 'guard.txt')).read()
while 'hang' in source: time.sleep(1)
for number, name in enumerate(CASES, 1):
    print(('ok' if f'{name} guarded' in source else 'not ok'), number, '-', name, flush=True)
"""
PATCH = """Breaks: something.
{header}
--- a/guard.txt
+++ b/guard.txt
@@ -1,3 +1,3 @@
{change}
"""
CHANGES = {
    "caught": ("Run first: some/checks/second", " first guarded\n-second guarded\n+second\n unguarded here"),
    "survives": ("", " first guarded\n second guarded\n-unguarded here\n+broken here"),
    "misfits": ("", " first guarded\n-third guarded\n+third\n unguarded here"),
    "hangs": ("", " first guarded\n second guarded\n-unguarded here\n+hang"),
}


def tree(guard="first guarded\nsecond guarded\nunguarded here\n"):
    top = folder() / "a tree"
    project(top, {"checks": (["first", "second"], TEST)}, timeout_s=3)
    (top / "guard.txt").write_text(guard)
    patches = top / "tests" / "mutants"
    patches.mkdir(parents=True)
    for name, (header, change) in CHANGES.items():
        (patches / f"{name}.patch").write_text(PATCH.format(header=header, change=change))
    (patches / "breaks_build.patch").write_text(
        "--- a/meson.build\n+++ b/meson.build\n@@ -1 +1 @@\n-project('fixture', meson_version: '>= 1.0')\n+nonsense(\n")
    return top


def mutants(top, *names):
    return run("python3", TREE / "scripts" / "mutants.py", top, top.parent / "work", *names)


@functools.cache
def whole_run():
    top = tree()
    return top, mutants(top)


@case
def caught_mutant_names_the_case():
    expect("caught: caught by some/checks/second\n" in whole_run()[1][1], whole_run())


@case
def surviving_mutant_is_said_and_is_a_fault():
    _, (status, stdout, _) = whole_run()
    expect(status == 1 and "survives: survived\n" in stdout and stdout.endswith("2 of 5 caught\n"), (status, stdout))


@case
def patch_that_does_not_apply_or_build_is_a_fault():
    _, (_, stdout, _) = whole_run()
    expect("misfits: does not apply\n" in stdout and "breaks_build: does not build\n" in stdout, stdout)


@case
def mutant_that_hangs_is_caught_by_the_time_limit():
    expect("hangs: caught by some/checks/first (time limit)\n" in whole_run()[1][1], whole_run())


@case
def named_mutants_alone_are_tried_and_the_tree_is_untouched():
    top = whole_run()[0]
    status, stdout, stderr = mutants(top, "caught")
    expect((status, stdout) == (0, "caught: caught by some/checks/second\n1 of 1 caught\n"), (status, stdout, stderr))
    expect((top / "guard.txt").read_text().count("guarded") == 3, (top / "guard.txt").read_text())


@case
def tree_that_fails_by_itself_shows_nothing():
    status, stdout, stderr = mutants(tree("first guarded\n"), "caught")
    expect(status == 1 and "fail without any mutant: some/checks/second" in stderr and not stdout, (stdout, stderr))


@case
def mutant_for_another_processor_is_tried_in_a_build_for_it():
    top = tree()
    (top / "scripts").mkdir()
    (top / "scripts" / "other.cross").write_text(
        "[host_machine]\nsystem = 'linux'\ncpu_family = 'aarch64'\ncpu = 'aarch64'\nendian = 'little'\n")
    (top / "meson_options.txt").write_text("option('libc_only', type: 'boolean', value: false)\n")
    header, change = CHANGES["caught"]
    (top / "tests" / "mutants" / "crosses.patch").write_text(PATCH.format(header=header + "\nCross: other", change=change))
    status, stdout, stderr = mutants(top, "crosses")
    expect((status, stdout) == (0, "crosses: caught by some/checks/second\n1 of 1 caught\n"), (status, stdout, stderr))
    log = (top.parent / "work" / "cross-other" / "meson-logs" / "meson-log.txt").read_text()
    expect("Host machine cpu family: aarch64" in log, log)


@case
def unknown_name_is_a_usage_error():
    status, _, stderr = mutants(whole_run()[0], "nonsense")
    expect(status == 2 and "no such mutant: nonsense" in stderr, (status, stderr))


main()

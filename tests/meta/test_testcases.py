# SPDX-License-Identifier: MIT
"""Counting of test cases (scripts/testcases.py): nothing that goes wrong in a program makes a case vanish."""
import functools

from fixture import TREE, expect, folder, project, run
from tap import case, main

ALL_OK = "print(f'1..{len(CASES)}')\nfor n, c in enumerate(CASES, 1): print(f'ok {n} - {c}', flush=True)\n"
PROGRAMS = {
    "good": (["one", "two"], ALL_OK),
    "mixed": (["right", "wrong", "left_out"],
              "print('1..3\\nok 1 - right\\n1 is not 2\\nnot ok 2 - wrong\\n# at line 7\\nok 3 - left_out # SKIP no GPU')\n"
              "sys.exit(1)"),
    "cmocka_skip": (["left_out"], "print('1..1\\n# needs a GPU\\nnot ok 1 # SKIP left_out')"),
    "many": (["one_hen", "two_hens", "three_ducks"], "open(os.path.join(os.path.dirname(__file__), 'runs'), 'a').write('x')\n" + ALL_OK),
    "flock": (["two_hens", "three_geese"], ALL_OK),
    "crashes": (["before", "during", "after"], "print('1..3\\nok 1 - before', flush=True)\nos.abort()"),
    "hangs": (["before", "during"], "print('1..2\\nok 1 - before', flush=True)\ntime.sleep(60)"),
    "leaks": (["fine"], ALL_OK + "print('leaked 8 bytes', file=sys.stderr)\nsys.exit(23)"),
    "stops_early": (["first", "second"], "print('1..2\\nok 1 - first')"),
    "unnamed": (["known"], ALL_OK + "print('ok 2 - surprise')"),
    "skips_all": (["needs_gpu", "needs_more"], "print('1..0 # SKIP no device')"),
}


@functools.cache
def build():
    top = folder()
    project(top / "a project", PROGRAMS, timeout_s=2)
    status, stdout, stderr = run("meson", "setup", top / "build", top / "a project")
    expect(status == 0, stdout + stderr)
    return top / "build"


@functools.cache
def whole_run():
    return run("python3", TREE / "scripts" / "testcases.py", build())


def says(*texts):
    stdout = whole_run()[1]
    for text in texts:
        expect(text in stdout, f"no {text!r} in:\n{stdout}")


@case
def last_line_counts_cases_and_exit_status_agrees():
    status, stdout, _ = whole_run()
    expect(status == 1 and stdout.splitlines()[-1] == "13 passed, 7 failed, 4 skipped", (status, stdout))


@case
def list_names_every_case_and_runs_none():
    status, stdout, _ = run("python3", TREE / "scripts" / "testcases.py", build(), "--list")
    expected = sorted(f"some/{program}/{name}" for program, (cases, _) in PROGRAMS.items() for name in cases)
    expect(status == 0 and sorted(stdout.split()) == expected, stdout)


@case
def failed_case_is_shown_with_its_output():
    says("FAILED some/mixed/wrong\n    1 is not 2\n    # at line 7\n")


@case
def skipped_case_is_shown_with_its_reason():
    says("skipped some/mixed/left_out: no GPU\n", "skipped some/cmocka_skip/left_out: needs a GPU\n",
         "skipped some/skips_all/needs_more: no device\n")


@case
def crash_fails_the_case_and_those_after_it():
    says("FAILED some/crashes/during\n    did not finish: killed by signal 6\n",
         "FAILED some/crashes/after\n    did not run: killed by signal 6\n")


@case
def hang_is_ended_and_fails_the_case():
    says("FAILED some/hangs/during\n    did not finish: ended by its time limit\n")


@case
def bad_exit_status_after_passing_cases_fails():
    says("FAILED some/leaks/(end)\n    every case passed, but: exit status 23\n", "leaked 8 bytes")


@case
def case_that_was_never_reported_fails():
    says("FAILED some/stops_early/second\n    did not finish: exit status 0\n")


@case
def case_that_list_does_not_name_fails():
    says("FAILED some/unnamed/surprise\n    reported, but not named by --list\n")


@case
def only_runs_what_matches():
    for pattern, last in (("good/one", "1 passed, 0 failed, 0 skipped"), ("some/good/*", "2 passed, 0 failed, 0 skipped"),
                          ("good", "2 passed, 0 failed, 0 skipped"),
                          ("*/nothing good/one some/skips_all/*_gpu", "1 passed, 0 failed, 1 skipped")):
        status, stdout, _ = run("python3", TREE / "scripts" / "testcases.py", build(), "--only", pattern)
        expect(status == 0 and stdout.splitlines()[-1] == last, (pattern, status, stdout))


@case
def cases_of_one_program_run_together_and_no_others_of_their_names():
    runs = build().parent / "a project" / "runs"
    for pattern in "*hen*", "*/many/*hen* */three_geese":
        runs.write_text("")
        status, stdout, _ = run("python3", TREE / "scripts" / "testcases.py", build(), "--only", pattern)
        expect(status == 0 and stdout.splitlines()[-1] == "3 passed, 0 failed, 0 skipped", (pattern, stdout))
        expect(runs.read_text() == "x", (pattern, runs.read_text()))


@case
def only_that_matches_nothing_is_an_error():
    status, stdout, stderr = run("python3", TREE / "scripts" / "testcases.py", build(), "--only", "no_such_case")
    expect(status == 1 and "no case matches no_such_case" in stderr, (status, stdout, stderr))


@case
def program_that_cannot_name_its_cases_fails():
    top = folder()
    project(top, {"broken": (["x"], ALL_OK)})
    (top / "broken.py").write_text("raise SystemExit('cannot start')")
    run("meson", "setup", top / "build", top)
    status, stdout, _ = run("python3", TREE / "scripts" / "testcases.py", top / "build")
    expect(status == 1 and "FAILED some/broken/(list)" in stdout and "cannot start" in stdout
           and stdout.endswith("0 passed, 1 failed, 0 skipped\n"), stdout)


main()

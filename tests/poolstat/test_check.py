# SPDX-License-Identifier: MIT
"""Conditions for scripts: what holds, what does not, what is not known, and what is wrong and where."""
import os
import signal

from common import MIB, document, expect, expect_in, folder_of_segments, guest, one_guest, poolstat
from tap import case, main


def check(*arguments, folder):
    return poolstat("check", *arguments, folder=folder)


def expect_codes(folder, conditions):
    for condition, code in conditions.items():
        result = check(condition, folder=folder)
        expect(result.code, code, f"code of {condition!r} ({result.out}{result.err})")


@case
def comparisons_are_of_the_sums_of_the_process():
    # 48 MiB live, 96 reserved; 945 hits of 1100; 2.5 ms in the driver.
    with one_guest() as (folder, started):
        expect_codes(folder, {
            "live < 48MiB": 1, "live <= 48MiB": 0, "live > 48MiB": 1, "live >= 48MiB": 0, "live == 48MiB": 0,
            "live != 48MiB": 1, "live != 47MiB": 0, "live_bytes == 50331648": 0, "live == 50331648B": 0,
            "live == 0.046875GiB": 0, "live == 49152 KiB": 0, "live > 50.3MB and live < 50.4 mb": 0,
            "live == 50331.648KB": 0, "live < 1 TiB and live < 1TB": 0, "hit_rate == 1": 1, "hit_rate>85.9%": 0,
            "hit_rate < 0.86": 0, "hits == 945 and allocs == 1100": 0, "driver_ns == 2500000": 0, "driver == 2.5ms": 0,
            "driver < 1s": 0, "driver > 2499us": 0, "age > 1s": 0, "age < 1h": 0, "age < 5 min": 0, "pools == 3": 0,
            "peak_reserved == 112MiB": 0, "live < reserved": 0, "live == cached": 0, "48MiB == live": 0,
            "100MiB < reserved": 1})


@case
def conditions_are_joined_as_usual():
    with one_guest() as (folder, started):
        yes, no = "live > 0", "live < 0"
        expect_codes(folder, {
            f"{yes} and {yes}": 0, f"{yes} and {no}": 1, f"{no} or {yes}": 0, f"{no} or {no}": 1, f"not {no}": 0,
            f"not {yes}": 1, f"not not {yes}": 0, f"{yes} or {no} and {no}": 0, f"({yes} or {no}) and {no}": 1,
            f"not {no} and {yes}": 0, f"not ({no} or {yes})": 1, f"{yes} && {yes} || {no}": 0, f"!({no})": 0,
            f"{yes} AND {yes} Or {no}": 0, f"{no} and {yes} or {yes}": 0, "not stuck and not approximate": 0,
            "stuck": 1, "((live>0))": 0})


@case
def values_are_printed():
    with one_guest() as (folder, started):
        result = check("hit_rate > 0.9 or reserved > 1GiB or hit_rate < 0.1", folder=folder)
        expect((result.code, result.err), (1, ""))
        expect(result.out, f"{started.pid} synthetic: does not hold (hit_rate 85.9%, reserved_bytes 96.0 MiB)\n")
        answer = document("check", "hit_rate > 0.8 and reserved < 1GiB", folder=folder)
        expect((answer["holds"], answer["error"], answer["condition"]),
               (True, None, "hit_rate > 0.8 and reserved < 1GiB"))
        [one] = answer["checks"]
        expect((one["pid"], one["holds"], one["values"]),
               (started.pid, True, {"hit_rate": 0.859091, "reserved_bytes": 96 * MIB}))
        expect(document("check", "hits == 0", folder=folder, code=1)["holds"], False)


@case
def every_chosen_process_must_fit():
    with folder_of_segments() as folder, guest(folder, "=one") as one, guest(folder, "=two", "bare") as two:
        expect(check("reserved < 1GiB", folder=folder).code, 0)
        result = check("reserved > 0", folder=folder)
        expect((result.code, len(result.out.splitlines())), (1, 2))
        for arguments, code in ((["-p", one.pid], 0), (["-p", two.pid], 1), (["-c", "one"], 0), (["-c", "t*"], 1),
                                (["-g", "0"], 0), (["-g", "1"], 1)):
            expect(check("reserved > 0", *arguments, folder=folder).code, code, f"{arguments}")
        answer = document("check", "reserved > 0", folder=folder, code=1)
        expect([one["holds"] for one in answer["checks"]], [one.pid < two.pid, one.pid > two.pid])


@case
def what_is_not_known_never_holds():
    with folder_of_segments() as folder, guest(folder, "bare") as started:
        for condition in ("hit_rate > 0.5", "not hit_rate > 0.5", "hit_rate <= 1 and allocs == 0",
                          "allocs == 0 and hit_rate <= 1", "allocs > 0 or hit_rate <= 1",
                          "utilisation == utilisation", "hit_rate > 1 or hit_rate <= 1", "in_driver < 5s"):
            result = check(condition, folder=folder)
            expect(result.code, 6, f"code of {condition!r}")
            expect_in("not known: ", result.err)
        answer = document("check", "hit_rate > 0.5 and reserved == 0", folder=folder, code=6)
        expect((answer["holds"], answer["error"]["code"], answer["checks"][0]["holds"]), (None, 6, None))
        expect(answer["checks"][0]["values"], {"hit_rate": None, "reserved_bytes": 0})
        # Where it cannot turn the answer, whichever comes first.
        expect_codes(folder, {"allocs == 0 or hit_rate > 0.5": 0, "hit_rate > 0.5 or allocs == 0": 0,
                              "allocs > 0 and hit_rate > 0.5": 1, "hit_rate > 0.5 and allocs > 0": 1})


@case
def no_process_answers_5():
    with folder_of_segments() as folder:
        expect(check("live > 0", folder=folder).code, 5)
        with guest(folder) as started:
            for arguments in (["-p", os.getpid()], ["-c", "other"], ["-g", "7"]):
                result = check("live > 0", *arguments, folder=folder)
                expect((result.code, result.out), (5, ""), f"{arguments}")
            expect(document("check", "live > 0", "-c", "x", folder=folder, code=5)["error"]["code"], 5)
            started.process.send_signal(signal.SIGKILL)
            started.process.wait()
            expect(check("live > 0", folder=folder).code, 5, "ended")
            expect(check("live > 0", "--all", folder=folder).code, 0, "ended, with --all")


@case
def unreadable_segment_is_an_error_before_all_else():
    with folder_of_segments() as folder, guest(folder) as one, guest(folder) as two:
        os.truncate(two.path, 500)
        for condition in ("live > 0", "live < 0"):
            result = check(condition, folder=folder)
            expect(result.code, 4, condition)
            expect_in("cut short", result.err)
        expect(check("live > 0", "-p", one.pid, folder=folder).code, 0)
        expect(document("check", "live > 0", folder=folder, code=4)["holds"], None)


@case
def wrong_conditions_answer_2_with_the_place():
    with folder_of_segments() as folder:
        for condition, place, part in (
                ("", 1, "missing"), ("  ", 3, "missing"), ("hit_rte > 1", 1, "did you mean hit_rate?"),
                ("live", 5, "comparison is missing"), ("live >", 7, "missing"), ("live > > 1", 8, "wanted here"),
                ("live = 1", 6, "=="), ("live > 1 XB", 10, "no unit"), ("live > 1K", 9, "no unit"),
                ("live > 2%", 8, "bytes"), ("hit_rate > 1GiB", 12, "ratio"), ("hits > 1MiB", 8, "without a unit"),
                ("driver > 1MiB", 10, "a time"), ("live > hits", 8, "bytes"), ("5 ms > live", 1, "bytes"),
                ("stuck == 1", 10, "stands alone"), ("1 < 2", 1, "no figure"), ("0 < live < 2", 10, "joined"),
                ("live > 1 live > 2", 10, "no unit"), ("(live > 1", 1, ") is missing"), ("live > 1)", 9, "joined"),
                ("live > 1 and", 13, "missing"), ("and live > 1", 1, "no figure"), ("not", 4, "missing"),
                ("command == 1", 1, "no number"), ("live > 1.2.3", 8, "no number"), ("live > .", 8, "no number"),
                ("live > -1", 8, "wanted here"), ("live > 0x10", 9, "no unit"), ("live > 1e3", 9, "no unit"),
                ("live > 1; ls", 9, "joined"), ("live & 1", 6, "comparison"), ("live > 'a'", 8, "wanted here"),
                ("(" * 200, 101, "more than 100"), ("not " * 200 + "stuck", 401, "more than 100"),
                ("live > " + "9" * 100, 8, "no number"), ("live > 1 or \x1b[31m", 13, "wanted here")):
            result = check(condition, folder=folder)
            expect((result.code, result.out), (2, ""), f"{condition!r}")
            expect_in(part, result.err)
            message, shown, caret = result.err.split("\n")[:3]
            expect_in(f"(character {place} of", message)
            expect(caret.index("^"), 1 + place, f"caret of {condition!r}")
            if "\x1b" in result.err:
                raise AssertionError(f"not escaped: {result.err!r}")
        expect(check(folder=folder).code, 2, "no condition")
        expect(check("live > 0", "stuck", folder=folder).code, 2, "two conditions")
        expect_in("character 6", document("check", "live = 1", folder=folder, code=2)["error"]["message"])


@case
def parentheses_may_stand_100_deep():
    with one_guest() as (folder, started):
        expect_codes(folder, {"(" * 99 + "live > 0" + ")" * 99: 0, " and ".join(["live > 0"] * 2000): 0})


@case
def approximate_figures_are_said_to_be_so():
    with one_guest("odd") as (folder, started):
        expect_in("approximate", check("live > 0", folder=folder).out)
        expect(check("not approximate", folder=folder).code, 1)
        expect(document("check", "live > 0", folder=folder)["checks"][0]["approximate"], True)


main()

# SPDX-License-Identifier: MIT
"""The tables of commands and options: where options may stand, what each command takes, and the help made from them."""
import json
import re

from common import expect, expect_in, folder_of_segments, one_guest, poolstat
from tap import case, main


def error_of(*arguments, folder):
    """What a wrong command line is answered, which must be code 2 and a line on stderr."""
    result = poolstat(*arguments, folder=folder)
    expect(result.code, 2, f"code of {arguments}")
    if not re.fullmatch(r"poolstat: [^\n]+\n", result.err):
        raise AssertionError(f"{arguments} said {result.err!r}")
    return result


@case
def without_a_command_the_processes_are_listed():
    with one_guest() as (folder, started):
        expect(poolstat("ls", folder=folder), poolstat(folder=folder))


@case
def options_may_stand_before_and_behind_the_command():
    with one_guest() as (folder, started):
        for arguments in (["--json", "show", started.pid], ["show", "--json", started.pid], ["show", started.pid, "-j"],
                          ["--js", "show", "--", started.pid]):
            result = poolstat(*arguments, folder=folder)
            expect(result.code, 0, f"code of {arguments}")
            expect(json.loads(result.out)["process"]["pid"], started.pid)


@case
def errors_are_json_wherever_json_was_asked():
    with folder_of_segments() as folder:
        for arguments in (["--frob", "--json"], ["frob", "-j"], ["show", "--frob", "--json"], ["-e", "x", "ls", "-j"],
                          ["--json", "show"], ["ls", "-jx"], ["show", "x", "-j"], ["ls", "--json", "-e"]):
            result = error_of(*arguments, folder=folder)
            error = json.loads(result.out)["error"]
            expect((error["code"], f"poolstat: {error['message']}\n"), (2, result.err), f"error of {arguments}")


@case
def errors_name_what_is_wrong():
    with folder_of_segments() as folder:
        for arguments, part in ((["--frob"], "'--frob'"), (["ls", "-jx"], "'-x'"), (["--json=yes"], "takes no value"),
                                (["run", "-e"], "--env needs VAR=VALUE"), (["run", "-ex", "true"], "--env 'x': VAR=VALUE"),
                                (["-e", "A=b", "ls"], "ls does not take --env"), (["frob"], "no command 'frob'"),
                                (["ls", "1"], "too many arguments"), (["show"], "a process id is missing")):
            expect_in(part, error_of(*arguments, folder=folder).err)


@case
def help_of_a_command_has_its_options_alone():
    with folder_of_segments() as folder:
        for arguments in (["show", "--help"], ["help", "show"], ["--help", "show"], ["show", "1", "-h"]):
            result = poolstat(*arguments, folder=folder)
            expect((result.code, result.err), (0, ""), f"{arguments}")
            expect(("--json" in result.out, "--env" in result.out), (True, False), f"{arguments}")
        expect_in("--env VAR=VALUE", poolstat("run", "--help", folder=folder).out)
        expect_in("KB MB GB TB PB (of 1000)", poolstat("help", "check", folder=folder).out)
        for command in ("ls", "show", "check", "run", "help"):
            lines = poolstat("help", command, folder=folder).out.splitlines()
            expect([line for line in lines if len(line) > 100], [], f"long lines of help {command}")


@case
def version_says_what_is_built_in():
    with folder_of_segments() as folder:
        first, second = poolstat("--version", folder=folder).out.splitlines()
        expect_in("segment layout", first)
        if not re.match(r"built in: jansson \d", second):
            raise AssertionError(second)


main()

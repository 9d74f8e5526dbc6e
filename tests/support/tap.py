# SPDX-License-Identifier: MIT
"""Test cases written in Python, with the same manners as the C ones: TAP on stdout, `--list`, `--only PATTERN…`.

    from tap import case, main, skip

    @case
    def poolstat_lists_a_process(): ...

    main()
"""
import fnmatch
import sys
import traceback

_cases = []


class Skip(Exception):
    pass


def skip(reason):
    raise Skip(reason)


def case(function):
    _cases.append(function)
    return function


def main():
    arguments = sys.argv[1:]
    chosen = _cases
    if arguments[:1] == ["--list"]:
        for function in _cases:
            print(function.__name__)
        return
    if arguments[:1] == ["--only"]:
        chosen = [f for f in _cases if any(fnmatch.fnmatch(f.__name__, pattern) for pattern in arguments[1:])]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    for number, function in enumerate(chosen, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {function.__name__} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {function.__name__}", flush=True)
            for line in traceback.format_exc().splitlines():
                print(f"# {line}", flush=True)
    sys.exit(1 if failed else 0)

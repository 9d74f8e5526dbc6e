#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Asks the driver the questions of tests/driver-facts.md: `main.py [NUMBER…]` prints one line of JSON for each, as it is
answered: its number, the answers, and `lacking` or `error` where it could not be asked."""
import json
import multiprocessing.connection
import os
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ask  # noqa: E402
import calls, captures, contexts, full_device, graphs, memory, sharing, streams  # noqa: E401, E402, F401
import cuda  # noqa: E402

AT_ONCE = 4
LIMIT_S = 12


def answer(fact, pipe):
    """In the child: asks, and ends the process without the driver's farewell."""
    answers, result = ask.Answers(), {"number": fact.number}
    try:
        os.environ.update(fact.variables)
        if not fact.bare:
            cuda.primary()
        fact.ask(answers)
    except cuda.Lacking as reason:
        result["lacking"] = str(reason)
    except cuda.Failed as reason:
        place = traceback.extract_tb(reason.__traceback__)[1 if not fact.bare else 1:]
        result["error"] = f"{reason} (line {place[0].lineno} of {Path(place[0].filename).name})"
    except Exception:  # pylint: disable=broad-except
        result["error"] = traceback.format_exc()
    result["answers"] = answers.lines
    pipe.send(result)
    pipe.close()
    os._exit(0)


class Asked:
    """A question that is being asked."""

    def __init__(self, fact):
        self.fact, self.begun = fact, time.monotonic()
        self.pipe, theirs = multiprocessing.connection.Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)  # with all processes that it starts
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            answer(fact, theirs)
        theirs.close()

    def late(self):
        return time.monotonic() - self.begun > LIMIT_S

    def result(self):
        try:
            found = self.pipe.recv() if not self.late() or self.pipe.poll() else None
        except EOFError:
            found = None
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        _, status = os.waitpid(self.pid, 0)
        if found is None:
            ended = f"no answer after {LIMIT_S} s" if self.late() else f"the process ended with wait status {status}"
            found = {"number": self.fact.number, "answers": [], "error": ended}
        found["seconds"] = round(time.monotonic() - self.begun, 3)
        return found


def ask_all(facts, at_once):
    waiting, running = list(facts), []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(Asked(waiting.pop(0)))
        ready = multiprocessing.connection.wait([asked.pipe for asked in running], timeout=0.2)
        for asked in [asked for asked in running if asked.pipe in ready or asked.late()]:
            running.remove(asked)
            print(json.dumps(asked.result()), flush=True)


def main():
    numbers = sorted(ask.facts) if len(sys.argv) == 1 else [int(word) for word in sys.argv[1:]]
    chosen = [ask.facts[number] for number in numbers]
    ask_all([fact for fact in chosen if not fact.alone], AT_ONCE)
    ask_all([fact for fact in chosen if fact.alone], 1)


if __name__ == "__main__":
    main()

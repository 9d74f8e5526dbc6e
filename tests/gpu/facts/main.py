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
    result = {}
    try:
        os.environ.update(fact.variables)
        if not fact.bare:
            cuda.primary()
        fact.ask(ask.Answers(pipe))
    except cuda.Lacking as reason:
        result["lacking"] = str(reason)
    except cuda.Failed as reason:
        place = traceback.extract_tb(reason.__traceback__)[1 if not fact.bare else 1 :]
        result["error"] = f"{reason} (line {place[0].lineno} of {Path(place[0].filename).name})"
    except Exception:  # pylint: disable=broad-except
        result["error"] = traceback.format_exc()
    pipe.send({"end": result})
    pipe.close()
    os._exit(0)


class Asked:
    """A question that is being asked."""

    def __init__(self, fact):
        self.fact, self.begun, self.end = fact, time.monotonic(), None
        self.answers = []
        self.pipe, theirs = multiprocessing.connection.Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)  # with all processes that it starts
            cuda.die_with_parent()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            answer(fact, theirs)
        theirs.close()

    def ended(self):
        """Reads what has come; whether that, or the time, is all."""
        try:
            while self.end is None and self.pipe.poll():
                message = self.pipe.recv()
                if "end" in message:
                    self.end = message["end"]
                else:
                    self.answers.append(message)
        except EOFError:
            self.end = {"error": "the process ended"}
        if self.end is None and time.monotonic() - self.begun > LIMIT_S:
            self.end = {"error": f"not finished after {LIMIT_S} s"}
        return self.end is not None

    def result(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        _, status = os.waitpid(self.pid, 0)
        if self.end.get("error") == "the process ended":
            self.end["error"] += f" by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
        return {
            "number": self.fact.number,
            **self.end,
            "answers": self.answers,
            "seconds": round(time.monotonic() - self.begun, 3),
        }


def ask_all(facts, at_once):
    waiting, running = list(facts), []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(Asked(waiting.pop(0)))
        multiprocessing.connection.wait([asked.pipe for asked in running], timeout=0.2)
        for asked in [asked for asked in running if asked.ended()]:
            running.remove(asked)
            print(json.dumps(asked.result()), flush=True)


def main():
    numbers = sorted(ask.facts) if len(sys.argv) == 1 else [int(word) for word in sys.argv[1:]]
    chosen = [ask.facts[number] for number in numbers]
    ask_all([fact for fact in chosen if not fact.alone], AT_ONCE)
    ask_all([fact for fact in chosen if fact.alone], 1)


if __name__ == "__main__":
    main()

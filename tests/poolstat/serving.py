# SPDX-License-Identifier: MIT
"""What the tests of `serve` share: a server, and asking it."""
import contextlib
import http.client
import os
import re
import signal
import subprocess
import time

import exposition
from common import POOLSTAT, expect

FRESH_S = 0.25  # answers within this time may be one


@contextlib.contextmanager
def server(folder, *arguments, listen="127.0.0.1:0"):
    """Gives its port and its pid."""
    environment = dict(os.environ, POOLSTAT_SHM_DIR=str(folder))
    process = subprocess.Popen([POOLSTAT, "serve", "--listen", listen, *map(str, arguments)], env=environment,
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        found = re.match(r"poolstat: serving http://\S+:(\d+)/ and ", line)
        if not found:
            raise AssertionError(f"the server did not start: {line!r}")
        yield int(found[1]), process.pid
        process.send_signal(signal.SIGTERM)
        expect(process.wait(timeout=10), 0, "exit code")
        rest = process.stderr.read()
        if "Sanitizer" in rest or "runtime error:" in rest:
            raise AssertionError(rest)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextlib.contextmanager
def serving(*arguments, **settings):
    with server(*arguments, **settings) as (port, _):
        yield port


def ask(port, path, method="GET", host="127.0.0.1", **headers):
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode("utf-8")
    finally:
        connection.close()


def scrape(port):
    status, headers, text = ask(port, "/metrics")
    expect((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
    return exposition.parse(text)


def new_scrape(port):
    time.sleep(FRESH_S)
    return scrape(port)


def metrics_of(folder, *arguments):
    with serving(folder, *arguments) as port:
        return scrape(port)

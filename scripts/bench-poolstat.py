#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What poolstat costs, in a build folder that is built: its list and its exporter's scrape over 64 processes, its live view,
and a program that it watches ten times a second. On an idle machine; prints each figure with its bound."""

import argparse
import json
import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
PROCESSES, ROUNDS, WATCHED_ROUNDS, LIVE_S = 64, 20, 20, 20


class Bench:
    def __init__(self, build):
        self.poolstat = str(build / "src/poolstat/poolstat")
        self.synthetic = str(build / "tests/poolstat/synthetic")
        self.replay = str(build / "bench/replay")
        self.simulated = ":".join(str(build / "src/sim" / name) for name in ("driver", "runtime"))
        self.library = str(build / "src/libpoolcuda.so")

    def beside(self, folder):
        return dict(os.environ, POOLSTAT_SHM_DIR=folder, TERM="xterm-256color", LC_ALL="C.UTF-8")

    def guests(self, folder):
        guests = [subprocess.Popen([self.synthetic, folder, "sized"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                  for _ in range(PROCESSES)]
        for guest in guests:
            guest.stdout.readline()
        return guests

    def list_ms(self, folder):
        times = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            subprocess.run([self.poolstat, "--json"], env=self.beside(folder), stdout=subprocess.DEVNULL, check=True)
            times.append(1e3 * (time.perf_counter() - begun))
        return statistics.median(times)

    def scrape_ms(self, folder):
        server = subprocess.Popen([self.poolstat, "serve", "--listen", "127.0.0.1:0"], env=self.beside(folder),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        times = []
        for _ in range(ROUNDS):
            time.sleep(0.3)  # an answer is kept for 0.2 s
            text = urllib.request.urlopen(address.rstrip("/") + "/metrics", timeout=10).read().decode()
            line = next(line for line in text.splitlines() if line.startswith("poolcuda_exporter_scrape_duration_seconds"))
            times.append(1e3 * float(line.split()[-1]))
        server.terminate()
        server.wait()
        return statistics.median(times)

    def live_percent(self, folder):
        """Processor time of the live view at one refresh a second, in percent of a core, the first second left out."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe(self.poolstat, [self.poolstat, "live"], self.beside(folder))
        threading.Thread(target=drain, args=(terminal,), daemon=True).start()
        scheduled = Path(f"/proc/{pid}/schedstat")
        time.sleep(1.5)
        begun = int(scheduled.read_text().split()[0])
        time.sleep(LIVE_S)
        spent = int(scheduled.read_text().split()[0]) - begun
        os.kill(pid, 15)
        os.waitpid(pid, 0)
        return spent / 1e7 / LIVE_S

    def play_s(self, watched):
        environment = dict(os.environ, LD_LIBRARY_PATH=self.simulated, LD_PRELOAD=self.library)
        program = subprocess.Popen([self.replay, "--no-work", "--repeat", "30", str(TREE / "tests/data/train_resnet50.csv.xz")],
                                   env=environment, stdout=subprocess.DEVNULL)
        watcher = watched and subprocess.Popen([self.poolstat, "--json", "-d", "0.1"], stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL)
        begun = time.perf_counter()
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
        lasted = time.perf_counter() - begun
        if watcher:
            watcher.terminate()
            watcher.wait()
        if program.returncode:
            sys.exit(f"bench-poolstat: replay ended with status {program.returncode}")
        return lasted, usage.ru_utime + usage.ru_stime

    def watched_ratio(self):
        """Wall clock and processor time of a program, watched over unwatched: medians of interleaved runs."""
        runs = {False: [], True: []}
        for _ in range(WATCHED_ROUNDS):
            for watched in runs:
                runs[watched].append(self.play_s(watched))
        return [statistics.median(run[i] for run in runs[True]) / statistics.median(run[i] for run in runs[False])
                for i in range(2)]


def drain(terminal):
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", nargs="?", type=Path, default=TREE / "build")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    arguments = parser.parse_args()
    bench = Bench(arguments.build.resolve())
    if not os.access(bench.synthetic, os.X_OK):
        parser.error(f"{arguments.build} is no build folder with the tests built")
    with tempfile.TemporaryDirectory() as folder:
        guests = bench.guests(folder)
        try:
            figures = [
                (f"poolstat --json, {PROCESSES} processes", "ms", 20, bench.list_ms(folder)),
                (f"scrape of {PROCESSES} processes", "ms", 10, bench.scrape_ms(folder)),
                (f"live view of {PROCESSES} processes, one refresh a second", "% of a core", 1, bench.live_percent(folder)),
            ]
        finally:
            for guest in guests:
                guest.kill()
                guest.wait()
    wall, processor = bench.watched_ratio()
    figures += [("watched ten times a second: wall clock", "times", 1.02, wall),
                ("watched ten times a second: processor time", "times", 1.02, processor)]
    load = os.getloadavg()[0]
    if arguments.json:
        print(json.dumps({"load": load, "figures": [{"what": what, "unit": unit, "bound": bound, "found": found}
                                                    for what, unit, bound, found in figures]}))
        return
    for what, unit, bound, found in figures:
        print(f"{what:58} {found:8.3f} {unit:12} at most {bound:5}  {'holds' if found <= bound else 'missed'}")
    print(f"load {load:.1f} at the end; {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.0f} s of processor time in all")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""Random programs over the pool, in each mode, and natively: what the judges say of the pool they must not say of the
simulated CUDA. RANDOM_SEED and RANDOM_COUNT choose other programs, and more of them."""
import json
import os
import subprocess

from programs import BATCH, Run, failed_programs
from tap import case, main

BUILD, SANITIZER = os.environ["RANDOM_BUILD"], os.environ["RANDOM_SANITIZER"]
SEED = int(os.environ.get("RANDOM_SEED", "1"))
# Sanitizers make all slower, and are run one after another.
COUNT = int(os.environ.get("RANDOM_COUNT", "500" if SANITIZER == "none" else "100"))
SHOWN = 5


# The percentage of programs that do a thing at least once, at the least; then those of which only programs over the pool
# are capable, and what the batches' settings decide, so that it takes many programs to come out so.
LEAST = {"own_pools": 25, "explicit_pools": 25, "pools_set": 20, "pool_access": 5, "pools_looked_at": 10,
         "pools_destroyed_live": 12, "pools_destroyed_current": 20, "frees_after_the_pool": 12, "contexts_in_turn": 35,
         "per_thread_calls": 45, "frees_by_bare_threads": 12, "marks": 12, "wrong_frees": 30, "sharing": 12,
         "sharing_opened_native": 2, "sharing_killed": 4}
LEAST_POOLED = {"sharing_opened_pooled": 8, "sharing_used_freed": 3}
LEAST_OF_MANY = {"without_stream_order": 4}
MANY = 400


def expect_shares(mode, count, tally):
    least = LEAST | (LEAST_POOLED if mode != "natively" else {}) | (LEAST_OF_MANY if count >= MANY else {})
    rare = {name: tally["programs_" + name] for name, share in least.items()
            if tally["programs_" + name] < share * count // 100}
    assert not rare, f"done by too few of {count} programs: {rare}"
    looks = tally["look_ups"], tally["calls_by_other_doors"], tally["uses_elsewhere"]
    assert min(looks) > count // 4, f"too few look-ups, calls by other doors, uses elsewhere: {looks}"


def expect_clean(mode, count):
    failures, tally = Run(BUILD, mode, SANITIZER).programs(SEED, count)
    print(f"# {mode}: " + ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in tally.items()), flush=True)
    assert not failures, f"{failed_programs(failures)} of {count} programs failed\n" + \
        "\n".join(failure.text() for failure in failures[:SHOWN])
    assert tally["reuses_crossed"] > count and tally["kernels"] > 10 * count, f"too tame: {tally}"
    expect_shares(mode, count, tally)


@case
def hazard_27_programs_are_clean_natively():
    expect_clean("natively", max(BATCH, COUNT // 5))


@case
def hazard_27_programs_are_clean_when_cudafree_waits():
    expect_clean("sync", COUNT)


@case
def hazard_27_programs_are_clean_when_cudafree_does_not_wait():
    expect_clean("event", COUNT)


@case
def the_same_seed_gives_the_same_program():
    run = Run(BUILD, "event", SANITIZER)
    printed = [subprocess.run(run.command(SEED, 3, ["--print"]), env=run.environment({"SIM_DEVICES": "3"}), check=True,
                              capture_output=True, text=True).stdout for _ in range(2)]
    assert printed[0] == printed[1], "two runs print different programs"
    assert printed[0].count("# seed") == 3, printed[0][:2000]


@case
def poolstat_reads_the_same_at_the_end():
    """Live is 0, and every pool's figures add up, as another process sees them."""
    process = Run(BUILD, "event", SANITIZER).start(SEED, BATCH, ["--wait", "--no-sharing"])
    try:
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line == "ready\n":
                break
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        shown = subprocess.run([os.path.join(BUILD, "src", "poolstat", "poolstat"), "show", "--json", str(process.pid)],
                               env=clean, check=False, capture_output=True, text=True)
        assert shown.returncode == 0, f"poolstat: {shown.returncode} {shown.stderr}\n{''.join(seen[-20:])}"
        pools = json.loads(shown.stdout)["process"]["pools"]
        assert {pool["kind"] for pool in pools} == {"plain", "async"}, [pool["kind"] for pool in pools]
        for pool in pools:
            cached = sum(pool[name] for name in ("idle_bytes", "ordered_bytes", "waiting_bytes", "retired_bytes"))
            assert pool["live_bytes"] == pool["requested_bytes"] == pool["retired_bytes"] == 0, pool
            assert pool["cached_bytes"] == cached, pool
            ahead = pool["prealloc_unused_bytes"] + pool["fixed_free_bytes"]
            assert pool["reserved_bytes"] == cached + ahead, pool
    finally:
        process.communicate("\n", timeout=60)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `tessera plan --fit` against this machine: calibrates it, trains with every one of 21 ways on two ranks, and
prints how much longer the ways that --fit names take than the fastest of all, and how far plans are from steps.

usage: bench/fit.py PROGRAM [ROUNDS]     default: 3 rounds; each way's median counts
"""
import itertools
import json
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile

MODEL = ["--hidden", "256", "--layers", "4", "--heads", "8", "--kv-heads", "4", "--intermediate", "768", "--vocab",
         "1024", "--threads", "1", "--seq-len", "512", "--batch-size", "8"]
RUN = ["--data", "text.txt", "--steps", "6", "--validation-fraction", "0", "--comm", "threads:2", "--log-every", "6"]
STRATEGIES = ["fsdp2", "fsdp2:no-reshard", "zero2", "zero1", "replicated"]


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def step_of(program, flags):
    """Returns the seconds of a step, and what the plan said."""
    pathlib.Path("metrics.jsonl").unlink(missing_ok=True)
    run(program, "train", *MODEL, *RUN, "--cluster", "machine.toml", "--metrics", "metrics.jsonl", *shlex.split(flags))
    summary = json.loads(pathlib.Path("metrics.jsonl").read_text().splitlines()[-1])
    return summary["step_seconds"], summary["planned_step_seconds"]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    program, rounds = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2]) if len(sys.argv) == 3 else 3
    os.chdir(tempfile.mkdtemp())
    random.seed(1)
    words = ["alpha", "beta", "gamma", "delta", "tensor", "shard", "rank", "tile"]
    pathlib.Path("text.txt").write_text(" ".join(random.choice(words) for _ in range(60000)))
    run(program, "calibrate", "--comm", "threads:2", "--threads", "1", "--out", "machine.toml")
    fit = json.loads(run(program, "plan", "--fit", "--json", "--cluster", "machine.toml", *MODEL))
    named = [way["flags"] for way in fit["best"]]
    ways = [f"--sharding {strategy}{micro}{kept}" for strategy, micro, kept in
            itertools.product(STRATEGIES, ["", " --grad-accum 2"], ["", " --recompute"])]
    ways += ["--sharding fsdp2 --sharding-of 'embed_tokens|lm_head=replicated'"]
    ways += [flags for flags in named if flags not in ways]

    steps = {flags: [] for flags in ways}
    planned = {}
    for _ in range(rounds):
        for flags in ways:
            seconds, planned[flags] = step_of(program, flags)
            steps[flags].append(seconds)
    took = {flags: statistics.median(seconds) for flags, seconds in steps.items()}
    for flags in sorted(took, key=took.get):
        print(f"{1e3 * took[flags]:9.1f} ms  planned {1e3 * planned[flags]:7.1f} ms  "
              f"{100 * (took[flags] / planned[flags] - 1):+6.1f} %  {flags}{'  <- --fit' if flags in named else ''}")
    fastest = min(took.values())
    deviations = sorted(abs(took[flags] / planned[flags] - 1) for flags in ways)
    print(json.dumps({"bench": "fit", "ways": len(ways), "rounds": rounds,
                      "first_over_fastest": round(took[named[0]] / fastest, 4),
                      "best_of_three_over_fastest": round(min(took[flags] for flags in named) / fastest, 4),
                      "median_deviation": round(statistics.median(deviations), 4),
                      "largest_deviation": round(deviations[-1], 4)}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `tessera plan` against published figures of training steps (published.toml, each with its source).

Of each source a few rates are fitted on every second figure, frozen, and reported on the others. Fails if one of those
is over 15 % from its plan and the file says no reason. Below stand the published bytes of a tiled MLP, and ours. Needs
Python 3.11, and a program that has stacks of NCCL; no GPU.

usage: bench/published.py PROGRAM [--first N]     N, at least 2: only so many figures, of the first source
       bench/published.py --check                 whether the file is well formed; plans nothing

ratio: tokens a second planned over published; unfitted: the same with the rates of the program's own cluster; busy:
share of the planned step in which collectives are under way.
"""
import concurrent.futures
import dataclasses
import itertools
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import tomllib

FILE = pathlib.Path(__file__).with_name("published.toml")
LIMIT = 0.15
KERNELS = ("matmul_bf16", "attention", "memory_bandwidth")  # what "kernels" multiplies
SPREAD = 0.05  # of figures, as a part
PRIOR = 1.0  # how far a rate may be from the cluster's, as a logarithm: keeps what no figure says where it was
SOURCE_KEYS = {"name", "where", "date", "cluster", "set", "fit", "flags", "differs", "figures"}
FIGURE_KEYS = {"model", "gpus", "sequence", "batch", "accumulate", "recompute", "flags", "set", "tokens", "step",
               "reason"}


@dataclasses.dataclass
class Figure:
    """One published step, and the flags of its plan."""
    source: dict
    model: str
    flags: list[str]
    gpus: int
    sequence: int
    batch: int  # sequences of a GPU in a step
    recompute: float
    set: dict  # keys of the cluster
    tokens: float  # a second, of one GPU
    reason: str
    fitted: bool  # else held out


@dataclasses.dataclass
class Row:
    """How a figure was planned: tokens a second over the published."""
    figure: Figure
    ratio: float
    unfitted: float  # with the cluster's own rates
    busy: float  # share of the step in which collectives are under way

    @property
    def over(self):
        return abs(self.ratio - 1) > LIMIT


def fail(*words):
    sys.exit("published.py: " + " ".join(str(word) for word in words))


def figure_of(source, data, at, given):
    """Returns the figure number `at` of a source from its table. Fails if it is not well formed."""
    name = f"{source['name']}, figure {at + 1}:"
    if unknown := set(given) - FIGURE_KEYS:
        fail(name, "unknown keys", *sorted(unknown))
    given = {"accumulate": 1, "recompute": 0} | given
    if unknown := set(given.get("set", {})) - set(data["cluster"][source["cluster"]]):
        fail(name, "a cluster has no key", *sorted(unknown))
    for key in ("gpus", "sequence", "batch", "accumulate"):
        if not isinstance(given.get(key), int) or given[key] < 1:
            fail(name, key, "must be a whole number above 0; found", given.get(key))
    if ("tokens" in given) == ("step" in given) or not 0 < given.get("tokens", given.get("step")):
        fail(name, "give either tokens or step, above 0")
    if given.get("model") not in data["model"]:
        fail(name, "no model is called", given.get("model"))
    if given.get("reason", "") not in data["reason"].keys() | {""}:
        fail(name, "no reason is called", given["reason"])
    if not 0 <= given["recompute"] <= 1:
        fail(name, "recompute is a share, 0 to 1; found", given["recompute"])
    batch = given["batch"] * given["accumulate"]
    flags = [*shlex.split(data["model"][given["model"]]), *shlex.split(given.get("flags", source["flags"])),
             "--ranks", given["gpus"], "--seq-len", given["sequence"], "--batch-size", batch * given["gpus"],
             "--grad-accum", given["accumulate"]]
    return Figure(source, given["model"], [str(flag) for flag in flags], given["gpus"], given["sequence"], batch,
                  given["recompute"], source.get("set", {}) | given.get("set", {}),
                  given.get("tokens") or batch * given["sequence"] / given["step"],
                  data["reason"].get(given.get("reason"), ""), at % 2 == 0)


def read():
    """Returns the clusters, and the figures by source."""
    with FILE.open("rb") as file:
        data = tomllib.load(file)
    sources = []
    for source in data["source"]:
        if missing := SOURCE_KEYS - {"set"} - set(source):
            fail("a source lacks", *sorted(missing))
        if unknown := set(source) - SOURCE_KEYS:
            fail(source["name"], "has unknown keys", *sorted(unknown))
        known = data["cluster"].get(source["cluster"]) or fail(source["name"], "no such cluster:", source["cluster"])
        for key in [*source.get("set", {}), *(rate for rate in source["fit"] if rate != "kernels")]:
            if key not in known:
                fail(source["name"], "a cluster has no key", key)
        sources.append([figure_of(source, data, at, given) for at, given in enumerate(source["figures"])])
    return data["cluster"], sources


class Planner:
    """Asks the program for plans. A rate is given as its logarithm over the cluster's own."""

    def __init__(self, program, clusters, folder):
        self.program, self.clusters, self.folder = program, clusters, pathlib.Path(folder)
        self.number = itertools.count()
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def run(self, cluster, flags):
        done = subprocess.run([self.program, "plan", "--json", "--cluster", cluster, *flags], capture_output=True,
                              text=True)
        if not done.stdout.startswith("{"):  # a step that does not fit has status 2, and a plan
            fail(*flags, "\n" + done.stderr)
        return json.loads(done.stdout)

    def known(self, figure):
        """Whether the file's cluster is the program's of the same name."""
        name = figure.source["cluster"]
        wanted = self.run(name, figure.flags)
        found = self.run(self.write(self.clusters[name] | {"ranks": figure.gpus}), figure.flags)
        return wanted | {"cluster": ""} == found | {"cluster": ""}

    def write(self, cluster):
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in cluster.items())
        path = self.folder / f"{next(self.number)}.toml"  # a file for each plan: they are made side by side
        path.write_text(text)
        return str(path)

    def cluster(self, figure, moved):
        """The figure's cluster, its fitted rates moved."""
        own = {"ranks": figure.gpus, "attention_own": 0}  # these programs have one kernel for all attention
        cluster = self.clusters[figure.source["cluster"]] | figure.set | own
        for rate, by in zip(figure.source["fit"], moved):
            for key in KERNELS if rate == "kernels" else (rate,):
                cluster[key] *= math.exp(by)
        return cluster

    def plan(self, figure, moved):
        """Returns tokens a second of a GPU, and the share in which collectives are under way: of a step with all
        recomputed, with nothing, or so much of both."""
        path = self.write(self.cluster(figure, moved))
        seconds = busy = 0
        for share, more in ((1 - figure.recompute, []), (figure.recompute, ["--recompute"])):
            if share:
                plan = self.run(path, figure.flags + more)
                seconds += share * plan["step_seconds"]
                busy += share * max(plan["links"][link]["busy_seconds"] for link in ("node", "network"))
        return figure.batch * figure.sequence / seconds, busy / seconds

    def plans(self, figures, moved):
        return list(self.pool.map(lambda figure: self.plan(figure, moved), figures))

    def errors(self, figures, moved):
        """Returns how far plans are from figures, as logarithms."""
        return [math.log(plan[0] / figure.tokens) for plan, figure in zip(self.plans(figures, moved), figures)]


def solve(matrix, right):
    """Solves a small system of linear equations by Gauss-Jordan; the matrix is positive definite."""
    rows = [[*row, value] for row, value in zip(matrix, right)]
    for i, pivot in enumerate(rows):
        pivot[:] = [value / pivot[i] for value in pivot]
        for j, row in enumerate(rows):
            if j != i:
                row[:] = [value - row[i] * other for value, other in zip(row, pivot)]
    return [row[-1] for row in rows]


def fit(planner, figures):
    """Returns the logarithms by which a source's rates move: least squares, by Gauss-Newton."""
    count, step = len(figures[0].source["fit"]), 0.02
    moved = [0.0] * count
    for _ in range(5):
        errors = planner.errors(figures, moved)
        slopes = []
        for i in range(count):
            ahead = planner.errors(figures, [by + step * (i == j) for j, by in enumerate(moved)])
            slopes.append([(a - e) / step for a, e in zip(ahead, errors)])
        normal = [[sum(a * b for a, b in zip(slopes[i], slopes[j])) / SPREAD**2 + (i == j) / PRIOR**2
                   for j in range(count)] for i in range(count)]
        right = [-sum(a * e for a, e in zip(slopes[i], errors)) / SPREAD**2 - moved[i] / PRIOR**2
                 for i in range(count)]
        moved = [by + max(-0.7, min(0.7, change)) for by, change in zip(moved, solve(normal, right))]
    return moved


def report(planner, figures):
    """Fits a source, prints its figures and returns them as rows."""
    source = figures[0].source
    moved = fit(planner, [figure for figure in figures if figure.fitted])
    rates = planner.cluster(figures[0], moved)
    keys = [key for rate in source["fit"] for key in (KERNELS if rate == "kernels" else (rate,))]
    print(f"\n{source['name']}: {source['where']}, {source['date']}\n  differs: {source['differs']}\n  fitted: " +
          ", ".join(f"{key} {rates[key] / 1e12:.4g}e12" for key in dict.fromkeys(keys)))
    print("  model           GPUs  sequence  batch  recomputed  published  planned  ratio  unfitted   busy")
    rows = []
    for figure, (tokens, busy), bare in zip(figures, planner.plans(figures, moved),
                                            planner.plans(figures, [0] * len(source["fit"]))):
        row = Row(figure, tokens / figure.tokens, bare[0] / figure.tokens, busy)
        rows.append(row)
        print(f"  {figure.model:14} {figure.gpus:5} {figure.sequence:9} {figure.batch:6} {figure.recompute:11} "
              f"{figure.tokens:10.0f} {tokens:8.0f} {row.ratio:6.3f} {row.unfitted:9.3f} {busy:6.3f}  "
              f"{'fitted' if figure.fitted else 'held out'}{', over' if row.over else ''}")
    return rows


def print_mlp_bytes(program):
    """A module alone has no plan of a step: `bench mlp` counts its bytes by a dry run, as they were counted there."""
    done = subprocess.run([program, "bench", "mlp", "--table", "--dry-run", "--comm", "threads:2"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        fail("bench mlp --table\n" + done.stderr)
    print("\ntiled MLP on two H800, bytes of a GPU: ms-swift, pull request 7090\n"
          "  sequence   tiles  published MiB  ours  ratio")
    for row in map(json.loads, done.stdout.splitlines()):
        published = row.get({"off": "published_untiled_bytes", "tiles:4": "published_tiled_bytes"}.get(row["tiling"]))
        if published:
            ours = row["peak_bytes"] - row["model_bytes"] - row["gradient_shard_bytes"]  # not counted there
            print(f"  {row['seq']:8} {4 if row['tiling'] != 'off' else 1:7} {published / 2**20:14.0f} "
                  f"{ours / 2**20:5.0f}  {ours / published:.3f}")


def summary(ratios):
    off = sorted(abs(ratio - 1) for ratio in ratios)
    return {"figures": len(off), "within_15_percent": sum(value <= LIMIT for value in off),
            "median_deviation": round(statistics.median(off), 4), "largest_deviation": round(off[-1], 4)}


def main():
    arguments = sys.argv[1:]
    first = None
    if len(arguments) == 3 and arguments[1] == "--first" and arguments[2].isdigit() and int(arguments[2]) >= 2:
        first = int(arguments[2])
    elif len(arguments) != 1:
        sys.exit(__doc__)
    clusters, sources = read()
    if arguments[0] == "--check":
        return print(f"{sum(map(len, sources))} figures of {len(sources)} sources")
    program = str(pathlib.Path(arguments[0]).resolve())
    if not os.access(program, os.X_OK):
        fail(program, "is no program")
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(program, clusters, folder)
        for name, figures in {figures[0].source["cluster"]: figures for figures in sources}.items():
            if not planner.known(figures[0]):
                fail(f"published.toml's {name} is not the program's; bring it up to date")
        if first:
            sources = [sources[0][:first]]
        rows = [row for figures in sources for row in report(planner, figures)]
    if not first:
        print_mlp_bytes(program)
    held_out = [row for row in rows if not row.figure.fitted]
    over = [row for row in held_out if row.over]
    print("\nheld out and over 15 %:" if over else "\nno figure held out is over 15 %")
    for row in over:
        figure = row.figure
        print(f"  {figure.source['name']}, {figure.model} on {figure.gpus}, sequence {figure.sequence}, "
              f"ratio {row.ratio:.3f}: {figure.reason or 'no reason known'}")
    for least, most in (0, 0.1), (0.1, 0.25), (0.25, 1):
        if ratios := [row.ratio for row in rows if least <= row.busy < most]:
            print(f"collectives under way in {least} to {most} of the step: {len(ratios)} figures, "
                  f"median ratio {statistics.median(ratios):.3f}")
    print(json.dumps({"bench": "published", "held_out": summary([row.ratio for row in held_out]),
                      "fitted": summary([row.ratio for row in rows if row.figure.fitted]),
                      "unfitted": summary([row.unfitted for row in rows])}))
    sys.exit(any(not row.figure.reason for row in over))


if __name__ == "__main__":
    main()

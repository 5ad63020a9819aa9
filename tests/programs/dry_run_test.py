# SPDX-License-Identifier: Apache-2.0
"""--dry-run: a table that adds up to what a run then takes, to the byte; at once and without memory, for any model."""
import re

import pytest

from support.files import contains, fresh, lines_with, listing, summary
from support.program import has_stack

TINY = "--model tiny --seq-len 33 --batch-size 12 --steps 2 --threads 1"
RUNTIME = 256 << 20  # bytes that the process of a rank takes besides tensors


def table(ended):
    """The peak of the table, which is the sum of its six kinds."""
    rows = [line.split() for line in ended.out.splitlines()]
    rows = [(row[0], int(row[1])) for row in rows if len(row) > 1 and row[1].isdigit()]
    peak, = (size for kind, size in rows if kind == "peak")
    kinds = [size for kind, size in rows if kind != "peak"]
    assert len(kinds) == 6 and sum(kinds) == peak > 0, ended
    return peak


def dry_run(program, *flags):
    """A dry run, which leaves no file, and the peak of its table."""
    before = listing()
    ended = program("train --dry-run", *flags)
    assert listing() == before
    return ended, table(ended)


def planned_run(program, *flags, more=""):
    """A dry run, a run that takes the same bytes, and their number."""
    planned, peak = dry_run(program, *flags)
    ended = program("train --data text.txt", *flags, more, "--metrics", fresh("metrics.jsonl"))
    assert summary("metrics.jsonl")["peak_bytes"] == peak
    return planned, ended, peak


@pytest.mark.parametrize("more", ["--grad-accum 1", "--grad-accum 2 --tied --vocab 300"])
@pytest.mark.parametrize("stack", [
    "--sharding fsdp2 --precision fp32 --tiling off --comm threads:2",
    "--sharding fsdp2 --precision bf16 --tiling tiles:3 --comm threads:2",
    "--sharding zero3 --precision fp32 --tiling tokens:7 --comm threads:2",
    "--sharding zero3 --precision bf16 --tiling off --comm threads:3",
    "--sharding replicated --precision fp32 --tiling off --comm threads:2",
    "--sharding replicated --precision bf16 --tiling tokens:100 --comm threads:1",
    "--sharding fsdp2 --precision bf16 --tiling budget:60KiB --comm threads:2",
    "--sharding zero3 --precision fp32 --tiling budget:250KiB --comm threads:2",
])
def test_a_run_takes_the_bytes_of_its_plan(program, stack, more):
    planned_run(program, TINY, stack, more)


@pytest.mark.parametrize("sharding, tiling, ranks, rounds", [
    ("fsdp2:pieces=6", "off", 4, 2), ("zero3:pieces=6", "tokens:7", 3, 2), ("zero2:pieces=6", "off", 1, 6)])
def test_pieces_are_as_many_sequences_on_any_number_of_ranks(program, sharding, tiling, ranks, rounds):
    flags = f"{TINY} --sharding {sharding} --tiling {tiling} --comm threads:{ranks}"
    planned, ended, _ = planned_run(program, flags)
    planned.prints(" 2 x 33 tokens a micro-batch", f"^6 pieces on {ranks} ranks?: {rounds} rounds")
    ended.prints(f"^batch     6 pieces on {ranks} ranks?: {rounds} rounds{', ' if 6 % ranks else '$'}")
    contains("metrics.jsonl", '"pieces":6')
    if ranks == 1:
        assert len(lines_with("loss  *head", program("train --print-schedule", flags).out)) == 6


def test_an_automatic_budget_of_tiling_takes_what_the_memory_leaves(program):
    auto = "--model tiny --layers 3 --seq-len 400 --batch-size 2 --steps 1 --threads 1 --comm threads:2"
    _, untiled = dry_run(program, auto)
    _, least = dry_run(program, auto, "--tiling tiles:400")
    for memory in (untiled + 5, (untiled + least) // 2):
        flags = f"{auto} --tiling budget:auto --memory {memory + RUNTIME}"
        planned, ended, peak = planned_run(program, flags)
        planned.prints("^--tiling budget:auto is budget:[0-9]*: what .* a rank leave$", "^tiling: head, [0-9]* tile",
                       "^tiling: MLP of a block, [0-9]* tiles? of .* tokens.* kept; [0-9]* bytes; [0-9]* FLOPs "
                       "recomputed$")
        assert least <= peak <= min(memory, untiled)
        budget = re.search("auto is (budget:[0-9]*)", planned.out)[1]
        ended.prints(f"auto is {budget}:")
        contains("metrics.jsonl", budget)
    assert dry_run(program, auto, "--tiling budget:auto")[1] == untiled, "tiled where memory is ample"


def test_an_automatic_budget_of_weights_takes_what_the_rest_of_a_step_leaves(program):
    weights = ("--model tiny --layers 3 --seq-len 16 --batch-size 4 --grad-accum 2 --steps 2 --threads 1 "
               "--comm threads:2")
    ended, least = dry_run(program, weights)
    gathered = int(re.search("^ *gathered *([0-9]*) .*", ended.out, re.M)[1])
    for memory in (least, least + gathered // 2, least + 3 * gathered):
        flags = f"{weights} --sharding fsdp2:budget=auto --memory {memory + RUNTIME}"
        budget = f"fsdp2:budget={memory - least + gathered}"
        planned, ended, peak = planned_run(program, flags)
        planned.prints(f"^--sharding budget=auto is {budget}: what .* a rank leave$",
                       "^residency: groups held for the step [0-9], .*, the least within the budget$")
        assert least <= peak <= memory
        ended.prints("fsdp2:budget=")
        contains("metrics.jsonl", f"{budget} ")


def test_a_large_model_on_many_ranks_takes_no_memory_and_little_time(program):
    large = ("train --dry-run --hidden 4096 --layers 32 --heads 32 --kv-heads 8 --intermediate 14336 --vocab 128256 "
             "--seq-len 8192 --batch-size 64")
    before, peaks = listing(), []
    for ranks in (1, 8, 64):
        ended = program.under("bash -c 'ulimit -v 2000000; exec \"$@\"' -")(large, "--ranks", ranks, limit=20)
        peaks.append(table(ended.prints(f" {ranks} ranks?,")))
    assert peaks[0] > peaks[1] > peaks[2]
    assert listing() == before
    program.refuses("cannot be shared by 7 ranks", large, "--ranks 7")
    dry_run(program, "--model tiny --seq-len 16 --batch-size 1048576 --threads 1")
    dry_run(program, "--model tiny --seq-len 2048 --batch-size 100000 --threads 1 --tiling tokens:1024")


def test_the_schedule_of_a_step_is_printed_in_order(program):
    flags = "train --print-schedule --model tiny --layers 1 --seq-len 16 --comm threads:2"
    lines = program(flags, "--sharding fsdp2").out.splitlines()
    tasks = [" ".join(line.split(", slot")[0].split()[2:5]) for line in lines]
    assert {"gather embedding", "loss head", "backward embedding", "close-gradient embedding"} <= set(tasks)
    assert sum(task.startswith("gather") for task in tasks) >= 3
    assert sum(task.startswith("reduce") for task in tasks) == 3
    program(flags, "--sharding replicated").omits("gather")


def test_inputs_in_host_memory_take_the_least_share_that_fits(program):
    inputs = "--model tiny --layers 5 --seq-len 200 --batch-size 2 --steps 2 --threads 1 --comm threads:2"
    flags = f"{inputs} --recompute --offload inputs"
    dry_run(program, inputs, "--recompute")
    ended, least = dry_run(program, flags)
    host = int(re.search("^beside it, in host memory: ([0-9]+) bytes ", ended.out, re.M)[1])
    fits = least + host + RUNTIME
    program("train --dry-run", flags, f"--memory {fits}").prints(
        "^memory: this step fits into .* per rank; it needs .*, 256.00 MiB of them besides tensors$")
    program.refuses("^tessera: --memory: this step does not fit: a rank needs .*; "
                    "tessera plan --fit --cluster NAME searches for flags that fit$",
                    "train --dry-run", flags, f"--memory {fits - 1}", lines=None).prints(
        "^  peak +", "^memory: this step does not fit into .* per rank; it needs .*; the whole run takes ").omits(
        " with .*--offload")  # the host has one memory

    flags = f"{inputs} --recompute --offload inputs:0.5"
    planned_run(program, flags, more="--trace inputs.trace")
    contains("inputs.trace", '"name":"fetch-input')
    program("train --print-schedule", flags).prints("^micro-batch 0  send-input      block 0, slot 0$")
    program.refuses("keep their input alone; add --recompute", "train --data text.txt", inputs, "--offload inputs")


def test_a_device_with_memory_of_its_own_takes_the_least_share_of_inputs_that_fits(program):
    if not has_stack(program, "nccl"):
        pytest.skip("no stack with NCCL")
    on_gpus = "--model tiny --layers 5 --seq-len 200 --batch-size 2 --steps 2 --threads 1 --comm nccl --ranks 2"
    kept, sent = (dry_run(program, on_gpus, flags)[1] for flags in ("--recompute", "--recompute --offload inputs"))
    memory = f"--memory {(sent + kept) // 2 + 1060000000}"
    ended = program.refuses("does not fit", "train --dry-run", on_gpus, memory, lines=None)
    share = re.search(r"--recompute --offload (inputs[:0-9.]*) \(.* of host memory\)", ended.out)[1]
    program("train --dry-run", on_gpus, memory, "--recompute --offload", share)

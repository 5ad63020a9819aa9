# SPDX-License-Identifier: Apache-2.0
"""Steps cut into pieces are bit-identical on any number of ranks: losses, norms, learning rates, and the digests of
each stream, gradient and weight; of runs that are killed, too, and resume on other ranks.

TESSERA_SWEEP=sample: a few of them; TESSERA_KILLS=N: runs that are killed (60); TESSERA_SEED=N: of the moments (1)."""
import contextlib
import itertools
import os
import random
import shutil
import subprocess

import pytest

from support.files import digests, fresh, steps, summary
from support.program import NARROW, WHOLE, has_stack

FLAGS = f"train --data text.txt --model tiny --layers 2 {NARROW} --threads 1 --validation-fraction 0.02 --log-every 100"
STRATEGIES = ["fsdp2", "zero2", "zero3"]

# Pieces, batch, steps, ranks, strategies, flags.
CASES = [(4, 8, 3, [1, 3], ["zero3"], "--precision bf16:wire=bf16")]
if WHOLE:
    CASES = []
    for precision, clip, cut in itertools.product(
            ["fp32", "bf16", "bf16:wire=bf16"], [0, 1], ["--tiling off", "--tiling tokens:5 --recompute"]):
        flags = f"--precision {precision} --clip {clip} {cut}"
        CASES += [(8, 8, 20, [1, 2, 3, 4, 6, 8], STRATEGIES, flags), (12, 24, 20, [1, 2, 4, 5], STRATEGIES, flags)]
    CASES += [(8, 16, 20, [1, 3, 4, 8], ["fsdp2", "zero3:persist=100"], flags) for flags in (
        "--precision fp32 --optimizer sgd", "--precision fp32 --optimizer muon --layout owned", "--precision fp32 --optimizer muon --layout blocks",
        "--precision fp32 --lora-rank 3 --lora-dropout 0.2", "--precision fp32 --document-separator 46",
        "--precision bf16 --offload optimizer")]


@pytest.fixture(scope="module")
def backends(program):
    """Functions that give the program and its flags on so many ranks."""
    made = [lambda ranks: (program, f"--comm threads:{ranks}")]
    if has_stack(program, "mpi") and shutil.which("mpirun"):
        for comm in ("--comm mpi", "--comm mpi --shared-windows=false"):
            made.append(lambda ranks, comm=comm: (program.under(f"mpirun --oversubscribe -np {ranks}"), comm))
    return made


def trained(launched, *flags):
    """What is identical: steps, validation loss and digests."""
    program, comm = launched
    program(FLAGS, comm, *flags, "--metrics", fresh("run.jsonl"), "--digests", fresh("digests.jsonl"))
    return steps("run.jsonl"), summary("run.jsonl")["validation_loss"], digests("digests.jsonl")


@pytest.mark.parametrize("pieces, batch, count, ranks, strategies, flags", CASES)
def test_pieces_are_identical_on_any_number_of_ranks(backends, pieces, batch, count, ranks, strategies, flags):
    run = f"{flags} --steps {count} --batch-size {batch} --sharding"
    expected = trained(backends[0](pieces), run, f"fsdp2:pieces={pieces}")
    turns = itertools.cycle(backends)
    for number, strategy in itertools.product(ranks, strategies):
        launched = next(turns)(number)
        assert trained(launched, run, f"{strategy}:pieces={pieces}") == expected, (launched, strategy)
    print(f"identical: {len(ranks) * len(strategies)} runs of {pieces} pieces on {ranks} ranks, {flags}")


def test_runs_that_are_killed_resume_identically_on_other_ranks(backends):
    random.seed(int(os.environ.get("TESSERA_SEED", 1)))
    kills = int(os.environ.get("TESSERA_KILLS", 60 if WHOLE else 1))
    flags = f"{FLAGS} --precision fp32 --batch-size 8 --steps 12 --lr-schedule cosine --sharding"
    program, comm = backends[0](2)
    program(flags, "fsdp2:pieces=8", comm, "--metrics never.jsonl")
    for kill in range(kills):
        fresh("saved"), fresh("killed.jsonl")
        for part in range(3):
            backend = backends[0]  # ranks survive a launcher that is killed: kills_test.py ends those, too
            if part == 2:
                backend = random.choice(backends)
            program, comm = backend(random.randint(1, 8))
            command = (flags, f"{random.choice(STRATEGIES)}:pieces=8", comm, "--checkpoint-dir saved",
                       "--checkpoint-every 1 --keep 2 --resume auto --metrics killed.jsonl")
            if part < 2:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program(*command, limit=random.random() * 2)
            else:
                program(*command)
        # Steps that were made again are identical, too.
        assert sorted(set(steps("killed.jsonl"))) == steps("never.jsonl"), f"run {kill}, which was killed twice"
    print(f"identical: {kills} runs that were killed twice and resumed on other ranks")

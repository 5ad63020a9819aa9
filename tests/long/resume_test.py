# SPDX-License-Identifier: Apache-2.0
"""Saved on P ranks, resumed on Q: for P, Q in {1, 2, 3, 4, 8}, each strategy that saves with each that resumes in turn,
in both precisions. Runs of the same ranks and strategy are bit-identical; others stay close to the run that
never stopped.

TESSERA_SWEEP=sample: some of them."""
import itertools

import pytest

from support.files import close, fresh, steps, write
from support.program import WHOLE

FLAGS = ("train --data text.txt --model tiny --layers 1 --seq-len 16 --batch-size 24 --steps 4 --threads 1"
         " --validation-fraction 0.02 --precision")
RANKS, STRATEGIES = [2, 3], ["fsdp2", "zero3"]
if WHOLE:
    RANKS = [1, 2, 3, 4, 8]
    STRATEGIES = "fsdp2 fsdp2:no-reshard zero1 zero2 zero3 replicated hybrid:K hybrid:K:zero3".split()


def stack(strategy, ranks):
    """With a group that divides the ranks."""
    return f"--sharding {strategy.replace(':K', ':1' if ranks % 2 else ':2')} --comm threads:{ranks}"


@pytest.mark.parametrize("precision, tolerance", [("fp32", 1e-4), ("bf16", 2e-2)][:2 if WHOLE else 1])
def test_resumed_runs_follow_those_that_never_stopped(program, precision, tolerance):
    for ranks in RANKS:
        for name in STRATEGIES:
            saved = write(f"whole-{precision}/{name}-{ranks}.jsonl", "").with_suffix("")
            program(FLAGS, precision, stack(name, ranks),
                    f"--checkpoint-every 2 --checkpoint-dir {saved} --metrics {saved}.jsonl")
    cases = list(itertools.product(RANKS, RANKS, enumerate(STRATEGIES)))
    pairs = [(before, after, name, into) for turn, (before, after, (i, name)) in enumerate(cases)
             for into in (name, STRATEGIES[(i + 1 + turn) % len(STRATEGIES)])]
    for before, after, name, into in pairs:
        saved = f"whole-{precision}/{name}-{before}"
        program(FLAGS, precision, stack(into, after), f"--resume {saved}/step-00000002 --metrics", fresh("rest.jsonl"))
        if (before, name) == (after, into):
            assert steps("rest.jsonl") == steps(f"{saved}.jsonl", 3)
        else:
            close(steps(f"{saved}.jsonl", 3), steps("rest.jsonl"), tolerance)
    exact = sum((before, name) == (after, into) for before, after, name, into in pairs)
    print(f"resume in {precision}: {len(pairs)} resumed runs, {exact} of them bit-identical")

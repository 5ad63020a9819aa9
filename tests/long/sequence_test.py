# SPDX-License-Identifier: Apache-2.0
"""Ranks that share each sequence train what ranks with whole ones do: losses to 1e-6 and weights to 1e-5 after ten
steps, for any number of them, strategy, heads, tiling, recomputation, accumulation and documents.

TESSERA_SWEEP=sample: a few of them."""
import array
import itertools
import math

import pytest

from support.files import close, fresh, steps, tensors
from support.program import WHOLE

TEXT_BYTES = 12000
FLAGS = ("train --data text.txt --model tiny --layers 2 --hidden 24 --heads 12 --head-dim 4 --intermediate 32"
         " --seq-len 17 --batch-size 48 --threads 1 --steps 10 --precision fp32 --log-every 100")
CASES, CUTS = [(3, 2, "zero3 hybrid:3")], ["--tiling tiles:3 --recompute"]
DATA = ["--grad-accum 2 --document-separator 46"]
if WHOLE:
    CASES = [(sharing, heads, f"fsdp2 zero3 hybrid:{sharing} replicated")
             for sharing in (2, 3, 4) for heads in (1, 2, 3, 4, 6, 12)]
    CASES += [(2, heads, "zero1 zero2 fsdp2:2 fsdp2:no-reshard hybrid:2:full") for heads in (1, 3, 12)]
    CUTS += ["--tiling off", "--tiling off --recompute", "--tiling tiles:3"]
    DATA += ["--grad-accum 1", "--grad-accum 2", "--grad-accum 1 --document-separator 46"]


def train(program, name, *flags):
    """Its losses, and the weights after the last step."""
    program(FLAGS, *flags, "--metrics", fresh(f"{name}.jsonl"), "--checkpoint-dir", fresh(name))
    saved = tensors(f"{name}/step-00000010/model.safetensors")
    weights = {key: array.array("f", data) for key, (_, _, data) in saved.items()}
    return [step[:2] for step in steps(f"{name}.jsonl")], weights


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("sharing, heads, strategies", CASES)
def test_ranks_that_share_sequences_train_as_whole_ones_do(program, sharing, heads, strategies, data):
    common = f"--comm threads:{sharing * 2} --kv-heads {heads} {data}"
    losses, weights = train(program, "expected", common)
    runs = list(itertools.product(strategies.split(), CUTS))
    for strategy, cut in runs:
        found_losses, found_weights = train(
            program, "found", common, f"--sharding {strategy} --sequence ulysses:{sharing} {cut}")
        close(found_losses, losses, 1e-6)
        assert found_weights.keys() == weights.keys()
        for name, values in weights.items():
            distance = math.dist(found_weights[name], values)
            assert distance <= 1e-5 * math.hypot(*values), (name, distance, strategy, cut)
    print(f"shared sequences: {len(runs)} runs of {common}, ulysses:{sharing} follow that of whole ones")

# SPDX-License-Identifier: Apache-2.0
"""20 AdamW steps of each golden folder through the program give its float64 losses; eval gives the first of them. Losses
of steps of other families than Llama's, which are those of transformers, to 1e-4. Ranks that share each sequence give
the same."""
import json
import os
import re

import pytest

from support.files import GOLDEN, close, expected, fresh, steps
from support.program import instruction_sets

ISA = os.environ.get("TESSERA_ISA", "baseline")
pytestmark = pytest.mark.skipif(ISA not in instruction_sets(), reason=f"this processor does not have {ISA}")


@pytest.mark.parametrize("bound, name, clip, flags", [
    (1e-5, "llama-gqa", 0, ""),
    (1e-5, "llama-odd", 0.5, ""),
    (1e-5, "llama-gqa", 0, "--comm threads:3 --sharding zero3 --grad-accum 2 --tiling tiles:4"),
    (1e-5, "llama-odd", 0.5, "--comm threads:2 --sharding replicated --grad-accum 3 --tiling tokens:3"),
    (1e-5, "llama-gqa", 0, "--comm threads:2 --sequence ulysses:2"),
    (1e-5, "llama-odd", 0.5, "--comm threads:3 --sequence ulysses:3"),
    (1e-4, "mistral-window", 0, "--comm threads:3 --sharding zero3"),
    (1e-4, "qwen2-yarn", 0, "--comm threads:2 --grad-accum 3 --tiling tokens:5"),
    (1e-4, "qwen3-window", 0, "--comm threads:2 --sharding zero2 --recompute"),
    (1e-4, "llama-llama3", 0, "--sharding replicated"),
    (1e-4, "mistral-window", 0, "--comm threads:2 --sequence ulysses:2"),
    (1e-4, "qwen2-yarn", 0, "--comm threads:2 --sequence ulysses:2"),
    (1e-4, "qwen3-window", 0, "--comm threads:2 --sequence ulysses:2"),
    (1e-4, "llama-llama3", 0, "--comm threads:2 --sequence ulysses:2"),
])
def test_losses_of_steps_and_of_eval(program, bound, name, clip, flags):
    model = GOLDEN / name
    length = ((model / "text.bin").stat().st_size - 1) // 6
    data = f"--model {model} --data {model}/text.bin --seq-len {length} --precision fp32"
    program("train", data, "--batch-size 6 --validation-fraction 0 --steps 20 --lr 1e-3 --lr-schedule constant --weight-decay 0.1",
            "--clip", clip, "--threads 1 --metrics", fresh("metrics.jsonl"), flags)
    found = steps("metrics.jsonl")
    assert len(found) == 20
    close([step[1:3] for step in found], [*zip(*expected(model, "adamw.losses", "adamw.grad_norms"))], bound)
    assert all(re.fullmatch(r"([0-9]\.?){9,}", loss) for _, loss, _, _ in found), found

    result = json.loads(program("eval", data, "--batch-size 4", flags if "--sequence" in flags else "").out)
    assert result["tokens"] == 6 * length
    close([result["loss"]], *expected(model, "loss"), 1e-5)

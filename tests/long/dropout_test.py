# SPDX-License-Identifier: Apache-2.0
"""Adapters with dropout train under every strategy, tiling and precision, with and without recomputation, and take to
the byte the memory that --dry-run plans; and no less than without dropout.

TESSERA_SWEEP=sample: some of them."""
import itertools

from support.files import fresh, summary
from support.program import WHOLE, peak

TEXT_BYTES = 20000
FLAGS = ("train --data text.txt --layers 2 --seq-len 64 --batch-size 4 --threads 1 --steps 2 --lora-rank 4"
         " --validation-fraction 0.02")
MODELS, PRECISIONS, RECOMPUTES = ["tiny"], ["fp32"], [""]
STRATEGIES, TILINGS, TARGETS, RANKS = ["fsdp2", "zero3"], ["off", "tokens:16"], ["*"], [2]
if WHOLE:
    MODELS = ["tiny", "small", "tiny --vocab 2000", "small --family qwen3 --tied --intermediate 100",
              "tiny --family mistral --sliding-window 7",
              "tiny --family qwen2 --hidden 50 --head-dim 10 --heads 5 --kv-heads 1"]
    PRECISIONS, RECOMPUTES = ["fp32", "bf16"], ["", "--recompute"]
    STRATEGIES = "fsdp2 fsdp2:no-reshard zero1 zero2 zero3 hybrid:1 hybrid:2 replicated".split()
    TILINGS = "off tokens:16 tiles:3 budget:60000 budget:300000".split()
    TARGETS, RANKS = ["*", "q_proj,v_proj", "down_proj", "mlp.*"], [1, 2]


def test_adapters_with_dropout_take_what_is_planned(program):
    cases = list(itertools.product(MODELS, PRECISIONS, STRATEGIES, TILINGS, RECOMPUTES))
    more = 0
    for turn, (model, precision, strategy, tiling, recompute) in enumerate(cases):
        ranks = 2 if strategy == "hybrid:2" else RANKS[turn % len(RANKS)]
        flags = (f"{FLAGS} --model {model} --precision {precision} --sharding {strategy} --tiling {tiling} {recompute}"
                 f" --lora-targets '{TARGETS[turn // 2 % len(TARGETS)]}' --comm threads:{ranks}")
        without, planned = (peak(program(flags, dropout, "--dry-run")) for dropout in ("", "--lora-dropout 0.1"))
        program(flags, "--lora-dropout 0.1 --metrics", fresh("metrics.jsonl"))
        assert summary("metrics.jsonl")["peak_bytes"] == planned, flags
        assert planned >= without or tiling.startswith("budget"), flags
        more += planned > without
    assert more > 0, "dropout takes no memory in any run: nothing was tested"
    print(f"dropout: {len(cases)} runs took what was planned, {more} of them more than without dropout")

# SPDX-License-Identifier: Apache-2.0
"""Numbers that are not finite stop all ranks with status 3, before a weight is touched or a checkpoint is committed: in a loss, a
gradient norm, a weight or an optimizer state."""
import math
import os

import pytest

from support.files import GOLDEN, copied, same, set_value

TEXT_BYTES = 600
STOPPED = "stopped before any weight was touched"
DATA = "--data text.txt --seq-len 16"
TRAIN = f"train {DATA} --precision fp32 --threads 1 --checkpoint-dir checkpoints"
WILD = "--model tiny --lr 1000 --weight-decay 1000"  # the largest values accepted: each step multiplies weights by a million


@pytest.fixture(scope="module", autouse=True)
def models(program):
    program(f"train {DATA} --precision fp32 --model tiny --steps 1 --checkpoint-dir saved")
    # A huge weight of a token that no text has: decay makes it infinite, and no loss sees it.
    os.rename("saved/step-00000001", "huge")
    os.remove("huge/manifest.json")  # which would report the change
    set_value("huge/model.safetensors", "model.embed_tokens.weight", -1, 3e38)
    set_value(copied(GOLDEN / "llama-gqa", "broken") + "/model.safetensors", "lm_head.weight", -1, math.nan)


@pytest.mark.parametrize("comm", ["threads:1", "threads:2"])
@pytest.mark.parametrize("pattern, flags", [
    (f"step [2-6]: loss is .*{STOPPED}", f"--steps 6 {WILD} --clip 0"),
    (f"step [2-6]: .*{STOPPED}", f"--steps 6 {WILD} --sharding replicated"),
    # The last step destroys the weights: its own loss was finite.
    (r"step 1: the held-out loss is nan; nothing was saved", f"--steps 1 {WILD} --clip 0 --validation-fraction 0.1"),
    (r"weight model.embed_tokens.weight\[24575\] is not finite",
     "--steps 1 --model huge --lr 1 --weight-decay 10 --validation-fraction 0"),
])
def test_stops_the_run(program, pattern, flags, comm):
    program.refuses(pattern, TRAIN, flags, "--comm", comm, status=3)


@pytest.mark.parametrize("pattern, flags", [
    *((rf"lr '?{lr}|lr 1e\+3|lr -1|lr 1001", f"--lr={lr}") for lr in ("1e39", "1e30", "inf", "nan", "-1", "1001")),
    (r"eps 0 must be above 0, at least 1e-30 and at most 1", "--eps 0"),
    (r"eps 2 must be", "--eps 2"),
    (r"weight-decay 1e\+09 must be at least 0 and at most 1000", "--weight-decay 1e9"),
    (r"beta1 0.99999999999 must be at least 0 and below 1 as a float", "--beta1 0.99999999999"),
])
def test_constants_that_cannot_be_meant_are_refused(program, pattern, flags):
    program.refuses(pattern, TRAIN, "--model tiny", flags)


def test_weights_that_hold_nan_are_refused(program):
    copied("broken", "before")
    for sharding in ("fsdp2", "zero3", "replicated"):
        program.refuses(r"^tessera: (rank [01]: )?broken/model.safetensors: lm_head.weight.8191. is nan; no run can use it",
                        TRAIN, "--steps 6 --model broken --comm threads:2 --batch-size 4 --sharding", sharding)
    same("before/model.safetensors", "broken/model.safetensors")
    program.refuses("lm_head.weight.8191. is nan; no run can use it", f"eval --model broken {DATA} --comm threads:2")


def test_a_bad_step_leaves_the_checkpoints_that_were_there(program):
    program(f"train {DATA} --precision fp32 --model tiny --steps 2 --checkpoint-dir checkpoints")
    program.refuses(STOPPED, TRAIN, "--steps 6", WILD, "--clip 0 --resume checkpoints", status=3, lines=None)  # warns of the rate
    program(f"eval --model checkpoints/step-00000002 {DATA}")

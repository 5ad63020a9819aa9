# SPDX-License-Identifier: Apache-2.0
"""--moments bf16 and dynamic8 train as float does: the held-out loss of 300 steps of examples/train.sh, with weight decay and
warm-up as there, differs by at most 0.5 %.

TESSERA_SWEEP=sample: a tiny model, and 2 %."""
import pytest

from support.files import fresh, summary
from support.program import WHOLE

TEXT_BYTES = 40000
FLAGS, MOST = "--data text.txt --model tiny --seq-len 32 --batch-size 8 --steps 60 --lr 3e-3", 0.02
if WHOLE:
    FLAGS, MOST = ("--data /usr/include/boost --model small --precision bf16 --tiling tokens:1024 --seq-len 256 --batch-size 16"
                   " --steps 300 --lr 6e-3 --warmup 15"), 0.005


def held_out(program, moments):
    program("train --comm threads:2 --layout blocks --log-every 300", FLAGS, f"--moments {moments} --metrics", fresh(f"{moments}.jsonl"))
    return float(summary(f"{moments}.jsonl")["validation_loss"])


@pytest.fixture(scope="module")
def of_float(program):
    return held_out(program, "float")


@pytest.mark.parametrize("moments", ["bf16", "dynamic8"])
def test_encoded_moments_reach_the_loss_of_float(program, of_float, moments):
    loss = held_out(program, moments)
    print(f"moments {moments}: {loss:.4f} nats held out, float {of_float:.4f}: {100 * (loss / of_float - 1):+.2f} %")
    assert abs(loss / of_float - 1) <= MOST

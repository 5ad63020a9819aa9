# SPDX-License-Identifier: Apache-2.0
"""--moments bf16 and dynamic8 train as float does: the held-out loss of 300 steps of examples/train.sh's model differs by at most
0.5 %, or by the spread of float's own losses if that is larger: of runs whose rates differ by 1e-5 of them.

TESSERA_SWEEP=sample: a tiny model, and 2 %."""
import pytest

from support.files import fresh, summary
from support.program import WHOLE

TEXT_BYTES = 40000
FLAGS, RATE, MOST = "--data text.txt --model tiny --seq-len 32 --batch-size 8 --steps 60", 3e-3, 0.02
if WHOLE:
    FLAGS, RATE, MOST = ("--data /usr/include/boost --model small --precision bf16 --tiling tokens:1024 --seq-len 256 --batch-size 16"
                         " --steps 300 --warmup 15"), 6e-3, 0.005


def held_out(program, moments, rate=RATE):
    program("train --comm threads:2 --layout blocks --log-every 300", FLAGS, f"--moments {moments} --lr {rate} --metrics",
            fresh(f"{moments}.jsonl"))
    return float(summary(f"{moments}.jsonl")["validation_loss"])


@pytest.fixture(scope="module")
def of_float(program):
    """Float's loss, and how far those of three rates are from each other, as a share."""
    losses = [held_out(program, "float", RATE * factor) for factor in (1, 1 + 1e-5, 1 - 1e-5)]
    return losses[0], (max(losses) - min(losses)) / min(losses)


@pytest.mark.parametrize("moments", ["bf16", "dynamic8"])
def test_encoded_moments_reach_the_loss_of_float(program, of_float, moments):
    loss, (expected, spread) = held_out(program, moments), of_float
    print(f"moments {moments}: {loss:.4f} nats held out, float {expected:.4f}: {100 * (loss / expected - 1):+.2f} %; float's spread {100 * spread:.2f} %")
    assert abs(loss / expected - 1) <= max(MOST, spread)

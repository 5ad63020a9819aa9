# SPDX-License-Identifier: Apache-2.0
"""Strategies on two axes, choices about units and loss scaling, from the command line."""
import itertools
import struct

import pytest

from support.files import close, contains, fresh, header_and_data, lines_with, read, records, same, steps, tensors
from support.program import trained

FLAGS = "train --data text.txt --model tiny --tied --seq-len 16 --precision fp32 --threads 1"
LARGEST = 2**100


def train(program, name, *flags):
    """Leaves NAME.jsonl and NAME/."""
    trained(program, name, FLAGS, "--steps 4 --batch-size 8", *flags)
    return steps(f"{name}.jsonl")


def resumes(program, folder, count, *flags):
    """Another run makes the last of so many steps."""
    program(FLAGS, f"--steps {count} --batch-size 8", *flags, "--resume", folder, "--metrics", fresh("resumed.jsonl"))
    assert len(steps("resumed.jsonl")) == count - 4


@pytest.fixture(scope="module", autouse=True)
def plain(program):
    return train(program, "plain", "--comm threads:4")


def test_every_strategy_follows_the_plain_one(program, plain):
    for sharding in ("fsdp2:2", "fsdp2:deferred", "fsdp2:prefetch=2", "zero3:persist=64", "zero3:live=100000",
                     "hybrid:2", "hybrid:2:full", "hybrid:2:zero3", "hybrid:2:full:zero1"):
        close(train(program, "other", "--comm threads:4 --sharding", sharding), plain, 1e-5)
    resumes(program, "other", 6, "--comm threads:2 --sharding hybrid:1")
    program(FLAGS, "--comm threads:3 --batch-size 9 --sharding hybrid:3:full --dry-run").prints("^ *peak")


def test_a_budget_for_gathered_weights_changes_no_bit_and_may_change_in_a_run(program, plain):
    for budget in ("1200KiB", "1500KiB", "1GiB"):
        assert train(program, "budgeted", f"--comm threads:4 --sharding fsdp2:budget={budget}") == plain
    resumes(program, "budgeted", 6, "--comm threads:4 --sharding zero3:budget=1500KiB")


def test_every_layout_follows_the_plain_one(program):
    unclipped = train(program, "unclipped", "--comm threads:4 --clip 0")
    for layout, sharding in itertools.product(("per-parameter", "flat", "owned"), ("fsdp2", "replicated", "zero2")):
        flags = f"--comm threads:4 --clip 0 --sharding {sharding} --layout {layout}"
        close(train(program, "other", flags), unclipped, 1e-5)
    contains("other.jsonl", '"stack":"zero2:layout=owned threads:4')
    resumes(program, "other", 6, "--clip 0 --comm threads:4 --layout blocks")
    program(FLAGS, "--batch-size 8 --comm threads:4 --layout owned --dry-run").prints(
        "^fsdp2:layout=owned / threads / fp32, 4 ranks, .*: bytes of rank [0-3], which takes the most$")
    program.refuses("did you mean 'owned'", FLAGS, "--layout ownd --dry-run")


def test_choices_about_units_change_no_bit(program, plain):
    for choice in ("--recompute", "--blocks-per-unit 2", "--merge-units-below 100000", "--keep-last-block=false"):
        assert train(program, "other", "--comm threads:4", choice) == plain
    flags = "--batch-size 8 --comm threads:4 --sharding hybrid:2:full --blocks-per-unit 2"
    program(FLAGS, flags, "--print-schedule").prints("gather-across +block 0 and block 1")


def test_a_loss_scale_changes_no_bit_and_a_checkpoint_keeps_it(program, plain):
    assert train(program, "scaled", "--comm threads:4 --loss-scale dynamic") == plain
    contains("scaled.jsonl", '"loss_scale":65536')
    assert train(program, "scaled", f"--comm threads:4 --loss-scale dynamic:{LARGEST}") == plain
    contains("scaled/step-00000004/trainer.json", '"sound_steps": 4')
    resumes(program, "scaled", 5, "--comm threads:4 --loss-scale dynamic")
    before, after = ([record["loss_scale"] for record in records(f"{name}.jsonl") if {"step", "loss"} <= record.keys()]
                     for name in ("scaled", "resumed"))
    assert float(before[-1]) == float(after[0]) == LARGEST
    program.refuses("loss scale: .* is not a power of two between", FLAGS, f"--loss-scale dynamic:{2 * LARGEST}")


def test_a_step_whose_gradients_overflow_changes_no_weight_and_halves_the_scale(program):
    wild = "--comm threads:4 --clip 0 --lr 300 --freeze '*layers*'"  # gradients grow more than tenfold a step
    ended = trained(program, "scaled", FLAGS, "--steps 4 --batch-size 8", wild,
                    f"--loss-scale dynamic:{LARGEST} --checkpoint-every 1")
    ended.prints(r"step 3: gradients overflow at loss scale 1.26765e\+30; skipped, the scale is 6.33825e\+29 now",
                 r"step 4: gradients overflow at loss scale 6.33825e\+29; skipped, the scale is 3.16913e\+29 now")
    assert len(lines_with('"skipped":true', read("scaled.jsonl"))) == 2
    for step in (3, 4):
        same("scaled/step-00000002/model.safetensors", f"scaled/step-0000000{step}/model.safetensors")
    contains("scaled/step-00000004/trainer.json", r'"scale": 3.1691.*e\+29', '"skipped_steps": 2')


def test_frozen_parameters_keep_their_bytes(program, plain):
    freeze = "--freeze '*mlp*' '*norm*'"
    train(program, "frozen", "--comm threads:2 --sharding hybrid:1", freeze)
    frozen, free = (tensors(f"{name}/step-00000004/model.safetensors") for name in ("frozen", "plain"))
    assert frozen.keys() == free.keys()
    for name, (_, _, values) in frozen.items():
        if "norm" in name:
            assert values == struct.pack("<f", 1.0) * (len(values) // 4), name
        assert values != free[name][2], name
    states = header_and_data("frozen/step-00000004/optimizer.safetensors")[0].keys() - {"__metadata__"}
    assert states and not any("norm" in name or "mlp" in name for name in states)
    program(FLAGS, "--steps 5 --batch-size 8 --comm threads:2 --sharding zero3 --resume frozen", freeze)

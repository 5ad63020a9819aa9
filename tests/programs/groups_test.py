# SPDX-License-Identifier: Apache-2.0
"""--group: groups of parameters train as specified, in the memory that was planned; metrics, resume and replay know them."""
import filecmp
import json
import re

import pytest

from support.files import read, records, same, summary, write

FLAGS = "train --data text.txt --model tiny --seq-len 16 --batch-size 8 --threads 1"
TWO = FLAGS + " --comm threads:2"
GROUPS = "--group '*norm* lr=0.1' 'lm_head* clip=0.25' 'role=table lr=0.5' '*layers.0.* frozen'"
PIECES = f"--sharding fsdp2:pieces=4 {GROUPS}"
LAST = "step-00000003/model.safetensors"


def trains(program, name, *arguments):
    return program(TWO, f"--steps 3 --metrics {name}.jsonl --checkpoint-dir {name}", *arguments)


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    """Text, a run without groups, and one with a constant learning rate."""
    trains(program, "plain", "--lr 1e-3 --weight-decay 0 --clip 0.1")
    trains(program, "constant", PIECES, "--lr-schedule constant")


def test_groups_of_all_parameters_are_flags(program):
    trains(program, "group", "--lr 2e-3 --clip 0 --group '* lr=0.5 clip=0.1' 'role=matrix weight-decay=0' --group 'role=table weight-decay=0'")
    same(f"group/{LAST}", f"plain/{LAST}")
    group, plain = ([record.get("loss") for record in records(f"{name}.jsonl")] for name in ("group", "plain"))
    assert group == plain
    trains(program, "frozen", "--freeze '*mlp*' --clip 0.1")
    trains(program, "frozen-group", "--group '*mlp* frozen' --clip 0.1")
    same(f"frozen-group/{LAST}", f"frozen/{LAST}")
    assert not filecmp.cmp(f"frozen/{LAST}", f"plain/{LAST}", shallow=False)


def test_each_step_has_rates_and_norms_of_groups(program):
    trains(program, "each", "--lr 1e-3 --lr-schedule constant --group '*norm* lr=0.1' 'lm_head* clip=0.25' '*mlp* weight-decay=0.5'").prints(
        r"^group +\*norm\*: lr=0\.1$")
    lines = [json.loads(line) for line in read("each.jsonl").splitlines()]
    assert lines[0]["groups"] == {"*norm*": "lr=0.1", "lm_head*": "clip=0.25", "*mlp*": "weight-decay=0.5"}
    groups = [line["groups"] for line in lines if "grad_norm" in line]
    assert len(groups) == 3
    for each in groups:
        assert list(each) == ["*norm*", "lm_head*"]
        assert each["*norm*"] == {"lr": 1e-3 * 0.1} and each["lm_head*"]["grad_norm"] > 0
    assert all("groups" not in record for record in records("plain.jsonl"))


@pytest.mark.parametrize("sharding", ["fsdp2", "zero3", "fsdp2:pieces=4"])
def test_a_dry_run_plans_the_memory_of_groups(program, sharding):
    plan = program(TWO, "--dry-run --sharding", sharding, GROUPS).prints(r"^group: \*norm\* lr=0\.1 \([0-9]+ tensors, [0-9,]+ weights\)$")
    trains(program, sharding, "--sharding", sharding, GROUPS)
    assert summary(f"{sharding}.jsonl")["peak_bytes"] == int(re.search(r"^\s*peak\s+([0-9]+)", plan.out, re.M)[1])


def test_a_run_in_pieces_resumes_on_other_ranks_and_is_replayed(program):
    program(FLAGS, PIECES, "--steps 2 --comm threads:2 --lr-schedule constant --checkpoint-dir parts")
    program(FLAGS, PIECES, "--steps 3 --comm threads:3 --lr-schedule constant --checkpoint-dir parts --resume parts").prints(
        "^resumed: goes on to the bit$")
    # a file has the groups as a list
    write("groups.toml", 'group = ["*norm* lr=0.1", "lm_head* clip=0.25", "role=table lr=0.5", "*layers.0.* frozen"]\n')
    trains(program, "file", "--sharding fsdp2:pieces=4 --lr-schedule constant --config groups.toml")
    for name in "parts", "file":
        same(f"{name}/{LAST}", f"constant/{LAST}")
    trains(program, "whole", PIECES, "--digests whole.digests")
    program("replay whole --step 2 --comm threads:1 --against whole.digests")
    program("replay whole --step 2 --comm threads:1 --against whole.jsonl").prints(
        r"gradient norm [0-9.]+, of lm_head\* [0-9.]+$", "loss and gradient norm are those of whole.jsonl")


def test_a_resumed_run_reports_other_groups(program):
    program(TWO, "--steps 4 --resume constant --group '*norm* lr=0.2' 'lm_head* clip=0.25' '*layers.0.* frozen'").prints(
        r"^resumed: --group '\*norm\*' was lr=0.1, is lr=0.2$", r"^resumed: --group '\* role=table' was lr=0.5, is not given$",
    ).omits("resumed.*lm_head")


@pytest.mark.parametrize("pattern, flags, lines", [
    (r"group 'lm_haed\*' matches no parameter of the model; did you mean", "--group 'lm_haed* lr=0.1'", None),
    ("'rl' is not known; did you mean 'lr'", "--group 'lm_head* rl=0.1'", 1),
    ("lr is -1; give at least 0 and at most 1000", "--group 'lm_head* lr=-1'", 1),
    ("sets nothing; give it lr", "--group 'lm_head*'", 1),
    (r"groups 'lm_head\*' and '\*' give parameter 'lm_head.weight' different values: lr 0.1 and 0.2", "--group 'lm_head* lr=0.1' '* lr=0.2'", None),
    ("every parameter is frozen", "--group '* frozen'", None),
    ("frozen parameters alone", "--lora-rank 2 --group 'lm_head* lr=0.1'", None),
])
def test_bad_groups_are_refused(program, pattern, flags, lines):
    program.refuses(pattern, TWO, "--steps 3", flags, lines=lines)

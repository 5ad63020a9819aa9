# SPDX-License-Identifier: Apache-2.0
"""--optimizer: each trains, plans and resumes bit-identically; Muon needs whole matrices; others' checkpoints are refused."""
import re

import pytest

from support.files import falls, read, same, steps, write

TEXT_BYTES = 6000
FLAGS = "train --data text.txt --model tiny --seq-len 32 --batch-size 8 --lr-schedule constant --threads 1 --comm threads:2"
MUON = FLAGS + " --optimizer muon"
WHOLE = 'the optimizer muon works on whole matrices, and the strategy cuts ".*" over ranks; take .*--layout owned'


@pytest.mark.parametrize("name, flags, metrics, out", [
    ("sgd", "--optimizer sgd --momentum 0.9 --lr 0.05", '"optimizer":{"name":"sgd","momentum":0.9,"nesterov":false,"weight-decay":0.0}',
     "^optimizer sgd, momentum 0.9, nesterov false, weight-decay 0"),
    ("nesterov", "--optimizer sgd --nesterov --weight-decay 1e-3 --lr 0.05 --sharding zero3 --precision fp32", "", ""),
    ("muon", "--optimizer muon --layout owned --lr 2e-3",
     '"optimizer":{"name":"muon","momentum":0.95,"nesterov":true,"iterations":5,"per-head":false,"beta1":0.9', ""),
    ("heads", "--optimizer muon --per-head --layout blocks:40 --lr 2e-3", '"iterations":5,"per-head":true,', ""),
    ("replicated", "--optimizer muon --sharding replicated --lr 2e-3", "", ""),
    ("adamw", "--lr 1e-3", '"optimizer":{"name":"adamw","beta1":0.9,"beta2":0.95,"eps":1e-08,"weight-decay":0.1,"moments":"float"}', ""),
    ("bf16", "--moments bf16 --lr 1e-3 --sharding zero3", '"moments":"bf16"', "^optimizer adamw, .*, moments bf16$"),
    ("adapters", "--lora-rank 64 --moments dynamic8 --layout blocks --lr 1e-3", "", "^optimizer adamw, .*, moments dynamic8$"),
    ("dynamic8", "--moments dynamic8 --layout blocks --lr 1e-3", '"moments":"dynamic8"', "^optimizer adamw, .*, moments dynamic8$"),
])
def test_an_optimizer_trains_and_resumes(program, name, flags, metrics, out):
    program(FLAGS, flags, f"--steps 12 --metrics {name}.jsonl --checkpoint-dir {name} --checkpoint-every 6")
    falls(f"{name}.jsonl")
    assert metrics in read(f"{name}.jsonl")
    program(FLAGS, flags, f"--steps 12 --metrics {name}.again.jsonl --checkpoint-dir {name}.again --resume {name}/step-00000006").prints(out)
    assert steps(f"{name}.jsonl", 7) == steps(f"{name}.again.jsonl", 7) != []
    for file in "model.safetensors", "optimizer.safetensors":
        same(f"{name}/step-00000012/{file}", f"{name}.again/step-00000012/{file}")


def test_muon_needs_whole_matrices(program):
    for flags in "", "--sharding zero3", "--layout rows --dry-run":
        program.refuses(WHOLE, MUON, flags)
    program.refuses(WHOLE.replace("owned", "blocks.*hybrid:K without :full"), MUON, "--layout owned --sharding hybrid:1:full")  # owners' buffers are cut again
    program(MUON, "--layout owned --sharding hybrid:1 --steps 1")
    program(MUON, "--layout blocks --sharding hybrid:1:full --steps 1")
    program("train --data text.txt --model tiny --seq-len 32 --batch-size 8 --steps 1 --optimizer muon")  # one rank cuts nothing


def test_inspect_names_the_formats_of_states(program):
    program("inspect dynamic8/step-00000012").prints(r"^states    [0-9]+ tensors, .* of dynamic8/256, .* of dynamic8u/256, .* of float$")


def test_plans_count_what_an_optimizer_keeps(program):
    def kept(flags):
        lines = re.findall(r"^ *optimizer[^0-9\n]*([0-9][0-9,]*)", program(FLAGS, flags, "--dry-run").out, re.M)
        assert len(lines) <= 1, lines
        return sum(int(line.replace(",", "")) for line in lines)
    assert kept("--lr 1") == 2 * kept("--optimizer sgd") > 0
    assert kept("--optimizer sgd --momentum 0") == 0
    assert kept("--moments dynamic8 --layout blocks") < 0.4 * kept("--lr 1")  # small tensors are float
    program(MUON, "--layout owned --tiling budget:auto --memory 320MiB --steps 1").prints("tiling budget:auto is")


def test_constants_come_from_files_and_others_are_refused(program):
    write("sgd.toml", 'optimizer = "sgd"\nmomentum = 0.5\nlr = 0.05\n')
    program(FLAGS, "--config sgd.toml --steps 1 --metrics toml.jsonl")
    assert '"name":"sgd","momentum":0.5' in read("toml.jsonl")
    for pattern, arguments in [
        ("sgd.*adamw|adamw.*sgd", FLAGS + " --resume sgd"),
        ("muon.*adamw|adamw.*muon", FLAGS + " --layout owned --resume muon"),
        ("adamw.*muon|muon.*adamw", MUON + " --layout owned --resume adamw"),
        ("--nesterov is not adamw's; it takes --beta1, --beta2, --eps, --weight-decay, --moments", FLAGS + " --nesterov"),
        ("--moments is not sgd's; it takes --momentum, --nesterov, --weight-decay", FLAGS + " --optimizer sgd --moments bf16"),
        ("--moments int9 is not known; ", FLAGS + " --moments int9"),
        ("blocks of 256 elements, and the strategy cuts inside of one of", FLAGS + " --moments dynamic8 --intermediate 190"),
        (r'has the state ".*" as dynamic8/256, and this run.s is float; resume with .*--moments dynamic8', FLAGS + " --resume dynamic8"),
        (r'has the state ".*" as float, and this run.s is bf16; resume with .*--moments float', FLAGS + " --moments bf16 --resume adamw"),
        ("optimizer mun is not known; did you mean .muon", FLAGS + " --optimizer mun"),
        ("--momentum 1 must be at least 0 and below 1", FLAGS + " --optimizer sgd --momentum 1"),
    ]:
        program.refuses(pattern, arguments)

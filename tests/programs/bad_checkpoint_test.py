# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and model folders that are of another model, cut short or cannot be written: reported in one line, status 2."""
import os
import pathlib
import shutil

import pytest

from support.files import copied, read, same, write
from support.program import small_disk

TEXT_BYTES = 600
DATA = "--data text.txt --seq-len 16 --precision fp32"
TRAIN = f"train {DATA} --lr-schedule constant --comm threads:2 --model"
RESUME = f"{TRAIN} tiny --steps 4 --metrics metrics.jsonl --trace trace.json --resume"
STEP = pathlib.Path("good/step-00000002")


@pytest.fixture(scope="module", autouse=True)
def good(program):
    program(f"{TRAIN} tiny --steps 2 --checkpoint-dir good")
    write("file", "")
    os.mkdir("empty")
    os.mkdir("locked", mode=0o555)
    for changed in ("other", "stateless"):
        copied(STEP, changed)
        os.remove(f"{changed}/manifest.json")  # which would report the change
    os.remove("stateless/optimizer.safetensors")
    write("other/config.json", read(STEP / "config.json").replace('"hidden_size": 96', '"hidden_size": 48'))


@pytest.mark.parametrize("command, pattern", [
    (f"{RESUME} good --hidden 128 --heads 8",
     r'another model: tensor "model.embed_tokens.weight" has shape \[256, 96\] in it and \[256, 128\]'),
    (f"{RESUME} good --intermediate 99", r'another model: tensor "model.layers.0.mlp.gate_proj.weight"'),
    (f"{RESUME} good --layers 2", r'another model: its tensor "model.layers.2.input_layernorm.weight"'),
    (f"{RESUME} good --seed 1", r"the run.s seed was 0"),
    (f"{RESUME} good --validation-fraction 0.5", r"windows"),
    (f"{RESUME} good --optimizer sgd", "with the optimizer adamw, this run's is sgd; resume with adamw, or start a new run from its "
     f"weights by --model {STEP}"),
    (f"{TRAIN} tiny --resume good --steps 1", r"is at step 2 already; --steps 1"),
    (f"{RESUME} nowhere", r"nowhere: no such checkpoint"),
    (f"{RESUME} empty", r"holds no complete checkpoint"),
    (f"{RESUME} stateless",
     r"stateless: holds no optimizer states .*, which resuming needs; --model stateless starts a new run from its weights$"),
    (f"eval {DATA} --model other", r'model.safetensors: tensor "model.embed_tokens.weight" has shape'),
    *((f"{TRAIN} tiny --steps 2 {flag}", pattern) for flag, pattern in (
        ("--checkpoint-dir file/below", r"checkpoint-dir file/below: cannot be written: .*Not a directory"),
        ("--metrics file/m", r"metrics file/m: cannot be written: Not a directory"),
        ("--trace file/t", r"trace file/t[.a-z0-9]*: cannot be written: Not a directory"),
        ("--metrics /dev/full", r"metrics /dev/full: cannot be written"),
        ("--tensorboard file", r"tensorboard file: cannot be written: "),
        ("--tensorboard file/b", r"tensorboard file/b: cannot be written: Not a directory"),
        *([("--checkpoint-dir locked/c", r"checkpoint-dir locked/c: cannot be written")] if os.getuid() else []))),  # root may write there
])
def test_is_refused(program, command, pattern):
    program.refuses(pattern, command)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "trainer.json", "config.json"])
def test_a_file_that_is_cut_short_is_refused(program, name):
    cut = pathlib.Path(copied(STEP, "cut"), name)
    size = cut.stat().st_size
    for left in (0, 7, size // 2, size - 1 - name.endswith(".json")):  # the last byte of a JSON file is its newline
        shutil.copy(STEP / name, cut)
        os.truncate(cut, left)
        program.refuses(f"cut/{name}", RESUME, "cut")
    cut.unlink()
    program.refuses(f"cut/{name}: .*[Nn]o such file", RESUME, "cut")


def test_weights_without_optimizer_states_start_a_run(program):
    program(f"{TRAIN} stateless --steps 1").prints(
        r"^weights   of step 2 of a run; its optimizer states and its step are not used \(--resume uses them\)$")


def keeps_the_older_checkpoint(program, runs, limit, pattern):
    """Nothing of a checkpoint that finds no space stays."""
    limited = program.under("bash -c", [f'ulimit -f {limit}; exec "$@"', "-"])
    limited.refuses(pattern, f"{TRAIN} tiny --steps 4 --checkpoint-dir {runs} --resume", copied("good", runs))
    same(f"{runs}/step-00000002/model.safetensors", STEP / "model.safetensors")
    program(f"eval {DATA} --model {runs}/step-00000002")


@pytest.mark.parametrize("kilobytes", [1024, 2000])  # of one file; the weights take 1347, the moments 2694
def test_no_space_in_a_file(program, kilobytes):
    keeps_the_older_checkpoint(program, "limited", kilobytes, "limited/.*(File too large|No space)")


def test_no_space_on_a_disk(program):
    with small_disk("disk", "6m"):
        keeps_the_older_checkpoint(program, "disk/runs", "unlimited", "No space left on device")


def test_too_little_memory(program):
    less = "[0-9.]+ [MG]iB"
    limited = program.under("bash -c", ['ulimit -v 3000000; exec "$@"', "-"])
    limited.refuses(f"gave no [0-9]+ bytes of memory.*takes {less} of each rank, and would take {less} (with|on)",
                    "train --data text.txt --seq-len 16 --steps 1 --hidden 4096 --heads 32 --kv-heads 8 --intermediate 14336",
                    "--layers 8", lines=None)

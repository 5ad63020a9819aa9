# SPDX-License-Identifier: Apache-2.0
"""Adapters: trained as PEFT trains them under every strategy, read and written as PEFT's folders, merged, and refused
where they do not fit."""
import json
import os
import re
import shutil

import pytest

from support.files import (TESTS, close, copied, edit, fresh, read, same, save_tensors, set_value, steps, summary,
                           tensors, write)
from support.program import peak

TEXT_BYTES = 2000
ANSWERS = "--data model/chats.jsonl --data-format chat --threads 1"
SIZE = "--seq-len 300 --batch-size 6"
TRAIN = f"train --model model {ANSWERS} --validation-fraction 0 --lr-schedule constant"
EVAL = f"eval {ANSWERS} --seq-len 360 --precision fp32"


@pytest.fixture(scope="module", autouse=True)
def folders(program):
    shutil.copytree(TESTS / "text" / "chat", "model")
    shutil.copytree(TESTS / "text" / "lora", "peft")
    shutil.copy(TESTS / "text" / "tokenizers" / "qwen.json", "model/tokenizer.json")
    write("model/tokenizer_config.json", '{"eos_token": "<|endoftext|>"}\n')


def train(program, *flags):
    """The losses of a training, as printed."""
    program(TRAIN, *flags, "--metrics", fresh("metrics.jsonl"))
    return [loss for _, loss, _, _ in steps("metrics.jsonl")]


def loss_of(program, flags):
    """The loss over all answers."""
    return json.loads(program(EVAL, flags).out)["loss"]


@pytest.mark.parametrize("flags", [
    "--seq-len 360 --batch-size 8",
    "--seq-len 360 --batch-size 8 --grad-accum 4 --tiling tokens:100 --recompute",
    "--seq-len 300 --batch-size 9 --grad-accum 3 --comm threads:3 --sharding zero3 --tiling tiles:2",
])
def test_losses_are_those_of_peft_however_a_step_is_split(program, flags):
    losses = train(program, "--adapter peft/all --precision fp32 --steps 8 --lr 1e-2", flags)
    close(losses, read("peft/losses.txt").split(), 1e-6)


def test_adapters_of_peft_are_exported_unchanged(program):
    program("export model again --adapter peft/some")
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    assert name in tensors("again/adapter_model.safetensors")
    assert '"use_rslora": true' in read("again/adapter_config.json")
    for adapter in ["peft/some", "again"]:
        close([loss_of(program, f"--model model --adapter {adapter}")], read("peft/some.txt").split(), 1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_strategy_gives_bit_identical_losses_on_as_many_ranks(program, precision):
    first = None
    for strategy in ["fsdp2 --tiling off", "zero3 --recompute", "fsdp2:no-reshard --tiling tiles:3",
                     "zero1 --recompute --tiling tiles:2", "zero2", "hybrid:1", "replicated --recompute"]:
        losses = train(program, "--lora-rank 3 --lora-targets q_proj,mlp.* --lora-dropout 0.2 --steps 3 --lr 1e-2",
                       SIZE, "--precision", precision, "--comm threads:2 --sharding", strategy)
        first = first or losses
        close(losses, first, 2e-3 if re.search("tiles|recompute", strategy) else 0)


def test_dropout_depends_on_neither_ranks_nor_micro_batches_nor_tiles(program):
    flags = f"--lora-rank 3 --precision fp32 {SIZE} --steps 3 --lr 1e-2"
    one = train(program, flags, "--lora-dropout 0.2")
    for split in ["--comm threads:3", "--grad-accum 3", "--comm threads:2 --grad-accum 3 --tiling tiles:2 --recompute"]:
        close(train(program, flags, "--lora-dropout 0.2", split), one, 1e-5)
    assert train(program, flags) != one
    seed = f"--lora-rank 3 {SIZE} --steps 3 --lr 1e-2 --seed 7046029254386353131"  # its noise key is 0
    assert train(program, seed, "--lora-dropout 0") != train(program, seed, "--lora-dropout 0.2")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_first_loss_is_bit_identical_to_that_of_the_base_since_b_starts_at_zero(program, precision):
    flags = f"--precision {precision} {SIZE} --steps 1"
    assert train(program, flags, "--lora-rank 7 --lora-rslora") == train(program, flags)


def test_memory_is_the_shard_of_the_base_in_bf16_and_the_state_of_the_adapters(program):
    small = "train --model small --data text.txt --seq-len 32 --threads 1 --precision bf16"
    program(small, "--steps 1 --checkpoint-dir plain")
    program(small, "--steps 1 --checkpoint-dir run --lora-rank 4 --comm threads:2")
    base, total = (int(re.search("([0-9]+) parameters", program(f"inspect {folder}/step-00000001").out)[1])
                   for folder in ["plain", "run"])
    adapters = total - base
    plan = program(small, "--lora-rank 4 --ranks 2 --dry-run")
    weights, optimizer = (int(re.search(rf"^  {row} +(\S+)", plan.out, re.M)[1]) for row in ["weights", "optimizer"])
    assert weights == base * 2 // 2 + adapters * (4 + 2) // 2
    assert optimizer == adapters * 8 // 2
    assert os.path.getsize("run/step-00000001/optimizer.safetensors") < adapters * 8 + 20000


def check_peak(program, flags, given="--lora-dropout 0.1", instead="", last=2):
    """A run takes what its dry run prints, and more than with the flags `instead` of those given; in bf16 perhaps as
    much, since some processors multiply it as float, and the scratch of that is the peak."""
    flags = f"train --data text.txt --seq-len 64 --batch-size 4 --threads 1 {flags}"
    planned, other = (peak(program(flags, some, "--dry-run")) for some in [given, instead])
    program(flags, given, "--steps", last, "--metrics", fresh("metrics.jsonl"))
    assert summary("metrics.jsonl")["peak_bytes"] == planned
    assert planned >= other + ("fp32" in flags)


def test_a_run_with_dropout_takes_the_memory_of_its_dry_run(program):
    tiny, based = "--model tiny --lora-rank 4", "--model plain/step-00000001"
    check_peak(program, tiny)
    check_peak(program, f"{tiny} --precision fp32 --sharding zero3 --comm threads:2 --recompute")
    check_peak(program, f"{tiny} --vocab 2000 --tiling tokens:16 --checkpoint-dir dropped")
    check_peak(program, f"{tiny} --vocab 2000 --tiling tokens:8 --recompute",
               "--lora-dropout 0.1 --resume dropped/step-00000002", last=3)
    check_peak(program, f"{based} --lora-rank 4 --tiling tokens:64 --checkpoint-dir adapted")
    program("export adapted dropping")
    edit(copied("dropping", "steady") + "/adapter_config.json", '"lora_dropout": 0.1', '"lora_dropout": 0.0')
    check_peak(program, based, "--adapter dropping", "--adapter steady")


def test_a_resumed_run_continues_as_if_it_had_not_stopped(program):
    flags = f"--lora-rank 4 --lora-dropout 0.1 --precision bf16 {SIZE} --steps 6 --lr 1e-2 --checkpoint-dir whole"
    whole = train(program, flags, "--checkpoint-every 3")
    shutil.rmtree("whole/step-00000006")
    close(train(program, flags, "--resume auto --comm threads:2 --sharding zero3"), whole[-3:], 2e-3)
    for pattern, other in [(r"another model: tensor .*q_proj.lora_A.weight. has shape \[4, 24\]", "--lora-rank 3"),
                           ("another model: lora_alpha", "--lora-rank 4 --lora-alpha 2")]:
        program.refuses(pattern, TRAIN, SIZE, other, "--resume whole/step-00000003", lines=None)


@pytest.fixture(scope="module")
def tuned(program):
    """A checkpoint with adapters, which are exported to the folder `adapters`."""
    train(program, f"--lora-rank 4 --lora-alpha 6.5 --precision fp32 {SIZE} --steps 20 --lr 1e-2 --checkpoint-dir tuned")
    program("export tuned adapters")
    return "tuned/step-00000020"


def test_exported_adapters_are_a_folder_of_peft_and_merged_they_give_the_same_loss(program, tuned):
    assert sorted(name for name in os.listdir("adapters") if re.search(r"\.safetensors$|config\.json$", name)) == [
        "adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json"]
    changed = "merging changed [0-9.]+ % of the weights that have adapters"
    program("export tuned merged --merge").prints(
        rf"^{changed}; rounding to f32 loses [0-9.e-]+ % of the adapters. effect \(relative norm\)$")
    program("export model merged_by_adapter --adapter adapters --merge")
    same("merged/model.safetensors", "merged_by_adapter/model.safetensors")
    assert "lora" not in read("merged/config.json")
    loss = loss_of(program, f"--model {tuned}")
    assert loss_of(program, "--model model --adapter adapters") == loss
    close([loss_of(program, "--model merged")], [loss], 1e-6)
    edit(copied("adapters", "faint") + "/adapter_config.json", '"lora_alpha": 6.5', '"lora_alpha": 1e-4')
    program("export model of_faint --adapter faint --merge --dtype bf16").warns(
        rf"^tessera: warning: {changed}; rounding to bf16 loses [0-9.]+ % of the adapters. effect \(relative norm\); --dtype f32 keeps it$")


def change(folder, key, value):
    """Makes a copy of peft/all with another value in its adapter_config.json."""
    path = f"{copied('peft/all', folder)}/adapter_config.json"
    write(path, json.dumps(json.loads(read(path)) | {key: value}))


def test_adapters_that_are_not_finite_or_whose_product_is_infinite_are_refused(program):
    spoilt = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
    set_value(copied("peft/some", "spoilt") + "/adapter_model.safetensors", spoilt, 3, float("nan"))
    message = rf"spoilt/adapter_model.safetensors: {spoilt}\[3\] is nan; no run can use it"
    for merge in ["", "--merge"]:
        program.refuses(f"^tessera: {message}", "export model never --adapter spoilt", merge)
    program.refuses(message, EVAL, "--model model --adapter spoilt", lines=None)
    change("huge", "lora_alpha", 1e6)
    file = "huge/adapter_model.safetensors"
    save_tensors(file, {name: (dtype, shape, b"\0\0\0\x7e" * (len(data) // 4))  # 4e37
                        for name, (dtype, shape, data) in tensors(file).items()})
    program.refuses(r"^tessera: model/model.safetensors: model.layers.0.*weight\[0\] with the product of the adapters of huge, "
                    "all of which are finite, is inf; no run", "export model never --adapter huge --merge")


def test_generate_and_chat_with_adapters_print_what_the_checkpoint_does(program, tuned):
    flags = "--temperature 0 --tokens 12 --precision fp32 --threads 1 --model"
    adapted, question = "model --adapter adapters", "What is 3 + 4?\n"
    generate = f"generate --prompt 'What is' {flags}"
    assert program(generate, adapted, "--comm threads:2").out == program(generate, tuned).out
    assert program("chat", flags, adapted, input=question).out == program("chat", flags, tuned, input=question).out


def test_what_does_not_fit_is_refused(program, tuned):
    os.rename(copied("peft/all", "bin") + "/adapter_model.safetensors", "bin/adapter_model.bin")
    write(copied("peft/all", "pointer") + "/adapter_model.safetensors", "version https://git-lfs.github.com/spec/v1\n")
    for pattern, command in [
        ("lora_targets has 'qproj', which matches no projection", f"{TRAIN} {SIZE} --lora-rank 2 --lora-targets qproj"),
        ("lora_rank is -1", f"{TRAIN} {SIZE} --lora-rank -1"),
        ("--lora-alpha is for LoRA, and --lora-rank is 0; give a rank", f"{TRAIN} {SIZE} --lora-alpha 3"),
        ("--adapter peft/all has adapters, which say all of them; drop --lora-rank", f"{TRAIN} {SIZE} --adapter peft/all --lora-rank 2"),
        ("drop --hidden", f"{TRAIN} {SIZE} --hidden 8 --lora-rank 2"),
        ("is for a folder.s model", "train --data text.txt --model tiny --adapter peft/all"),
        ("adapter_config.json: no such file", f"{TRAIN} {SIZE} --adapter model"),
        ("^tessera: bin: holds adapter_model.bin, which is not read, and no adapter_model.safetensors; save the adapters with PEFT",
         "export model never --adapter bin --merge"),
        ("^tessera: pointer/adapter_model.safetensors: is a Git LFS pointer", "export model never --adapter pointer --merge"),
        ("has no adapters; leave it out", "export model never --merge"),
        ("has adapters of its own", f"eval {ANSWERS} --model {tuned} --adapter peft/all"),
        ("peft/all/adapter_model.safetensors: is a file; give the folder that holds it$", f"{TRAIN} {SIZE} --adapter peft/all/adapter_model.safetensors"),
        ("nowhere: no such folder$", f"{TRAIN} {SIZE} --adapter nowhere"),
    ]:
        program.refuses(pattern, command)


@pytest.mark.parametrize("key, value, pattern, lines", [
    ("rank_pattern", {"q_proj": 8}, '"rank_pattern" is .* which this program does not know', 1),
    ("modules_to_save", ["lm_head"], '"modules_to_save" is', 1),
    ("bias", "all", '"bias" is "all"; only "none" is supported', 1),
    ("use_dora", True, '"use_dora" is true', 1),
    ("peft_type", "LOHA", '"peft_type" is "LOHA"', 1),
    ("init_lora_weights", "pissa", "which changed the base.s weights", 1),
    ("target_modules", ".*q_proj", "is the regular expression", 1),
    ("target_modules", ["q_proj", "query_key_value"], '^tessera: bad/adapter_config.json: "target_modules" has "query_key_value", which matches no', 1),
    # Weights are read after the data, which print lines of their own.
    ("r", 8, r"has shape \[4, 24\] where the model has \[8, 24\]: the adapters are another model.s, or not of the rank", None),
    ("target_modules", ["q_proj"], "tensors that the model lacks", None),
])
def test_adapters_of_another_kind_or_model_are_refused(program, key, value, pattern, lines):
    change("bad", key, value)
    program.refuses(pattern, TRAIN, SIZE, "--adapter bad", lines=lines)


def test_inspect_compares_a_folder_of_adapters_with_its_config(program):
    def finds(problem):
        ended = program.refuses("^tessera: inspect: bad has problems", "inspect bad").prints(f"^problem   {problem}")
        assert ended.out.count("\nproblem ") == 1, ended

    program("inspect peft/all").prints("^adapters  rank 4, alpha [0-9.]+, for ", "^problems  none$")
    file = "bad/adapter_model.safetensors"
    projections = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    for key, value, problem in [
        ("r", 8, r'tensor ".*" has shape \[4, [0-9]+\], and adapter_config.json says "r": 8$'),
        ("target_modules", ["q_proj"], 'tensor ".*" is of a module that "target_modules" of adapter_config.json does not name$'),
        ("target_modules", [*projections, "lm_head"], 'holds nothing for "lm_head", which "target_modules" of adapter_config.json names$'),
    ]:
        change("bad", key, value)
        finds(f"{file}: {problem}")
    change("bad", "target_modules", projections)
    edit(file, "layers.0.self_attn.q_proj.lora_B", "layers.7.self_attn.q_proj.lora_B")
    finds(f'{file}: tensor ".*q_proj.lora_[AB].weight" stands alone: the file lacks ".*q_proj.lora_[AB].weight"$')
    os.rename(file, "bad/adapter_model.bin")
    finds("bad: holds adapter_model.bin, which is not read, and no adapter_model.safetensors; save the adapters with PEFT")

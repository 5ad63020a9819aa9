# SPDX-License-Identifier: Apache-2.0
"""inspect: what it prints of a folder of a model, a checkpoint and a directory of checkpoints, and all their problems."""
import glob
import os
import re
import shutil
import struct

import pytest

from support.files import GOLDEN, TESTS, copied, edit, flip, save_tensors, set_value, shorten, tensors, write

MODEL = GOLDEN / "qwen3-window"
SAVED = "saved/step-00000003"


@pytest.fixture(scope="module", autouse=True)
def folders(program):
    """A directory of three checkpoints, and the last of them in shards."""
    program(f"train --model {MODEL} --data {MODEL}/text.bin --seq-len 17 --precision fp32 --threads 1 --batch-size 6",
            "--validation-fraction 0 --steps 3 --checkpoint-dir saved --checkpoint-every 1")
    program("export", SAVED, "shards --dtype bf16 --shard-bytes 9000")


def sound(program, folder):
    ended = program("inspect", folder)
    assert not ended.err
    return ended


def unsound(program, folder, *problems):
    """It finds these problems and no others."""
    ended = program.refuses(f"^tessera: inspect: {folder} has problems; stdout lists them$", "inspect", folder, lines=None)
    ended.prints(*(f"^problem   .*{problem}" for problem in problems)).omits("^problems  none$")
    assert len(re.findall("^problem   ", ended.out, re.M)) == len(problems), ended
    return ended


def test_a_checkpoint_and_a_model_in_shards(program):
    sound(program, SAVED).prints(
        "^file      optimizer.safetensors, ", "^model     qwen3: .*sliding_window 5, full_layers 1, untied head, RoPE default$",
        "^trained   3 steps, 306 tokens$", "^problems  none$", "^training  .* on each of 8 ranks")
    sound(program, "shards").prints("^weights   [0-9]+ tensors in [0-9]+ files, [0-9]+ elements of BF16$")


def test_a_directory_of_checkpoints_of_which_commands_use_the_newest(program):
    ended = sound(program, "saved").prints("^folder    saved, 3 checkpoints$", "^problems  none$")
    assert ended.out.splitlines()[1:7] == [
        line for step in [3, 2, 1] for line in [f"step      saved/step-0000000{step}", f"trained   {step} steps, {102 * step} tokens"]]
    for command in [f"eval --data {MODEL}/text.bin --seq-len 17", "generate --prompt-ids 1 --tokens 2 --temperature 0"]:
        newest = program(command, "--precision fp32 --model saved")
        newest.warns(f"^tessera: --model saved: uses {SAVED}, its newest checkpoint$")
        assert newest.out == program(command, "--precision fp32 --model", SAVED).out
    sound(program, "saved").prints(f"^ +tessera inspect {SAVED} tells of its model and what it takes to train$")


def test_damaged_checkpoints_of_a_directory(program):
    shutil.copytree("saved", "mixed")
    flip("mixed/step-00000002/optimizer.safetensors", 70000)
    os.remove("mixed/step-00000001/model.safetensors")
    ended = unsound(program, "mixed", "mixed/step-00000002/optimizer.safetensors: bytes 65536 to [0-9]+ are not those that were written",
                    "mixed/step-00000001/model.safetensors: cannot be opened: No such file")
    assert [line.split(":")[0] for line in ended.out.splitlines() if re.match("step|trained|problem ", line)] == [
        "step      mixed/step-00000003", "trained   3 steps, 306 tokens",
        "step      mixed/step-00000002", "problem   mixed/step-00000002/optimizer.safetensors",
        "step      mixed/step-00000001", "problem   mixed/step-00000001/model.safetensors"]
    shutil.rmtree("mixed/step-00000003")
    unsound(program, "mixed", "step-00000002/optimizer", "step-00000001/model").warns(
        "warning: mixed/latest names step-00000003; the newest checkpoint there is step-00000002")


def test_a_checkpoint_whose_files_are_not_what_was_written(program):
    for file, at in [("model.safetensors", 20000), ("model.safetensors", 30), ("optimizer.safetensors", 100000),
                     ("trainer.json", 20), ("config.json", 20)]:
        flip(f"{copied(SAVED, 'bad')}/{file}", at)
        program.refuses("^tessera: inspect: bad has problems", "inspect bad", lines=None).prints(
            f"^problem   bad/{file}: bytes [0-9]+ to [0-9]+ are not those that were written")
    for file in ["optimizer.safetensors", "trainer.json"]:
        shorten(f"{copied(SAVED, 'bad')}/{file}")
        unsound(program, "bad", f"bad/{file}: [0-9]+ bytes where manifest.json tells of [0-9]+; it was cut short")
    flip(copied(SAVED, "bad") + "/manifest.json", 200)
    unsound(program, "bad", "bad/manifest.json: is not what was written: its own checksum differs")


def test_shards_that_are_absent_or_cut_short_and_a_config_of_another_family(program):
    edit(copied("shards", "wrong") + "/config.json", '"qwen3"', '"gemma3"')
    os.remove(*glob.glob("wrong/model-00002-*"))
    unsound(program, "wrong", '"model_type" is "gemma3"', "of which 1 is missing: model-00002-")
    shorten(*glob.glob(copied("shards", "wrong") + "/model-00003-*"))
    unsound(program, "wrong", "wrong/model-00003-of-[0-9]+.safetensors: its tensors take .*; it was cut short")
    os.truncate("wrong/model.safetensors.index.json", 25000001)
    unsound(program, "wrong", "wrong/model.safetensors.index.json: 25000001 bytes; at most 25000000 are read")


def test_what_holds_no_model(program):
    os.mkdir("empty")
    unsound(program, "empty", "empty/config.json: no such file").omits("^weights   none")
    for pattern, command in [
        ("model.safetensors: is a file; give the folder that holds it", f"generate --prompt-ids 1 --tokens 2 --model {SAVED}/model.safetensors"),
        ("nowhere: no such folder", "inspect nowhere"),
        ("nowhere: no such folder", f"eval --model nowhere --data {MODEL}/text.bin"),
        ("^tessera: shards/config.json: is a file; give the folder that holds it$", "inspect shards/config.json"),
    ]:
        program.refuses(pattern, command)


def test_values_that_are_not_finite_unless_quick(program):
    copied(SAVED, "bad")
    for name in ["optimizer.safetensors", "trainer.json", "manifest.json"]:
        os.remove(f"bad/{name}")
    save_tensors("bad/model.safetensors", tensors(f"{SAVED}/model.safetensors") | {  # of old files, and not read
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [1], struct.pack("<f", float("nan")))})
    program("inspect bad").prints("^problems  none$")
    shutil.copy(f"{SAVED}/model.safetensors", "bad")
    set_value("bad/model.safetensors", "model.norm.weight", 5, float("nan"))
    set_value("bad/model.safetensors", "lm_head.weight", 77, float("-inf"))
    values = [r"model.safetensors: model.norm.weight\[5\] is nan; no run can use it", r"model.safetensors: lm_head.weight\[77\] is -inf; no run"]
    unsound(program, "bad", *values)
    program("inspect bad --quick").prints("^values    not read, since --quick$", "^problems  none$")
    for name in ["optimizer.safetensors", "trainer.json"]:
        shutil.copy(f"{SAVED}/{name}", "bad")
    set_value("bad/optimizer.safetensors", "model.norm.weight.exp_avg", 1, float("inf"))
    values += [r"optimizer.safetensors: model.norm.weight.exp_avg\[1\] is inf", "its manifest.json: no such file"]
    unsound(program, "bad", *values)
    shutil.copytree("bad", "steps/step-00000003")
    unsound(program, "steps", *values)


def test_the_tokenizer_and_other_files_that_checkpoints_would_hold(program):
    sound(program, "shards").prints("^tokenizer none: text takes --tokenizer, or is read as bytes if the vocabulary is small$")
    shutil.copytree("shards", "files")
    write("files/tokenizer.model", "")
    unsound(program, "files", "files: holds tokenizer.model but no tokenizer.json, which is read; save it with the fast tokenizer")
    shutil.copy(TESTS / "text" / "tokenizers" / "qwen.json", "files/tokenizer.json")
    os.symlink("nowhere", "files/merges.txt")
    unsound(program, "files", "files/tokenizer.json has token ids up to 1201, and the model knows 128",
            "files/merges.txt: cannot be opened: it is a broken symbolic link to nowhere; "
            "if it was downloaded, download the folder again$")
    os.remove("files/merges.txt")
    write("files/tokenizer.json", "{\n")
    for content, problem in [
        ('{"eos_token_id": 128}\n', ': "eos_token_id" names token 128, and the model.s vocabulary has 128'),
        ('{"temperature": -1}\n', " says temperature -1: --temperature -1 must be at least 0"),
    ]:
        write("files/generation_config.json", content)
        unsound(program, "files", "files/tokenizer.json: not valid JSON", f"files/generation_config.json{problem}")

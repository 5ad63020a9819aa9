# SPDX-License-Identifier: Apache-2.0
"""Folders of Hugging Face's form: weights in shards behind links, folders without weights, and their problems."""
import array
import json
import os
import pathlib
import shutil

import pytest

from support.files import GOLDEN, copied, edit, fresh, read, save_tensors, steps, tensors, write

MODEL = GOLDEN / "qwen3-window"
FLAGS = f"--data {MODEL}/text.bin --seq-len 17 --precision fp32 --threads 1"
TRAIN = f"train {FLAGS} --batch-size 6"
RECIPE = "--validation-fraction 0 --lr 1e-3 --lr-schedule constant"


def shards(count, out):
    """Writes MODEL with its weights in so many files and an index."""
    saved, index = tensors(MODEL / "model.safetensors"), {}
    write(f"{out}/config.json", read(MODEL / "config.json"))
    for i in range(count):
        file = f"model-{i + 1:05d}-of-{count:05d}.safetensors"
        save_tensors(f"{out}/{file}", {name: saved[name] for name in sorted(saved)[i::count]})
        index |= dict.fromkeys(sorted(saved)[i::count], file)
    write(f"{out}/model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": index}))


@pytest.fixture(scope="module", autouse=True)
def folders(program):
    """A model in shards behind links, as in the hub's cache, and one without weights."""
    shards(3, "blobs")
    os.mkdir("snapshot")
    for file in os.listdir("blobs"):
        os.symlink(f"../blobs/{file}", f"snapshot/{file}")
    write("bare/config.json", read("blobs/config.json"))


def train(program, metrics, *flags):
    return program(TRAIN, RECIPE, "--metrics", fresh(metrics), *flags)


def test_weights_in_shards_behind_links_also_where_resume_auto_starts_fresh(program):
    train(program, "whole.jsonl", "--model", MODEL, "--steps 3 --comm threads:2")
    train(program, "shards.jsonl", "--model snapshot --steps 3 --comm threads:2")
    assert steps("whole.jsonl") == steps("shards.jsonl")
    train(program, "auto.jsonl", "--model snapshot --steps 3 --comm threads:2 --checkpoint-dir saved --resume auto").prints(
        "^--resume auto: saved holds no checkpoint; a fresh start$")
    assert steps("whole.jsonl") == steps("auto.jsonl")
    program("eval", FLAGS, "--model saved/step-00000003")


def test_without_weights_they_are_random_but_adapters_are_refused(program):
    train(program, "scratch.jsonl", "--model snapshot --from-scratch --steps 1").prints(
        "^weights   random, since --from-scratch leaves those of snapshot$")
    train(program, "bare.jsonl", "--model bare --steps 1").prints("^weights   random, since bare holds none$")
    assert steps("scratch.jsonl") == steps("bare.jsonl")
    assert steps("bare.jsonl") != steps("whole.jsonl")[:1]
    program.refuses("bare: holds neither model.safetensors nor model.safetensors.index.json", "eval", FLAGS, "--model bare")
    for flags in ["", "--comm threads:2 --checkpoint-dir new --resume auto"]:
        program.refuses("^tessera: --model bare holds no weights, and adapters would be trained beside random ones; give a folder "
                        "with weights, or --from-scratch$", TRAIN, "--model bare --steps 1 --lora-rank 2", flags, lines=None)
    program("train", FLAGS, "--model bare --lora-rank 2 --dry-run").prints("^trains [0-9,]+ of [0-9,]+ parameters$").warns(
        "^tessera: --model bare holds no weights, and this plan needs its config.json alone; "
        "training adapters needs them, or --from-scratch$")
    train(program, "adapted.jsonl", "--model bare --lora-rank 2 --from-scratch --steps 1 --checkpoint-dir adapted").prints(
        r"^model .* parameters \([0-9]+ trained\)")
    os.remove("adapted/step-00000001/model.safetensors")
    program.refuses("adapted/step-00000001: holds optimizer.safetensors but no model.safetensors",
                    TRAIN, "--model adapted/step-00000001 --steps 1")


@pytest.mark.parametrize("removed, added, message", [
    ("model.safetensors.index.json", {},
     "holds model-00001-of-00003.safetensors but no model.safetensors.index.json, which says what is in the shards; download that, too"),
    ("model", {"pytorch_model.bin": "PK\3\4"}, "holds pytorch_model.bin, a form of weights that is not read; download model.safetensors, or convert it"),
])
def test_no_command_ignores_weights_in_a_form_that_is_not_read(program, removed, added, message):
    for path in pathlib.Path(copied("snapshot", "unread")).glob(f"{removed}*"):
        path.unlink()
    for file, content in added.items():
        write(f"unread/{file}", content)
    program.refuses(f"^tessera: unread: {message}.* takes --from-scratch", TRAIN, "--steps 1 --model unread")
    for command in [f"{TRAIN} --steps 1 --model unread", f"{TRAIN} --steps 1 --lora-rank 2 --comm threads:2 --model unread",
                    f"train {FLAGS} --dry-run --model unread", f"train {FLAGS} --dry-run --lora-rank 2 --model unread",
                    f"eval {FLAGS} --model unread", "generate --model unread --prompt-ids 1 --tokens 1 --precision fp32",
                    "export unread new"]:
        program.refuses(f"^tessera: unread: {message}", command)
    inspected = program.refuses("^tessera: inspect: unread has problems", "inspect unread")
    inspected.prints(f"^problem   unread: {message}").omits("^(problems  none|weights   none)")
    train(program, "unread.jsonl", "--model unread --from-scratch --steps 1")
    assert steps("scratch.jsonl") == steps("unread.jsonl")


def tied(factor):
    """Writes the folder `tied`, whose head is the embedding times this, while its config ties both."""
    saved = tensors(GOLDEN / "llama-gqa" / "model.safetensors")
    dtype, shape, data = saved["model.embed_tokens.weight"]
    head = array.array("f", (factor * value for value in array.array("f", data))).tobytes()
    save_tensors("tied/model.safetensors", saved | {"lm_head.weight": (dtype, shape, head)})
    config = json.loads(read(GOLDEN / "llama-gqa" / "config.json")) | {"tie_word_embeddings": True}
    write("tied/config.json", json.dumps(config))


def test_no_command_drops_a_tied_head_that_differs_from_the_embedding(program):
    tied(1)
    of_tied = program("eval", FLAGS, "--model tied")
    assert not of_tied.err
    program("inspect tied").prints("^problems  none$")
    tied(1.5)
    for command, lines in [(f"{TRAIN} --steps 1 --model tied", None), (f"train {FLAGS} --dry-run --model tied", None),
                           (f"eval {FLAGS} --model tied", None), ("generate --model tied --prompt-ids 1 --tokens 1 --precision fp32", 1),
                           ("export tied new", 1)]:
        program.refuses(r"^tessera: tied/model.safetensors: lm_head.weight\[0\] is [-0-9.e]+ and model.embed_tokens.weight\[0\] is "
                        '[-0-9.e]+; the config ties them, .*Set "tie_word', command, lines=lines)
    edit("tied/config.json", '"tie_word_embeddings": true', '"tie_word_embeddings": false')
    assert program("eval", FLAGS, "--model tied").out != of_tied.out
    write("tied/adapter_config.json", "{}\n")
    program("eval", FLAGS, "--model tied").warns(
        "^tessera: warning: tied: holds adapters as well, which are not read; name them by --adapter$")


def test_pointers_of_git_lfs_and_a_file_in_place_of_a_folder_are_refused(program):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    write(copied("bare", "unread") + "/model.safetensors", pointer)
    program.refuses("unread/model.safetensors: is a Git LFS pointer.*by `git lfs pull`", "eval", FLAGS, "--model unread")
    write("unread/config.json", pointer)
    program.refuses("unread/config.json: is a Git LFS pointer", "eval", FLAGS, "--model unread")
    file = "bare/config.json"
    for command in [f"eval {FLAGS} --model {file}", f"train {FLAGS} --dry-run --model {file}", f"export {file} new"]:
        program.refuses(f"^tessera: {file}: is a file; give the folder that holds it$", command, lines=None)
    program.refuses("--from-scratch starts anew, and --resume saved goes on; leave one of them out", "train", FLAGS,
                    "--model snapshot --from-scratch --resume saved")


def test_more_shards_than_files_that_may_be_open(program):
    shards(20, "many")
    program.under("bash -c 'ulimit -S -n 40; exec \"$@\"' -")(TRAIN, RECIPE, "--model many --steps 1 --comm threads:3")
    program.under("bash -c 'ulimit -n 40; exec \"$@\"' -").refuses(
        "cannot be opened: Too many open files; .ulimit -n. says how many one process may hold open: raise it, or take fewer",
        "eval", FLAGS, "--model many --comm threads:3")


def test_what_is_wrong_is_reported_and_nothing_hangs(program):
    def bad(pattern):
        program.refuses(pattern, TRAIN, "--model bad --comm threads:3 --steps 1")

    second = copied("snapshot", "bad") + "/model-00002-of-00003.safetensors"
    os.remove(second)
    bad("bad/model.safetensors.index.json: names 3 files, of which 1 is missing: model-00002-of-00003.safetensors")
    shutil.copy("bad/model-00001-of-00003.safetensors", second)
    bad("model-00002-of-00003.safetensors, which does not hold it")
    edit("bad/model.safetensors.index.json", '"model-00002-of', '"../model-00002-of')
    bad("an index may name files of its own folder alone")
    for old, new, pattern in [
        ('"qwen3"', '"gemma3"', '"model_type" is "gemma3"; llama, mistral, qwen2 and qwen3 are supported'),
        ('"silu"', '"gelu"', '"hidden_act" is "gelu"'),
        ('"head_dim": 8', '"head_dim": 10', "has shape .* where the model has"),
        ('"rope_type": "default"', '"rope_type": "longrope"', 'the RoPE type "longrope" is not known'),
    ]:
        edit(copied("snapshot", "bad") + "/config.json", old, new)
        bad(pattern)

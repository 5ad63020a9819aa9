# SPDX-License-Identifier: Apache-2.0
"""export: what is written, to the byte, and what is refused."""
import array
import glob
import json
import os
import random
import re
import shutil
import struct

import pytest

from support.files import GOLDEN, copied, flip, listing, read, same, save_tensors, set_value, shorten, tensors, write
from support.program import as_printed, run

MODEL = GOLDEN / "qwen3-window"
TRAIN = (f"train --data {MODEL}/text.bin --data-format bytes --seq-len 17 --precision fp32 --threads 1 --batch-size 6 "
         "--validation-fraction 0 --lr 1e-3 --lr-schedule constant --model")


def stored(folder):
    """Every tensor of the weights of a folder."""
    return tensors(*glob.glob(f"{folder}/model*.safetensors"))


@pytest.fixture(scope="module", autouse=True)
def saved(program):
    """A checkpoint, and the folder `tokenizer`."""
    program(TRAIN, MODEL, "--steps 2 --checkpoint-dir saved --comm threads:2")
    write("tokenizer/tokenizer.json", "{}\n")
    write("tokenizer/generation_config.json", '{"eos_token_id": 7}\n')


@pytest.fixture(scope="module")
def whole(program, saved):
    program("export saved whole --files-from tokenizer").prints(
        "^exported saved/step-00000002 to whole: [0-9.]+ KiB of f32 in 1 file; with generation_config.json, tokenizer.json$")


def test_an_exported_checkpoint_is_exported_again_to_the_same_bytes(program, whole):
    assert stored("saved/step-00000002") == stored("whole")
    same("tokenizer/tokenizer.json", "whole/tokenizer.json")
    assert '"model_type": "qwen3"' in read("whole/config.json")
    program("export whole again")
    assert stored("whole") == stored("again")
    same("whole/config.json", "again/config.json")


def test_checkpoints_hold_the_other_files_of_the_model_also_when_a_run_is_resumed(program):
    shutil.copytree(MODEL, "full")
    shutil.copytree("tokenizer", "full", dirs_exist_ok=True)
    write("full/merges.txt", "#version: 0.2\n")
    os.symlink("nowhere", "full/vocab.json")
    program(TRAIN, "full --steps 1 --checkpoint-dir carried --comm threads:2").warns(
        "^tessera: warning: full/vocab.json: cannot be opened: it is a broken symbolic link to nowhere; "
        "if it was downloaded, download the folder again; it is left out of checkpoints$")
    shutil.rmtree("full")
    write(copied("tokenizer", "other") + "/generation_config.json", '{"eos_token_id": 8}\n')
    program(TRAIN, MODEL, "--steps 2 --checkpoint-dir carried --resume carried")
    program("export carried/step-00000002 carried-on --files-from other").prints(
        "with generation_config.json, merges.txt, tokenizer.json$")
    assert "8" in read("carried-on/generation_config.json")
    assert "7" in read("carried/step-00000002/generation_config.json")
    same("carried-on/merges.txt", "carried/step-00000001/merges.txt")
    tokenizer = write("carried/step-00000001/tokenizer.json", "{}  \n")
    program.refuses(f"{tokenizer}: 5 bytes where manifest.json tells of 3", "export carried/step-00000001 new")
    tokenizer.unlink()
    program.refuses(f"{tokenizer}: no such file", "export carried/step-00000001 new")


@pytest.mark.parametrize("dtype, config", [("bf16", "bfloat16"), ("f16", "float16")])
def test_other_types_in_shards(program, dtype, config):
    program(f"export saved/step-00000002 {dtype} --dtype {dtype} --shard-bytes 9000")
    assert len(glob.glob(f"{dtype}/model-0000?-of-0000?.safetensors")) > 2
    assert f'"torch_dtype": "{config}"' in read(f"{dtype}/config.json")
    program(f"export {dtype} {dtype}-whole --dtype {dtype}")
    program(f"export {dtype} {dtype}-f32")
    program(f"export {dtype}-f32 {dtype}-again --dtype {dtype}")
    assert stored(dtype) == stored(f"{dtype}-whole") == stored(f"{dtype}-again")
    program(TRAIN, dtype, "--steps 1")
    index = json.loads(read(f"{dtype}/model.safetensors.index.json"))
    size = os.path.getsize(f"{dtype}-whole/model.safetensors")
    assert 0.5 * size < index["metadata"]["total_size"] < size
    assert len(set(index["weight_map"].values())) > 2


def test_tensors_of_more_than_a_piece_of_1_mi_elements_are_rounded_as_python_rounds(program):
    made = stored(MODEL)
    for name in ["model.embed_tokens.weight", "lm_head.weight"]:
        dtype, (_, columns), _ = made[name]
        size = 4 * 50000 * columns
        numbers = array.array("I", random.Random(name).getrandbits(8 * size).to_bytes(size, "little"))
        exponents = array.array("I", ((number & 0x8fffffff) + 0x30000000 for number in numbers))  # of 2^-31 to 2^1
        made[name] = dtype, [50000, columns], exponents.tobytes()
    save_tensors("many/model.safetensors", made)
    write("many/config.json", json.dumps(json.loads(read(MODEL / "config.json")) | {"vocab_size": 50000}))
    for dtype in ["f32", "bf16", "f16"]:
        program(f"export many many-{dtype} --dtype {dtype}")
    assert stored("many") == stored("many-f32")
    exact, bf16, f16 = (stored(folder)["model.embed_tokens.weight"][2] for folder in ["many", "many-bf16", "many-f16"])
    assert len(exact) > 4 << 20
    assert f16 == struct.pack(f"<{len(exact) // 4}e", *array.array("f", exact))
    assert bf16 == array.array("H", (n + 0x7fff + (n >> 16 & 1) >> 16 for n in array.array("I", exact))).tobytes()


def test_parents_of_the_folder_are_made_and_its_name_may_end_with_a_slash(program):
    program("export", MODEL, "made/for/it/").prints(" to made/for/it/: ")
    assert stored(MODEL) == stored("made/for/it")
    assert len(listing("made")) == 4


@pytest.mark.skipif(not shutil.which("script"), reason="no script(1)")
def test_a_terminal_shows_how_much_is_written(program):
    command = f"script -qec '{program.path} export {MODEL} terminal' /dev/null"
    shown = as_printed(run, command, env=os.environ | {"TERM": "xterm"}).out
    for pattern in ["\rwriting [0-9.]+ [KMGi]+B of 65.09 KiB, [0-9]+ %", "65.09 KiB, 100 %\r +\rexported "]:
        assert re.search(pattern, shown)


def test_what_is_refused_leaves_nothing(program, whole):
    os.symlink("nowhere", "link")
    write("file", "")
    os.mkdir("empty")
    for pattern, arguments in [
        ("whole: is there already; give a new name, or remove it", "saved whole"),
        ("^tessera: whole/: is there already; give a new name, or remove it$", "saved whole/"),
        ("^tessera: .: is there already; give a new name, or remove it$", "saved ."),
        ("^tessera: ./: is there already; give a new name, or remove it$", "saved ./"),
        ("^tessera: link: is there already; give a new name, or remove it$", "saved link"),
        ("file/below: cannot be created: Not a directory", "saved file/below/new"),
        ("dtype f8 is not known", "saved new --dtype f8"),
        ("nowhere: .*", "nowhere new"),
        ("export: give a checkpoint and the folder to make", "saved"),
        ("tokens: no such folder", "saved new --files-from tokens"),
        ("empty: neither a model.s folder, with config.json, nor a directory with a complete checkpoint", "empty new"),
    ]:
        program.refuses(pattern, "export", arguments)


def test_damaged_files_are_refused(program, whole):
    file = copied("saved/step-00000002", "damaged") + "/model.safetensors"
    flip(file, 20000)
    program.refuses(f"{file}: bytes .* are not those that were written", "export damaged below/new")
    shorten(file)
    program.refuses(f"{file}: [0-9]+ bytes where manifest.json tells of [0-9]+; it was cut short", "export damaged below/new")
    program("export saved/step-00000002 shards --dtype bf16 --shard-bytes 9000")
    shorten(*glob.glob("shards/model-00002-*"))
    program.refuses("shards/model-00002-of-[0-9]+.safetensors: its tensors take .* it was cut short", "export shards below/new")
    os.symlink("nowhere", copied("tokenizer", "broken") + "/merges.txt")
    program.refuses("broken/merges.txt: cannot be opened: it is a broken symbolic link", "export whole below/new --files-from broken")
    file = copied("whole", "large") + "/model.safetensors"
    set_value(file, "model.norm.weight", 0, 1e6)
    program.refuses(r'tensor "model.norm.weight" holds 1e\+06, too large for f16; take bf16 or f32', "export large new --dtype f16")
    set_value(file, "model.norm.weight", 2, float("nan"))
    for dtype in ["f32", "bf16"]:
        program.refuses(rf"^tessera: {file}: model.norm.weight\[2\] is nan; no run can use it",
                        "export large new --shard-bytes 9000 --dtype", dtype)
    assert not glob.glob("new*") + glob.glob("below*")

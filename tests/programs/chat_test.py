# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on answers as `transformers` does it, and a chat with the result, which writes what `generate` writes."""
import os
import re
import shutil

import pytest

from support.files import GOLDEN, TESTS, close, losses, read, write

FLAGS = ("train --model model --data model/chats.jsonl --data-format chat --precision fp32 --validation-fraction 0 --lr-schedule constant "
         "--threads 1")
TUNED = "--temperature 0 --tokens 60 --precision fp32 --threads 1 --model tuned"
CONFIG = "tuned/step-00000150/generation_config.json"
ONE, TWO = "What is 3 + 4?", "What is 50 + 6?"
LONG = f"What is {' + '.join(map(str, range(60)))}?"


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    shutil.copytree(TESTS / "text/chat", "model")
    write("model/tokenizer.json", read(TESTS / "text/tokenizers/qwen.json"))
    write("model/tokenizer_config.json", '{"eos_token": "<|endoftext|>"}\n')


@pytest.fixture(scope="module")
def first(program):
    """The answer to ONE of a model that was trained for long, in tuned/."""
    program(FLAGS, "--seq-len 300 --batch-size 9 --steps 150 --lr 1e-2 --checkpoint-dir tuned")
    assert os.path.getsize("tuned/step-00000150/chat_template.jinja") > 0
    return chat(program, ONE).out


def chat(program, *lines, flags=""):
    return program("chat", TUNED, flags, input="".join(line + "\n" for line in lines), errors="strict")


def whole(ended):
    """What was printed, without the marks behind answers of the most tokens."""
    return re.sub(r" \.\.\.$", "", ended.out, flags=re.M)


def written(program, *messages):
    """What `generate` writes behind messages of the user and the assistant in turns."""
    prompt = "".join(f"{message.rstrip()}<|im_end|>\n" if i % 2 else f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"
                     for i, message in enumerate(messages))
    out = program("generate", TUNED + "/step-00000150", "--stop-ids 1,2 --prompt", [prompt], errors="strict").out
    assert out.startswith(prompt), out
    return out[len(prompt):]


@pytest.mark.parametrize("cut", [
    "--seq-len 360 --batch-size 8",
    "--seq-len 360 --batch-size 8 --grad-accum 8 --tiling tokens:100",
    "--seq-len 360 --batch-size 8 --grad-accum 2 --comm threads:2 --sharding hybrid:1",
    "--seq-len 300 --batch-size 9 --grad-accum 3 --comm threads:3 --sharding zero3",
])
def test_losses_are_those_of_transformers(program, cut):
    metrics = cut.replace(" ", "") + ".jsonl"
    program(FLAGS, "--steps 8 --lr 1e-3", cut, "--metrics", metrics)
    close(losses(metrics), read("model/losses.txt").split(), 1e-6)


def test_a_chat_writes_what_generate_writes(program, first):
    assert written(program, ONE) == first
    both = first + written(program, ONE, first, TWO)
    assert chat(program, ONE, TWO).out == both
    assert chat(program, ONE, "", TWO, "/quit", ONE, flags="--comm threads:2 --sharding zero3").out == both
    assert chat(program, ONE, "/reset", ONE).out == first + first


def test_a_long_line_is_read_in_one_pass_and_a_longer_one_in_a_pass_and_steps(program, first):
    assert whole(chat(program, LONG)) == written(program, LONG)
    assert whole(chat(program, ONE, LONG)) == first + written(program, ONE, first, LONG)


def test_generation_config_says_how_tokens_are_drawn_and_where_an_answer_ends(program, first):
    write(CONFIG, '{"bos_token_id": 0, "eos_token_id": [2, 0], "do_sample": true, "temperature": 0.7, "top_k": 1, '
                  '"transformers_version": "4.51.0", "x": null}\n')
    assert chat(program, ONE).warns("^tessera: by generation_config.json: top-k 1, stop-ids 2,0$").out == first
    write(CONFIG, '{"eos_token_id": null}\n')
    assert chat(program, ONE).omits("by generation_config").out == first
    for wrong, reason in [
        ('{"temperature": -3}', "says temperature -3: --temperature -3 must be at least 0"),
        ('{"eos_token_id": ["x"]}', "must be a token.s id"),
        ('{"top_p": 7}', "--top-p 7"),
        ('{"eos_token_id": [0, 99999]}', '"eos_token_id" names token 99999, and the model.s vocabulary has'),
    ]:
        write(CONFIG, wrong + "\n")
        program.refuses(f"{CONFIG}.*{reason}", "chat --model tuned/step-00000150 --precision fp32")
    os.remove(CONFIG)


def test_limits_and_refusals(program, first):
    chat(program, ONE, LONG, ONE, flags="--context 100").warns("the conversation has [0-9]+ tokens, and --context is 100; /reset begins another")
    chat(program, ONE, flags="--chat-template plain --system 'Be kind.'")
    program.refuses("nowhere.jinja: no such file", "chat", TUNED + "/step-00000150", "--chat-template nowhere.jinja")
    program.refuses("has no tokenizer.json; name one by --tokenizer", "chat --model", GOLDEN / "llama-gqa")
    program.refuses("--model is missing", "chat")

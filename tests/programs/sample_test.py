# SPDX-License-Identifier: Apache-2.0
"""--sample-prompt: samples are what `generate` writes from checkpoints, on any number of ranks, and change no result."""
import json
import re
import shutil

import pytest

from support.files import TESTS, read, records, same, steps, write

TEXT_BYTES = 6000
COMMON = "--precision fp32 --lr 1e-2 --lr-schedule constant --threads 1 --seed 1"
DATA = f"train {COMMON} --data text.txt --data-format bytes --model tiny --seq-len 48 --validation-every 40 --checkpoint-every 40 --steps 120"
FLAGS = f"{DATA} --batch-size 4 --validation-fraction 0.1"
PROMPT = "the rank "
SAMPLES = f"--sample-prompt '{PROMPT}' --sample-tokens 30"


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    write("tok/tokenizer.json", read(TESTS / "text/tokenizers/qwen.json"))
    write("tok/tokenizer_config.json", '{"eos_token": "<|endoftext|>"}\n')


def sampled(metrics, step):
    """Prompt and text of a step's sample."""
    record, = (each for each in records(metrics) if each.get("event") == "sample" and each["step"] == step)
    return record["prompt"] + record["text"]


def samples_are_generated(program, name):
    """The samples of NAME.jsonl are what `generate` writes from the checkpoints in NAME."""
    for step in 40, 80, 120:
        ended = program(f"generate --model {name}/step-{step:08} --temperature 0 --precision fp32 --threads 1 --tokens 30 --prompt '{PROMPT}'",
                        errors="strict")
        assert ended.out == sampled(f"{name}.jsonl", step) + "\n"


@pytest.mark.parametrize("sharding", ["fsdp2", "zero3"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_samples_are_generated_and_change_nothing(program, ranks, sharding):
    name = f"{sharding}-{ranks}"
    stack = f"--comm threads:{ranks} --sharding {sharding}"
    program(FLAGS, stack, f"--checkpoint-dir {name}-without --metrics {name}-without.jsonl")
    assert '"event":"sample"' not in read(f"{name}-without.jsonl")
    program(FLAGS, stack, SAMPLES, f"--checkpoint-dir {name} --metrics {name}.jsonl").prints(
        f"^step 40  sample: {PROMPT}", f"^step 120  sample: {PROMPT}")
    samples_are_generated(program, name)
    assert len(set(sampled(f"{name}.jsonl", 120)[len(PROMPT):])) >= 6  # fewer characters would say too little
    assert steps(f"{name}.jsonl") == steps(f"{name}-without.jsonl")
    validations, without = ([each for each in records(metrics) if each.get("event") == "validation"]
                            for metrics in (f"{name}.jsonl", f"{name}-without.jsonl"))
    assert validations == without != []
    same(f"{name}-without/step-00000120/model.safetensors", f"{name}/step-00000120/model.safetensors")


def test_tiled_and_recomputed_micro_batches_of_whole_blocks(program):
    program(DATA, "--batch-size 8 --validation-fraction 0.1 --grad-accum 2 --tiling tokens:16 --recompute --blocks-per-unit 2 --comm threads:2",
            SAMPLES, "--checkpoint-dir tiled --metrics tiled.jsonl")
    samples_are_generated(program, "tiled")


def test_a_resumed_run_does_not_mention_the_flags(program):
    program(FLAGS, "--sample-prompt x --sample-tokens 5 --resume fsdp2-1-without/step-00000040 --checkpoint-dir rest --metrics rest.jsonl "
                   "--comm threads:1").omits("resumed: --sample")
    assert steps("rest.jsonl") == steps("fsdp2-1.jsonl", 41)


def test_samples_without_a_validation(program):
    program(DATA, "--batch-size 4 --validation-fraction 0", SAMPLES, "--checkpoint-dir none --metrics none.jsonl")
    for step in 40, 80, 120:
        sampled("none.jsonl", step)


def test_a_sample_by_a_tokenizer_ends_with_the_document(program):
    write("documents.jsonl", (json.dumps({"text": "one two three"}) + "\n") * 300)
    program("train", COMMON, "--data documents.jsonl --tokenizer tok --model tiny --vocab 2000 --seq-len 32 --batch-size 4 --steps 200 "
                             "--sample-prompt one --sample-tokens 20 --metrics ends.jsonl")
    assert sampled("ends.jsonl", 200) == "one two three"


def test_a_sample_of_conversations_is_what_chat_answers(program):
    shutil.copytree(TESTS / "text/chat", "model")
    shutil.copytree("tok", "model", dirs_exist_ok=True)
    question = "What is 3 + 4?"
    program("train --model model --data model/chats.jsonl --data-format chat --precision fp32 --validation-fraction 0 --lr-schedule constant "
            "--threads 1 --seq-len 300 --batch-size 10 --steps 60 --lr 1e-2 --comm threads:2 --checkpoint-dir tuned --metrics chat.jsonl "
            f"--sample-tokens 40 --sample-prompt '{question}'")
    answer = program("chat --model tuned/step-00000060 --temperature 0 --tokens 40 --precision fp32 --threads 1", input=question + "\n").out
    assert question + re.sub(r" \.\.\.$", "", answer, flags=re.M) == sampled("chat.jsonl", 60) + "\n"


def test_a_dry_run(program):
    program(FLAGS, SAMPLES, "--dry-run")


@pytest.mark.parametrize("pattern, arguments", [
    ("--sample-tokens is the length of samples, and none are written", "--sample-tokens 5"),
    ("--sample-tokens 64 leave no room for a prompt in --seq-len 48", "--sample-prompt x"),
    ("--sample-prompt has 19 tokens, and --seq-len 48 leaves 18 beside --sample-tokens 30; take a shorter prompt",
     "--sample-prompt 0123456789012345678 --sample-tokens 30"),
    ("--sample-prompt has 19 tokens", "--sample-prompt 0123456789012345678 --sample-tokens 30 --comm threads:2"),
    ("--sample-prompt is read as bytes, and the model knows 300 tokens", SAMPLES + " --vocab 300"),
])
def test_bad_samples_are_refused(program, pattern, arguments):
    program.refuses(pattern, FLAGS, "--checkpoint-dir never", arguments)

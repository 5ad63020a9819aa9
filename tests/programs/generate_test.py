# SPDX-License-Identifier: Apache-2.0
"""generate: the prompt, then so many tokens, the same for a seed and for any number of ranks."""
import array
import shutil

import pytest

from support.files import GOLDEN, read, tensors, write

ONE_BY_ONE = ["mistral-window", "qwen2-yarn", "qwen3-window", "llama-llama3"]  # have tokens.txt
IDS = ["generate --precision fp32 --threads 1 --model", GOLDEN / "qwen3-window"]
GREEDY = [*IDS, "--temperature 0"]
CONFIGURED = "generate --model configured --prompt-ids 100 --precision fp32 --threads 1 --tokens 12"


def octets(program, *arguments):
    """What it generates, which need not be UTF-8."""
    with open("octets", "w+b") as file:
        program("generate", *arguments, stdout=file)
        file.seek(0)
        return file.read()


def beginnings(model):
    """Beginnings of a golden folder's windows, each of another length; and these with the likeliest next token."""
    text = (GOLDEN / model / "text.bin").read_bytes()
    dtype, (windows, length, vocabulary), data = tensors(GOLDEN / model / "expected.safetensors")["logits"]
    logits = array.array({"F32": "f", "F64": "d"}[dtype], data)
    prompts, wanted = [], ""
    for window in range(windows):
        used = 1 + window * 5 % length
        row = logits[(window * length + used - 1) * vocabulary:][:vocabulary]
        prompts.append(",".join(map(str, text[window * length:window * length + used])))
        wanted += f"{prompts[-1]},{row.index(max(row))}\n"
    return prompts, wanted


@pytest.fixture(scope="module")
def alone(program):
    """Lines of three prompts, each followed by its 12 likeliest tokens."""
    return [program(*GREEDY, "--tokens 12 --prompt-ids", prompt).out for prompt in ("5,6,7,8,9", "100", "1,2")]


def test_text_is_the_same_for_a_seed_on_any_number_of_ranks(program):
    arguments = ["--prompt 'a prompt' --tokens 40 --precision fp32 --threads 1 --model", GOLDEN / "llama-gqa"]
    one = octets(program, *arguments, "--seed 3")
    assert len(one) == 8 + 40 + 1 and one.startswith(b"a prompt")
    for flags in "", "--comm threads:2", "--comm threads:2 --sharding replicated":
        assert octets(program, *arguments, "--seed 3", flags) == one
    assert octets(program, *arguments, "--seed 4") != one
    likeliest, other = (octets(program, *arguments, "--temperature 0 --seed", seed) for seed in (3, 4))
    assert likeliest == other
    for prompt, tokens in ("x", 0), ("x" * 300, 5):
        out = octets(program, f"--precision bf16 --tokens {tokens} --prompt {prompt} --model", GOLDEN / "llama-odd")
        assert len(out) == len(prompt) + tokens + 1


@pytest.mark.parametrize("model", [*ONE_BY_ONE, "llama-odd"])
def test_a_batch_of_ids_gets_the_likeliest_tokens(program, model):
    prompts, wanted = beginnings(model)
    for ranks in 1, 3:
        assert program("generate --tokens 1 --temperature 0 --precision fp32 --model", GOLDEN / model, f"--comm threads:{ranks}",
                       [word for prompt in prompts for word in ("--prompt-ids", prompt)]).out == wanted


@pytest.mark.parametrize("penalty, ranks", [("1.0", 1), ("1.0", 2), ("1.0", 3), ("1.0", 4), ("1.5", 2)])
@pytest.mark.parametrize("model", ONE_BY_ONE)
def test_tokens_are_those_of_transformers(program, model, penalty, ranks):
    """tests/golden/make_tokens.py wrote those."""
    lines = [line.split(";") for line in read(GOLDEN / model / "tokens.txt").splitlines() if line.startswith(penalty + ";")]
    for cache in "", "--no-cache":
        ended = program("generate --tokens 24 --temperature 0 --precision fp32 --threads 1 --model", GOLDEN / model, "--prompt-ids",
                        [prompt for _, prompt, _ in lines], f"--repetition-penalty {penalty} --comm threads:{ranks}", cache)
        assert ended.out == "".join(tokens + "\n" for _, _, tokens in lines)


def test_sequences_of_a_batch_are_those_alone(program, alone):
    assert "".join(alone).count(",") + 3 == 3 * 12 + 8
    assert program(*GREEDY, "--prompt-ids 5,6,7,8,9 100 --prompt-ids 1,2 --tokens 12 --comm threads:2").out == "".join(alone)
    grown = "100"
    for _ in range(3):
        grown = program(*GREEDY, "--prompt-ids", grown, "--tokens 1").out.strip()
    assert grown == ",".join(alone[1].split(",")[:4])


def test_drawn_tokens(program, alone):
    drawn = program(*IDS, "--prompt-ids 5,6 7 --tokens 30 --temperature 3 --seed 1").out
    first, second = drawn.splitlines()
    assert first.split(",")[2:] != second.split(",")[1:]
    for ranks in 2, 4:
        assert program(*IDS, f"--prompt-ids 5,6 7 --tokens 30 --temperature 3 --seed 1 --comm threads:{ranks}").out == drawn
    for likeliest in "--top-k 1", "--top-p 0", "--min-p 1":
        assert program(*IDS, "--prompt-ids 100 --tokens 12 --temperature 3", likeliest).out == alone[1]
    tokens = program(*GREEDY, "--prompt-ids 100 --tokens 12 --repetition-penalty 1000").out.split(",")
    assert len({int(token) for token in tokens}) == 13, tokens  # of logits above and below 0, none twice


def test_a_sequence_ends_with_a_stop_token_of_flags_or_generation_config(program, alone):
    tokens = alone[1].strip().split(",")
    third, line = tokens[3], ",".join(tokens[:tokens.index(tokens[3], 1) + 1]) + "\n"  # it may come before
    assert program(*GREEDY, "--prompt-ids 100 --tokens 12 --stop-ids", third).out == line
    file = shutil.copytree(GOLDEN / "qwen3-window", "configured") + "/generation_config.json"
    write(file, f'{{"do_sample": false, "eos_token_id": [999, {third}], "top_p": null, "max_length": 20}}\n')
    program.refuses('^tessera: configured/generation_config.json: "eos_token_id" names token 999, and the model.s vocabulary has 128 tokens; '
                    "correct it, or give --stop-ids$", CONFIGURED)
    program(CONFIGURED, "--stop-ids 3")  # the file's are ignored
    write(file, f'{{"do_sample": false, "eos_token_id": [0, {third}]}}\n')
    assert program(CONFIGURED).warns(f"^tessera: by generation_config.json: temperature 0, stop-ids 0,{third}$").out == line
    write(file, '{"temperature": 3, "top_k": 1, "min_p": 0.5, "repetition_penalty": 1.0, "eos_token_id": 2}\n')
    assert program(CONFIGURED, "--stop-ids 3").warns(
        "generation_config.json: temperature 3, top-k 1, min-p 0.5, repetition-penalty 1$").out == alone[1]
    for wrong in "[]", "{", '{"top_k": "a"}', '{"eos_token_id": ["x"]}', '{"eos_token_id": -1}', '{"top_p": 7}', '{"do_sample": 1}':
        write(file, wrong + "\n")
        program.refuses("configured/generation_config.json", CONFIGURED)


def test_a_sequence_is_no_longer_than_the_positions(program):
    assert program(*IDS, "--prompt-ids 1,2,3 --tokens 62").out.count(",") + 1 == 65  # 64 positions, and the last token takes none
    program.refuses("more than the 64 positions", *IDS, "--prompt-ids 1,2,3 --tokens 63")

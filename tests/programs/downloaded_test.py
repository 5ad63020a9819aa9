# SPDX-License-Identifier: Apache-2.0
"""Downloaded models of each family, as the hub's cache holds them: all that one does with them, as they come."""
import json
import pathlib

import pytest

from support.downloaded import make
from support.files import close, same, write

DATA = "--data chats.jsonl --data-format chat --seq-len 160 --on-long drop --precision fp32 --threads 1"
TRAIN = f"train {DATA} --batch-size 2 --validation-fraction 0 --steps 2 --model"
TAKEN = ["generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    # Of one answer, without a system message: mistral's template moves that, qwen3's takes thoughts out of earlier answers.
    chats = [[{"role": "user", "content": f"What is {i} + 4?"}, {"role": "assistant", "content": f"It is {i + 4}."}] for i in range(1, 7)]
    write("chats.jsonl", "".join(json.dumps({"messages": chat}) + "\n" for chat in chats))


def loss(ended):
    return json.loads(ended.out)["loss"]


@pytest.mark.parametrize("name, sampling, taken", [
    ("llama2", "temperature 0.6, top-p 0.9, stop-ids 2", ["tokenizer.model"]),
    ("llama3", "temperature 0.6, top-p 0.9, stop-ids 1,1202", []),
    ("llama3.1", "temperature 0.6, top-p 0.9, stop-ids 1,1204,1202", ["chat_template.jinja"]),
    ("mistral", "stop-ids 2", ["tokenizer.model"]),
    ("qwen2", "temperature 0.7, top-k 20, top-p 0.8, repetition-penalty 1.1, stop-ids 2,0", ["vocab.json", "merges.txt"]),
    ("qwen3", "temperature 0.6, top-k 20, top-p 0.95, stop-ids 2,0", ["vocab.json", "merges.txt", "chat_template.jinja"]),
])
def test_a_family(program, name, sampling, taken):
    """`sampling`: what generation_config.json sets; `taken`: files that a checkpoint takes along in addition to TAKEN."""
    def is_sound(folder):
        ended = program("inspect", folder).prints("^problems  none$")
        assert ended.err == ""
        return ended

    def draws_as_configured(ended):
        return ended.warns(f"^tessera: by generation_config.json: {sampling}$").omits("warning")

    def chats(folder, flags=""):
        """Two answers."""
        ended = program("chat --precision fp32 --threads 1 --tokens 5 --model", folder, flags, input="What is 3 + 4?\n" * 2, errors="strict")
        assert ended.out.count("\n") >= 2
        return draws_as_configured(ended).out

    model = f"hub/{name}/snapshots/main"
    make(name, pathlib.Path("hub", name))
    is_sound(model).prints("^weights   [0-9]+ tensors in 2 files, [0-9]+ elements of BF16$", "^tokenizer [0-9]+ tokens, with a chat template$",
                           f"^sampling  {sampling}, by generation_config.json$")
    alone = program("eval", DATA, "--model", model).omits("warning")
    draws_as_configured(program("generate --prompt 'What is' --tokens 3 --precision fp32 --threads 1 --model", model))
    chats(model)

    program(TRAIN, model, f"--checkpoint-dir {name}-tuned").omits("warning")
    tuned = f"{name}-tuned/step-00000002"
    for file in TAKEN + taken:
        same(f"{model}/{file}", f"{tuned}/{file}")
    is_sound(tuned)
    chats(tuned)

    program(TRAIN, model, f"--lora-rank 2 --lr 1e-2 --checkpoint-dir {name}-adapted")
    program(f"export {name}-adapted {name}-adapters")
    is_sound(f"{name}-adapters")
    program(f"export {model} {name}-merged --adapter {name}-adapters --merge --shard-bytes 100000")
    is_sound(f"{name}-merged")
    of_adapters = loss(program("eval", DATA, f"--model {model} --adapter {name}-adapters"))
    of_merged = loss(program("eval", DATA, f"--model {name}-merged"))
    assert of_adapters != loss(alone)
    close([of_merged], [of_adapters], 1e-6)
    assert chats(model, f"--adapter {name}-adapters") == chats(f"{name}-merged")

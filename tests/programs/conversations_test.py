# SPDX-License-Identifier: Apache-2.0
"""Conversations: losses are the same on any number of ranks and micro-batches, tiled, cached and resumed."""
import json
import os
import shutil

import pytest

from support.files import TESTS, close, listing, read, steps, write

FLAGS = ("train --model tiny --vocab 2000 --seq-len 256 --steps 4 --batch-size 6 --precision fp32 --seed 1 --threads 1 --data-format chat "
         "--tokenizer tok --validation-fraction 0.1")
BARE = FLAGS.replace("tok ", "bare ")
AUTO = FLAGS.replace("chat", "auto")
CHATML = "--data chats.jsonl --chat-template chatml"
PROMPTS = "--data completions.jsonl --chat-template plain"
EVAL = "eval --model kept/step-00000004 --data-format chat --chat-template chatml"


def turns(*contents, **marks):
    """Messages of the user and the assistant in turns; the first answer has the marks."""
    made = [{"role": "assistant" if i % 2 else "user", "content": content} for i, content in enumerate(contents)]
    return made[:1] + [made[1] | marks] + made[2:]


def records(path, *made):
    write(path, "".join(json.dumps(record) + "\n" for record in made))


def train(program, name, *arguments, flags=FLAGS):
    return program(flags, *arguments, f"--metrics {name}.jsonl")


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    """Texts, the runs `one` and `prompts`, and the checkpoints in kept/."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", os.getcwd())
        write("tok/tokenizer.json", read(TESTS / "text/tokenizers/qwen.json"))
        write("tok/tokenizer_config.json", '{"eos_token": {"content": "<|endoftext|>"}}')
        answers = ["It is " + " and ".join(str(i + k) for k in range(i % 5 + 1)) + "." for i in range(120)]
        chats = [{"messages": turns(*(answers[i] if j % 2 else f"What is {i} and {j}?" for j in range(2 + 2 * (i % 3))))}
                 for i in range(120)]
        records("chats.jsonl", *chats)
        records("order.jsonl", *chats, {"messages": [{"role": "assistant", "content": "a"}]})
        records("completions.jsonl", *({"prompt": f"{i} + 1 =", "completion": f" {i + 1}"} for i in range(120)))
        train(program, "one", CHATML).prints("120 conversations in [0-9]+ windows, [0-9]+ % filled").warns(
            "tokenized the conversations with tok/tokenizer.json and the template chatml")
        train(program, "kept", CHATML, "--checkpoint-dir kept --checkpoint-every 2")
        train(program, "prompts", PROMPTS, "--token-cache cache")
        yield
        assert not [path for path in listing() if "tessera-tokens-" in path]


def test_losses_do_not_depend_on_what_cuts_a_step(program):
    for i, cut in enumerate(["--comm threads:2", "--comm threads:3 --sharding zero3", "--grad-accum 6",
                             "--comm threads:2 --grad-accum 3 --tiling tokens:96"]):
        train(program, f"cut{i}", CHATML, cut)
        close(steps("one.jsonl"), steps(f"cut{i}.jsonl"), 1e-5)


def test_a_run_resumes_from_its_checkpoint_and_cache(program):
    assert steps("kept.jsonl") == steps("one.jsonl")
    assert len(os.listdir("kept/tokens")) == 1
    shutil.copytree("kept", "before")
    shutil.rmtree("before/step-00000004")
    train(program, "rest", CHATML, "--checkpoint-dir before --resume auto")
    assert steps("rest.jsonl") == steps("one.jsonl")[-2:]
    program.refuses("was trained on 38 windows of 256 tokens", FLAGS, PROMPTS, "--token-cache cache --checkpoint-dir before --resume before")
    program(EVAL, "--data chats.jsonl --seq-len 256").prints('"loss": *[0-9.]+')


def test_templates_of_files(program):
    """One next to the tokenizer is used; what one does not write takes a line of each run."""
    write("tok/chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}\n")
    train(program, "own", "--data chats.jsonl").warns("and tok/chat_template.jinja")
    write("rewrites.jinja", "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content if loop.last or m.role == 'user' "
                            "else m.content | upper }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}\n")
    lost = {"role": "tool", "content": "lost"}
    records("parts.jsonl", *({"source": 1, "messages": turns(f"{i}?", f"it is {i}")[:1] + [lost] + turns("?", f"it is {i}", "and?", "fin")[1:]}
                             for i in range(20)))
    program.refuses("rewrites.jinja writes message 3 otherwise once others follow it, .*; learn the last answer alone by --learn last, "
                    'mark earlier answers by "weight": 0, or give another --chat-template, such as qwen3 or chatml',
                    FLAGS, "--data parts.jsonl --chat-template rewrites.jinja")
    for _ in "first", "cached":
        err = train(program, "last", "--data parts.jsonl --chat-template rewrites.jinja --learn last --comm threads:2 --token-cache last").err
        assert err.count("tessera: warning: a part is absent from the text of 20 of 20 conversations; the first: parts.jsonl line 1: "
                         "rewrites.jinja does not write the text of message 2\n") == 1, err
        assert err.count("tessera: not read: source in 20 records\n") == 1, err


def test_marks_end_tokens_and_unknown_tokens(program):
    for name, marks in ("marked", {"weight": 0}), ("unmarked", {}), ("half", {"weight": 0.5}):
        records(f"{name}.jsonl", {"messages": turns("a", "b", "c", "d", **marks)})
    assert program(EVAL, "--seq-len 64 --data marked.jsonl").out != program(EVAL, "--seq-len 64 --data unmarked.jsonl").out
    program.refuses('half.jsonl line 1: message 2 has "weight" of 0.5', FLAGS, "--data half.jsonl --chat-template chatml --comm threads:2")

    write("bare/tokenizer.json", read("tok/tokenizer.json"))
    write("bare/tokenizer_config.json", "{}\n")
    program.refuses("completions.jsonl line 1: bare/tokenizer.json: neither tokenizer_config.json nor special_tokens_map.json beside it names "
                    "an eos_token", BARE, "--data completions.jsonl --chat-template chatml")
    train(program, "named", PROMPTS, "--end-token '<|endoftext|>'", flags=BARE).omits("warning")
    write("bare/special_tokens_map.json", '{"eos_token": "<|endoftext|>"}\n')
    train(program, "map", PROMPTS, "--checkpoint-dir mapped", flags=BARE)
    assert steps("prompts.jsonl") == steps("named.jsonl") == steps("map.jsonl")
    assert read("mapped/step-00000004/special_tokens_map.json") == read("bare/special_tokens_map.json")

    program(EVAL, "--seq-len 128 --data unmarked.jsonl --tokenizer", TESTS / "text/tokenizers/smollm.json").warns(
        r"^tessera: warning: the template chatml writes <\|im_end\|>, <\|im_start\|>, which is no token of .*smollm.json: each becomes several")
    write("bos.jinja", "{{ bos_token }}{{ messages[-1].content }}{% if false %}{{ eos_token }}{% endif %}\n")
    program("chat --model kept/step-00000004 --chat-template bos.jinja --tokens 1", input="a\n").omits("eos_token").warns(
        "^tessera: warning: bos.jinja uses bos_token, which nothing beside kept/step-00000004/tokenizer.json names: it writes nothing there")


def test_what_cannot_be_is_refused(program):
    records("silent.jsonl", {"messages": turns("a", "b")[:1]})
    write("bad.jinja", "{{ messages | frobnicate }}\n")
    for pattern, flags, arguments in [
        ("silent.jsonl line 1: holds no answer", FLAGS, "--data silent.jsonl --chat-template chatml"),
        ("silent.jsonl line 1: holds no answer", FLAGS, "--data silent.jsonl --chat-template chatml --checkpoint-dir new/folder"),
        ("order.jsonl line 121: the template chatml: line [0-9]+: the template refuses the conversation: the role assistant answers nothing",
         FLAGS, "--data order.jsonl --chat-template chatml --comm threads:2"),
        ("chats.jsonl line [0-9]+: is [0-9]+ tokens long, and a sequence holds 17; raise --seq-len, or say --on-long drop or cut",
         FLAGS.replace("256", "16"), CHATML + " --token-cache kept/tokens"),
        ("tok/none.jinja: no such file", FLAGS, "--data chats.jsonl --chat-template tok/none.jinja"),
        ("bad.jinja: line 1: the filter 'frobnicate' is not known", FLAGS, "--data chats.jsonl --chat-template bad.jinja"),
        ("--data has weights, which conversations do not know", FLAGS, "--data chats.jsonl:0.5 completions.jsonl:0.5"),
        ("--on-long is for conversations", AUTO, "--data chats.jsonl --on-long drop"),
        ("name the field of the text by --text-field, or train on conversations by --data-format chat", AUTO, "--data chats.jsonl --end-token none"),
        ("--text-field is for text, and --data-format is chat", FLAGS, "--data chats.jsonl --text-field body"),
    ]:
        program.refuses(pattern, flags, arguments)
    program.refuses("in none of 108 conversations does an answer begin within the first 5 tokens; raise --seq-len$", FLAGS.replace("256", "4"), CHATML,
                    "--on-long cut", lines=None)

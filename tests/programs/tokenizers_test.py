# SPDX-License-Identifier: Apache-2.0
"""Text and JSONL by a tokenizer.json: token files, kept or for one run, give bit-identical losses; checkpoints carry it."""
import json
import os
import pathlib
import shutil

import pytest

from support.files import TESTS, close, listing, read, same, steps, text, write

FLAGS = "train --model tiny --vocab 1200 --seq-len 64 --steps 3 --batch-size 4 --precision fp32 --seed 1"
SMALL = "train --model tiny --vocab 1200 --seq-len 16 --steps 1 --batch-size 1 --precision fp32 --seed 1"
MODEL = pathlib.Path("kept/step-00000003")


def unfinished():
    return [path for path in listing() if "tessera-tokens-" in path or path.endswith((".part", "run.lock"))]


def trains(program, name, *arguments, **options):
    program(FLAGS, *arguments, f"--metrics {name}.jsonl", **options)
    return steps(f"{name}.jsonl")


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    """Texts, their tokens by `tokenize`, and a checkpoint of two ranks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", os.getcwd())
        write("tok/tokenizer.json", read(TESTS / "text/tokenizers/smollm.json"))
        write("tok/tokenizer_config.json", '{"eos_token": {"content": "<|endoftext|>", "special": true}}')
        write("unigram.json", '{"model":{"type":"Unigram"}}')
        made = text(30000, "text.txt")
        bodies = [{"id": at, "body": made[at:at + 1000]} for at in range(0, len(made), 1000)]
        write("bodies.jsonl", "".join(json.dumps(body) + "\n\n" for body in bodies))
        program("tokenize text.txt --tokenizer tok --out tokens").prints("^tokens    [0-9,]+ of 1 document in 1 file of tokens$", "^text      29.30 KiB")
        program(FLAGS, "--data text.txt --tokenizer tok --checkpoint-dir kept --comm threads:2 --metrics kept.jsonl").warns(
            "tokenizes the text with tok/tokenizer.json; each document ends with token [0-9]+ \\(<.endoftext.>\\)")
        yield
        assert not unfinished()


def test_tokenize_resumes_and_leaves_complete_files_alone(program):
    program("tokenize text.txt --tokenizer tok --out tokens").prints("they were complete")
    program("tokenize bodies.jsonl --text-field body --tokenizer tok --out lines --shard-tokens 1000").prints(" of 30 documents in [0-9]+ files of lines$")
    for pattern, arguments in [
        ("tokens holds the tokens of other texts", "bodies.jsonl --text-field body --tokenizer tok --out tokens"),
        ('bodies.jsonl line 1: has no "text"; name the field', "bodies.jsonl --tokenizer tok --out new"),
        ('the end token "<s>" is none of ', "text.txt --tokenizer tok --out new --end-token '<s>'"),
        ("give texts, their tokenizer", "text.txt --out new"),
        ("nothing: no such file", "nothing --tokenizer tok --out new"),
        ('the model "Unigram" is not supported', "text.txt --tokenizer unigram.json --out new"),
    ]:
        program.refuses(pattern, "tokenize", arguments)


def test_records_hidden_names_and_encodings(program):
    write("array.json", '[{"text":"a cat"},{"text":"a dog"}]')
    write("lines.json", '{"text":"a cat"}\n{"text":"a dog"}\n')
    for name in "array", "lines":
        program(f"tokenize {name}.json --tokenizer tok --out json-{name}").prints(" of 2 documents in 1 file")
    same("json-array/tokens_000000.bin", "json-lines/tokens_000000.bin")

    write("folder/.git/config", "secret\n")
    write("folder/a.txt", read("text.txt")[:3000].encode() + b"\xff and the rest\n")
    write("folder/b.bin", b"x\0y")
    left_out = r"left out: hidden 1 \(folder/.git\), binary 1 \(folder/b.bin\)"
    replaced = r"1 bytes that are not Unicode text were read as U\+FFFD"
    program("tokenize folder --tokenizer tok --out of-folder").prints(f"^{left_out}$", r"^U\+FFFD    1 bytes are not Unicode text")
    program(SMALL, "--data folder --tokenizer tok --token-cache cache-folder").warns(f"^tessera: folder: {left_out}$").prints(
        f"^data .* bits in 1 file, left out: not text, when the tokens were made 1, {replaced}")
    program(SMALL, "--data folder --tokenizer tok --token-cache cache-folder").prints(f"made 1, {replaced}")
    program(SMALL, "--data folder --checkpoint-dir bytes").prints(f"^data .* in 1 file, {left_out}")
    program("eval --model bytes/step-00000001 --data folder --data-format bytes --seq-len 16 --precision fp32").warns(f"^tessera: data: {left_out}$")

    program.refuses("lines.json holds records of JSON, whose texts a tokenizer reads", SMALL, "--data lines.json")
    write("gbk.txt", b"\xd1\xb5\xc1\xb7\xca\xfd\n")
    program.refuses("gbk.txt is not UTF-8: [0-9]+ of its 7 bytes are not, the first at byte 2; convert it", "tokenize gbk.txt --tokenizer tok --out new")
    program.refuses("gbk.txt is not UTF-8", SMALL, "--data gbk.txt --tokenizer tok")
    write("folder/wide/utf16.txt", b"\xff\xfea\0b\0")
    program.refuses("utf16.txt begins with the byte order mark of UTF-16", SMALL, "--data folder --tokenizer tok")


def test_losses_do_not_depend_on_where_the_tokens_are(program):
    files = trains(program, "files", "--data tokens")
    close(files, steps("kept.jsonl"), 1e-4)
    assert trains(program, "again", "--data text.txt --tokenizer tok --token-cache kept/tokens") == files
    assert len(os.listdir("kept/tokens")) == 1  # they were not made twice
    trains(program, "mine", "--data text.txt --tokenizer tok/tokenizer.json --token-cache cache --comm threads:4")
    assert trains(program, "temporary", "--data text.txt --tokenizer tok") == files
    assert not unfinished()
    empty = os.environ | {"TMPDIR": "", "TESSERA_ISA": "", "TESSERA_BF16_MATMUL": ""}  # like variables that are not set
    assert trains(program, "unset", "--data text.txt --tokenizer tok", env=empty) == files
    assert trains(program, "lines", "--data lines") == trains(program, "fields", "--data bodies.jsonl --text-field body --tokenizer tok")


def test_a_checkpoint_reads_and_writes_text_if_it_has_a_tokenizer(program):
    same("tok/tokenizer.json", MODEL / "tokenizer.json")
    evaluates = "eval --seq-len 64 --precision fp32 --model", MODEL, "--data"
    assert program(*evaluates, "text.txt").out == program(*evaluates, "tokens").out
    writes = "generate --prompt 'the rank holds' --tokens 20 --precision fp32 --model", MODEL
    one = program(*writes, errors="strict").out  # UTF-8
    assert one.startswith("the rank holds")
    assert program(*writes, "--comm threads:2", errors="strict").out == one
    shutil.copytree(MODEL, "bare")
    os.remove("bare/tokenizer.json")
    bytewise = "train --model tiny --seq-len 64 --steps 1 --data text.txt --tokenizer"
    for pattern, *arguments in [
        ("token ids up to 1199, and the model knows 256 tokens; take the model.s own tokenizer, or a new model with --vocab 1200", bytewise, "tok"),
        ("tokenizer . holds no tokenizer.json", bytewise, "."),
        ("leave one of them out", bytewise, "tok --data-format bytes"),
        ("text.txt is text, and bare has no tokenizer.json; name one by --tokenizer", "eval --model bare --data text.txt --precision fp32"),
        ("nothing says what text they are; give --tokenizer or --prompt-ids", "generate --model bare --prompt x --precision fp32"),
    ]:
        program.refuses(pattern, *arguments)


def test_a_signal_ends_a_tokenization_and_leaves_no_temporary_files(program):
    write("large.txt", read("text.txt") * 100)
    for message, command in [
        ("ended while tokenizing large.txt", FLAGS + " --data large.txt --tokenizer tok --comm threads:2"),
        ("tokenization is incomplete; run `tessera tokenize` again, it resumes", "tokenize large.txt --tokenizer tok --out large"),
    ]:
        with program.start(command) as running:
            running.until(lambda: [path for path in unfinished() if path.endswith("run.lock")], "tokens")
            running.send("TERM")
            assert running.ends(143).err == f"tessera: SIGTERM: {message}\n"
        assert not unfinished()

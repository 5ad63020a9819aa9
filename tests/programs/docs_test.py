# SPDX-License-Identifier: Apache-2.0
"""The book: pages of sub-commands, printed output and pictures are what the program prints; commands of pages succeed."""
import os
import pathlib
import re

from support.files import TESTS, read, write
from support.program import run

ROOT = TESTS.parent


def test_generated_pages_are_current(program):
    run("python3 -B", ROOT / "docs/site/generate.py", program.path, "--check")


def commands_of(page, program, monkeypatch):
    """Runs them in a folder of their own."""
    monkeypatch.syspath_prepend(ROOT / "docs/site")
    from pages import blocks
    commands = "".join(block.text for block in blocks(read(ROOT / f"docs/{page}.md")) if block.kind == "run")
    assert len(re.findall("^tessera", commands, re.M)) >= 4, commands
    script = write(f"{page}/commands", commands)
    os.symlink(ROOT / "docs", f"{page}/docs")
    path = {"PATH": f"{program.path.parent}:{os.environ['PATH']}"}
    return run("bash -euo pipefail", script.name, cwd=page, env=os.environ | path, limit=300)


def test_get_started_trains(program, monkeypatch):
    commands_of("get_started", program, monkeypatch).prints("^micro-batch 0  gather")
    assert pathlib.Path("get_started/run/step-00000100/model.safetensors").is_file()


def test_same_bits_prints_what_it_shows(program, monkeypatch):
    ended = commands_of("same_bits", program, monkeypatch).prints(
        r"^the largest difference is [0-9.e-]+, at \[[0-9]+, [0-9]+\] of forward of embedding: ")
    shown = read(TESTS / "docs/same_bits.txt").splitlines()
    assert [line for line in ended.out.splitlines() if line in shown] == shown


def test_the_line_of_json_that_finetuning_shows_is_a_conversation(program):
    tokenizer = TESTS / "text/tokenizers/qwen.json"
    program("train --data", TESTS / "docs/chats.jsonl", "--data-format chat --chat-template chatml --tokenizer", tokenizer,
            "--model tiny --vocab 1216 --seq-len 64 --batch-size 1 --steps 1 --validation-fraction 0")

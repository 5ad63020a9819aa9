# SPDX-License-Identifier: Apache-2.0
"""Files that are not files, that hold what nobody wrote, or that may not be read: one short line each, status 2, no waiting."""
import json
import os
import re

import pytest

from support.files import GOLDEN, copied, fresh, lacks, read, set_value, write

TEXT_BYTES = 600
ESCAPE, TURNED = "\x1b[31m", "\u202e"
TINY = "train --data text.txt --seq-len 16 --precision fp32 --steps 1 --model tiny"
EVAL = "eval --data text.txt --seq-len 16 --precision fp32 --model"


@pytest.fixture(scope="module", autouse=True)
def files(program):
    write(f"folder/{ESCAPE}", "text")
    write("large.toml", "\0" * (2 << 20))
    write("number.toml", "steps = " + "1" * 500000 + "\n")
    write("tokenizer.json", json.dumps({"model": {"type": "\x1b[31m\x07" + "ä" * 10000}}))
    os.symlink("loop", "loop")
    os.mkdir("locked", mode=0o555)
    config, key = read(GOLDEN / "llama-odd/config.json"), "k" * 60000
    for model, changed in {"nul": config + "\0trailing", "twice": f'{{"{key}": 1, "{key}": 1}}', "queue": "", "link": "",
                           "digits": config.replace('"hidden_size": ', '"hidden_size": ' + "1" * 500000)}.items():
        write(f"{copied(GOLDEN / 'llama-odd', model)}/config.json", changed)
    os.mkfifo("pipe")
    os.mkfifo(fresh("queue/config.json"))
    os.symlink("config.json", fresh("link/config.json"))
    set_value(copied(GOLDEN / "llama-gqa", "broken") + "/model.safetensors", "lm_head.weight", -1, float("nan"))


def printable(ended):
    """Nothing of a file or a flag reaches the terminal as it is, and no message is long."""
    assert not re.search(r"[^ -~\nä]", ended.out + ended.err), ended
    assert max(len(ended.out.encode()), len(ended.err.encode())) < 1000, ended
    return ended


@pytest.mark.parametrize("pattern, command", [
    (r"--config folder: not a regular file but a folder", f"{TINY} --config folder"),
    (r"--config /dev/zero: not a regular file", f"{TINY} --config /dev/zero"),
    (r"--config pipe: not a regular file", f"{TINY} --config pipe"),
    (r"--config large.toml: 2097152 bytes; at most 1048576", f"{TINY} --config large.toml"),
    (r"--config number.toml: ", f"{TINY} --config number.toml"),
    (r"config.json: not valid JSON at byte [0-9]+ .a NUL byte", f"{EVAL} nul"),
    (r"config.json: ", f"{EVAL} digits"),
    (r'config.json: the key "k+\.\.\. \(60000 bytes\)" stands twice', f"{EVAL} twice"),
    (r"config.json: not a regular file", f"{EVAL} queue"),
    (r"config.json: cannot be opened: Too many levels", f"{EVAL} link"),
    (r"data: loop: cannot be read: Too many levels", "train --precision fp32 --seq-len 16 --data loop"),
    # Root may write everywhere except into /proc.
    (r"checkpoint-dir locked/c: cannot be written: .*Permission denied", f"{TINY} --checkpoint-dir locked/c") if os.getuid() else
    (r"checkpoint-dir /proc/c: cannot be (?!.*Success)", f"{TINY} --checkpoint-dir /proc/c"),
    (r"broken/model.safetensors: lm_head.weight.8191. is nan; no run can use it",
     "generate --model broken --prompt a --tokens 3 --temperature 0 --precision fp32"),
    (r"--model .x1b.31m.u202e is neither", TINY.replace("tiny", ESCAPE + TURNED)),
    (r"flag --.x1b.31m", f"{TINY} --{ESCAPE}"),
    (r'the model ".x1b.31m.x07', "tokenize text.txt --tokenizer tokenizer.json --out new"),
])
def test_is_refused_in_a_short_line(program, pattern, command):
    printable(program.refuses(pattern, command, limit=20))


def test_control_characters_and_long_words_are_not_printed(program):
    printable(program.under("env", "TESSERA_ISA=" + "x" * 5000).refuses(r"TESSERA_ISA is 'x+\.\.\. .5000 bytes.'", "--version", limit=20))
    printable(program("inspect folder", status=2, limit=20).prints(r"^file +.x1b.31m, 4 B$"))
    program(f"{TINY} --metrics {ESCAPE}.jsonl", limit=20)
    with open(f"{ESCAPE}.jsonl", "a", encoding="utf-8") as metrics:
        metrics.write("\x1b[31m\n")
    printable(program(f"plot {ESCAPE}.jsonl --out {TURNED}.svg", limit=20).prints(r"^.u202e.svg$"))
    lacks(f"{TURNED}.svg", "\x1b")

# SPDX-License-Identifier: Apache-2.0
"""--config: a TOML file sets what flags set; the command line wins; what is unknown is refused."""
import os

import pytest

from support.files import GOLDEN, read, steps, write

TEXT_BYTES = 1000
RUN = """\
# For every sub-command
precision = "fp32"

[train]
seq_len = 16  # as in --seq-len, or with an underscore
data = ["text.txt"]
model = "tiny"
layers = 1
tied = true
steps = 3
batch-size = 4
lr = 2e-3
lr-schedule = "constant"
seed = 5
sharding = "zero3"
comm = "threads:2"
tiling = "tiles:2"

[generate]
prompt = "the "
"""
DOTS = ".a" * 40


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    write("run.toml", RUN)


def test_a_file_sets_what_flags_set(program):
    program("train --config run.toml --metrics file.jsonl")
    program("train --metrics flags.jsonl --precision fp32 --seq-len 16 --data text.txt --model tiny --layers 1 --tied --steps 3 --batch-size 4 "
            "--lr 2e-3 --lr-schedule constant --seed 5 --sharding zero3 --comm threads:2 --tiling tiles:2")
    assert steps("file.jsonl") == steps("flags.jsonl")
    assert read("file.jsonl").splitlines()[0] == read("flags.jsonl").splitlines()[0]
    assert '"stack":"zero3 threads:2 fp32 tiles:2"' in read("file.jsonl")
    program("generate --config run.toml --tokens 1 --model", GOLDEN / "llama-odd").prints("^the ")
    # the command line wins
    program("train --config run.toml --steps 2 --seed=6 --metrics wins.jsonl")
    assert len(steps("wins.jsonl")) == 2
    assert '"seed":6' in read("wins.jsonl")


def test_bad_files_are_refused(program):
    for pattern, *tomls in [
        ("unknown key 'stpes'; did you mean 'steps'", "stpes = 3"),
        ("unknown key 'batchsize'; did you mean 'batch-size'", "[train]\nbatchsize = 3"),
        ("bad.toml: steps is the text 'many'; give a number", 'steps = "many"'),
        ("bad.toml: a key has more than 30 parts", f"a{DOTS} = 1", f"[a{DOTS}]", f'x = {{b = 1, "c" {DOTS} = 2}}'),
        ("bad.toml: lr is the text '.a.a", f"stpes = \"{DOTS}\"  # {DOTS}\nlr = '{DOTS}'"),  # dots of texts and comments do not count
        ("bad.toml", "[$a]", "[[ $a]", "[]", "[ +]"),
        ("bad.toml: a character beyond ASCII stands outside of quotes", "st\u00e9ps = 3"),
        ("unknown key 'stpes'", 'stpes = "\u00e9"  # \u00e9'),
        (r"bad.toml: a table's name, behind \[, begins with what is no letter of a name", "[[$a]]"),
        ("unknown key 'x'", "x = [\n[+1],\n[ {a = 1}]]"),
        ("is not a whole number", "steps = 1.5"),
        ("bad.toml: .*line 1", "steps = "),
        ("fsdp3 is not known; did you mean 'fsdp2'", 'sharding = "fsdp3"'),
    ]:
        for toml in tomls:
            write("bad.toml", toml + "\n")
            program.refuses(pattern, "train --config bad.toml --data text.txt")


def test_files_that_a_run_reads_are_not_written(program):
    program.refuses("nowhere.toml", "train --config nowhere.toml --data text.txt")
    os.symlink("run.toml", "link.toml")
    program("train --config run.toml --steps 1 --checkpoint-dir runs")
    for flag in "trace", "metrics", "digests":
        for file in "run.toml", "./run.toml", "link.toml":
            program.refuses(f"--{flag} {file} is the file of --config; give it a file of its own", f"train --config run.toml --{flag} {file}")
    program.refuses("--trace runs/step-00000001/config.json is a file of --model",
                    "train --config run.toml --model runs/step-00000001 --trace runs/step-00000001/config.json")
    program.refuses("--metrics runs/step-00000001/model.safetensors is a file of --resume runs",
                    "train --config run.toml --resume runs --metrics runs/step-00000001/model.safetensors")
    assert read("run.toml") == RUN

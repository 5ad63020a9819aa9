# SPDX-License-Identifier: Apache-2.0
"""`train --fit` times the best three configurations and takes the fastest; the run is the one that its flags make."""
import json
import os
import pathlib

import pytest

from support.files import cluster, digests, lines_with, listing, read, same, steps, text, write
from support.program import flags_taken, trained

MODEL = "train --model tiny --layers 2 --seq-len 32 --batch-size 8 --threads 1 --steps 4 --comm threads:2"
FLAGS = f"{MODEL} --data text.txt"
FIT = "--fit --cluster two.toml"


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    text(3000, "text.txt")
    cluster("two.toml")
    cluster("ample.toml", "memory=800_000_000_000")
    cluster("four.toml", "ranks=4", "ranks_per_node=4")
    cluster("small.toml", "memory=1_048_576")


def test_the_run_is_that_of_the_flags_that_it_takes(program):
    before = set(os.listdir())
    fitted = trained(program, "fit", FLAGS, FIT)
    assert set(os.listdir()) - before == {"fit", "fit.jsonl"}
    timed = "^fit       [123]  --sharding |^             planned [0-9.]+ m?s a step, took [0-9.]+ m?s(; taken)?$"
    assert len(lines_with(timed, "\n".join(fitted.out.splitlines()[:6]))) == 6
    assert len(lines_with("; taken$", fitted.out)) == 1
    fitted.warns(*(f"^--fit: timing {number} of 3, --sharding " for number in (1, 2, 3)))

    flags = flags_taken(fitted)
    assert len(flags.split()) >= 2
    trained(program, "direct", FLAGS, "--cluster two.toml", flags).omits("^fit ")
    assert steps("fit.jsonl") == steps("direct.jsonl")
    assert read("fit.jsonl").count("\n") == read("direct.jsonl").count("\n")
    assert [path.replace("fit", "direct", 1) for path in listing("fit")] == listing("direct")
    for file in pathlib.Path("fit").glob("step-*/*.safetensors"):
        same(file, "direct" / file.relative_to("fit"))
    records = [json.loads(read(f"{folder}/step-00000004/trainer.json"))["run"] for folder in ("fit", "direct")]
    assert records[0] == records[1]

    resumed = program(FLAGS.replace("--steps 4", "--steps 6"), flags, "--resume fit")
    resumed.omits("resumed: --(sharding|recompute|grad-accum|sequence|tiling)")
    program("replay fit --step 2 --against fit.jsonl").prints("^step 2: loss and gradient norm are those of fit.jsonl$")


def test_flags_that_are_given_stay(program):
    write("run.toml", 'fit = true\ncluster = "two.toml"\nrecompute = true\n')
    out = program(FLAGS, "--config run.toml --sharding zero2 --grad-accum 2").out
    assert lines_with("^fit       [123]  --sharding zero2[^ ]* .*--grad-accum 2 --recompute", out)
    assert lines_with("^fit ", out) == lines_with("^fit       [123]  --sharding zero2", out)

    fitted = program(FLAGS, FIT, "--sharding fsdp2:pieces=4 --verify-every 2 --digests fit.digests")
    program(FLAGS, flags_taken(fitted), "--verify-every 2 --digests direct.digests")
    assert digests("fit.digests") == digests("direct.digests")
    program(FLAGS, FIT, "--document-separator 10 --lora-rank 2 --lora-dropout 0.1 --seed 3")


def test_configurations_that_take_more_memory_than_there_is_are_refused(program):
    program.under("bash -c 'ulimit -v 3000000; exec \"$@\"' -").refuses(
        "^tessera: --fit: a plan says that these ways fit, and for none of them is there memory.*gave no [0-9]+ bytes",
        "train --fit --cluster ample.toml --data text.txt --vocab 32000 --hidden 4096 --layers 2 --heads 32 "
        "--intermediate 11008 --seq-len 64 --batch-size 4 --threads 1 --comm threads:2", lines=None)


@pytest.mark.parametrize("pattern, flags", [
    ("--fit plans with the figures of a cluster, and --cluster is missing; tessera calibrate --out FILE measures", "--fit"),
    ("--fit times steps of ways to train, and --dry-run starts none", f"{FIT} --dry-run"),
    ("--fit times steps of ways to train, and --print-schedule starts none", f"{FIT} --print-schedule"),
    ("--fit looks for the way that a run begins with, and --resume fit goes on", f"{FIT} --resume fit"),
    ("--fit plans with the memory that --cluster says, and --memory 4GiB", f"{FIT} --memory 4GiB"),
    ("--fit: the run has 2 ranks, and --cluster four.toml is of 4; start as many", "--fit --cluster four.toml"),
    ("--fit: no way can be: --cluster h100 computes on cuda, and this stack on cpu", "--fit --cluster h100"),
    ("--cluster absent: no such file", "--fit --cluster absent"),
    ("--fit: none of [0-9]+ ways fits; the one that takes the least, --sharding .*take more ranks", "--fit --cluster small.toml"),
    ("--metrics text.txt is a file of --data", f"{FIT} --metrics text.txt"),
    ("--checkpoint-dir fit: holds checkpoints of another run", f"{FIT} --checkpoint-dir fit"),
])
def test_what_cannot_be_fitted_is_refused_before_anything_is_timed(program, pattern, flags):
    program.refuses(pattern, FLAGS, flags)


def test_data_are_needed_before_anything_is_timed(program):
    program.refuses("--data is missing; give files or folders of text", MODEL, FIT)
    program.refuses("data: absent.txt: no such file or folder", MODEL, FIT, "--data absent.txt")

# SPDX-License-Identifier: Apache-2.0
"""Digests of steps in pieces are identical on any number of ranks; diff finds the place where another run differs;
replay computes a step again; a verified run is identical to one that is not."""
import json
import os
import pathlib
import re
import shutil

import pytest

from support.files import copied, digests, edit, header_and_data, read, set_value, summary, text, write
from support.program import NARROW, peak

TEXT_BYTES = 560  # 4 steps read all of its windows but one
FLAGS = (f"train --data text.txt --model tiny --layers 2 {NARROW} --threads 1 --batch-size 8 --steps 4"
         " --validation-fraction 0.02 --precision fp32 ")
PIECES = FLAGS + "--sharding fsdp2:pieces=4 "
TWO = PIECES + "--comm threads:2 "
CHANGED = "^they part in step 3, piece 0, block 1, forward$"


@pytest.fixture(scope="module")
def tessera(program):
    """The program, next to a run over two ranks: its checkpoints in runs, run.jsonl of digests, metrics.jsonl."""
    program(TWO, "--digests run.jsonl --checkpoint-dir runs --checkpoint-every 2 --metrics metrics.jsonl")
    return program


def contents(folder):
    paths = [pathlib.Path(folder), *pathlib.Path(folder).rglob("*")]
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in paths}


def finds(tessera, pattern, *command):
    """diff or replay finds a difference."""
    return tessera(*command, status=1).prints(pattern).warns(
        "^tessera: (diff: .* and .* differ|replay: .* differs from that of .*); stdout shows where$")


@pytest.mark.parametrize("flags", [
    "--sharding zero3:pieces=4 --comm threads:1",
    "--sharding zero3:pieces=4:persist=512 --blocks-per-unit 2 --comm threads:2",  # k and v are persistent, q is not
    "--sharding fsdp2:pieces=4 --merge-units-below 5000 --layout blocks --comm threads:2",
    "--sharding fsdp2:pieces=4 --comm threads:2 --verify-every 1",
    "--sharding fsdp2:pieces=4 --comm threads:3 --verify-every 1",
])
def test_digests_are_identical(tessera, flags):
    pathlib.Path("other.jsonl").unlink(missing_ok=True)
    ended = tessera(FLAGS, flags, "--digests other.jsonl")
    if "verify" in flags:
        ended.prints("^verify    every step, each rank computes one piece more, of another rank: [0-9.]+ % ")
    count = len(digests("run.jsonl"))
    tessera("diff run.jsonl other.jsonl").prints(rf"^steps 1 to 4 are the same \({count} digests\)$")
    assert digests("run.jsonl") == digests("other.jsonl")


def test_digests_and_verification_are_planned_to_the_byte_and_not_part_of_the_run(tessera):
    flags = PIECES + "--comm threads:3 --digests planned.jsonl --verify-every 3"
    planned = peak(tessera(flags, "--dry-run"))
    tessera(flags, "--metrics planned-metrics.jsonl")
    assert summary("planned-metrics.jsonl")["peak_bytes"] == planned
    copied("runs", "resumed")
    shutil.rmtree("resumed/step-00000004")
    tessera(TWO, "--resume resumed --digests resumed.jsonl --verify-every 3").prints(
        "^resumed: goes on to the bit$").omits("^resumed: --(digests|verify-every)")


def test_diff_finds_the_place_of_a_row_of_data_a_weight_and_a_tiling(tessera):
    row = bytearray(read("text.txt").encode())
    row[16 * 20 + 3] ^= 1  # a token of window 20 alone
    write("row.txt", bytes(row))
    tessera(TWO.replace("text.txt", "row.txt"), "--digests row.jsonl")
    ended = finds(tessera, "they part in step [1-4], piece [0-3], embedding, forward$", "diff run.jsonl row.jsonl")
    first = next(json.loads(one) for one, other in zip(digests("run.jsonl"), digests("row.jsonl")) if one != other)
    step, piece = re.search("they part in step ([0-9]+), piece ([0-9]+), ", ended.out).groups()
    assert (int(step), int(piece)) == (first["step"], first["piece"])
    ended.prints(f"^for the tensors: tessera replay CHECKPOINTS --step {step} --unit embedding --piece {piece} ")

    for copy in ("as-it-is", "changed"):  # without a manifest, which would reveal the change
        copied("runs/step-00000002", f"{copy}/step-00000002")
        os.remove(f"{copy}/step-00000002/manifest.json")
        edit(f"{copy}/step-00000002/trainer.json", '"format_version": 2', '"format_version": 1')
    set_value("changed/step-00000002/model.safetensors", "model.layers.1.mlp.up_proj.weight", 5, 1.5)
    for copy in ("as-it-is", "changed"):
        tessera(TWO, f"--resume {copy}/step-00000002 --digests {copy}.jsonl")
    finds(tessera, CHANGED, "diff as-it-is.jsonl changed.jsonl")
    finds(tessera, "^only run.jsonl has steps 1 to 2$", "diff run.jsonl changed.jsonl").prints(CHANGED)

    tessera(TWO, "--tiling tokens:5 --digests tiled.jsonl")
    finds(tessera, "they part in step 1, ", "diff run.jsonl tiled.jsonl").prints(
        "^stacks are fsdp2:pieces=4 threads:2 fp32 off and fsdp2:pieces=4 threads:2 fp32 tokens:5$")
    tessera(FLAGS, "--sharding fsdp2:pieces=8 --comm threads:2 --digests pieces.jsonl")
    finds(tessera, "^a step has 4 pieces in run.jsonl and 8 in pieces.jsonl: gradients and weights alone are compared$",
          "diff run.jsonl pieces.jsonl").prints("they part in step 1, [a-z 0-9]+, gradient$")


def test_replay_computes_a_step_on_any_number_of_ranks(tessera):
    before = contents("runs")
    for ranks in (1, 3):
        tessera(f"replay runs --step 3 --comm threads:{ranks} --digests again{ranks}.jsonl --against run.jsonl").prints(
            f"^step 3 of runs on {ranks} ranks?, from runs/step-00000002: loss ", "^step 3 is the same ")
        assert [line for line in digests("run.jsonl") if '"step":3,' in line] == digests(f"again{ranks}.jsonl")
    tessera("replay runs --step 2 --comm threads:2 --sharding zero2:pieces=4 --against metrics.jsonl").prints(
        "^step 2 of runs on 2 ranks, from the beginning: loss ",
        "^step 2: loss and gradient norm are those of metrics.jsonl$")
    finds(tessera, CHANGED, "replay changed --step 3 --against run.jsonl")
    os.rename("text.txt", "moved.txt")
    tessera("replay runs --step 4 --data moved.txt --against run.jsonl").prints("^step 4 is the same ")
    tessera.refuses("text.txt: no such file", "replay runs --step 4")
    os.rename("moved.txt", "text.txt")
    assert contents("runs") == before


def test_replay_of_a_strategy_with_groups_takes_one_group_of_ranks_where_none_are_given(tessera):
    tessera(FLAGS, "--sharding fsdp2:2:pieces=4 --comm threads:4 --digests groups.jsonl --checkpoint-dir groups")
    tessera("replay groups --step 2 --against groups.jsonl").prints(
        "^step 2 of groups on 2 ranks, from the beginning: ", "^step 2 is the same ")


def test_replay_writes_tensors_and_diff_finds_their_largest_difference(tessera):
    tessera("replay runs --step 3 --comm threads:3 --tensors a --unit 'block 1' --piece 0").prints("^tensors   a: ")
    tessera("replay changed --step 3 --tensors b --unit 'block 1'").prints("^tensors   b: ")
    assert sorted(os.listdir("a")) == ["digests.jsonl", "parameters.safetensors", "piece-00000.safetensors"]
    finds(tessera, CHANGED, "diff a b").prints(
        r"^the largest difference is [0-9.e-]+, at \[[0-9]+, [0-9]+\] of forward of block 1: ")
    tessera("replay changed --step 3 --tensors whole").prints("^step 3 of changed")
    assert len(os.listdir("b")) == len(os.listdir("whole")) == 6

    def shapes(path, kind=""):
        entries, _ = header_and_data(path)
        metadata = set(entries.pop("__metadata__", {}))
        return {name.removeprefix(kind): at["shape"] for name, at in entries.items() if name.startswith(kind)}, metadata
    weights, _ = shapes("changed/step-00000002/model.safetensors")
    for kind in ("gradient of ", "weights of "):
        assert shapes("whole/parameters.safetensors", kind) == (weights, set(weights))


def test_tensors_that_cannot_be_written_leave_no_folder(tessera):
    text(8000, "long.txt")
    tessera(TWO.replace("text.txt", "long.txt").replace("--seq-len 16", "--seq-len 256"),
            "--checkpoint-dir long --checkpoint-every 2")
    for unit in (["--unit=block 0"], []):  # a stream, in the middle of the pass; and the parameters before it
        tessera.under("bash -c", ['ulimit -f 100 && exec "$@"'], "bash").refuses(
            "File too large", "replay long --step 3 --comm threads:2 --tensors c", unit)


def test_other_runs_that_replay_takes(tessera):
    copied("runs", "anew")
    shutil.rmtree("anew/step-00000004")
    tessera(TWO, "--resume anew --resume-anyway --seed 7 --checkpoint-dir anew")
    tessera(FLAGS, "--sharding zero3 --comm threads:2 --checkpoint-dir uncut --checkpoint-every 2 --digests uncut.jsonl")
    tessera("replay uncut --step 3 --against uncut.jsonl").prints("^step 3 is the same ", "^step 3 of uncut on 2 ranks, ")
    tessera(PIECES.replace("--layers 2", "--layers 1"), "--digests layers.jsonl")


@pytest.mark.parametrize("pattern, command", [
    ("run.jsonl and layers.jsonl are of other models: layers is 2 and 1", "diff run.jsonl layers.jsonl"),
    ("absent: cannot be read: No such file", "diff run.jsonl absent"),
    ("metrics.jsonl: holds no digests; give files that --digests wrote", "diff run.jsonl metrics.jsonl"),
    ("runs: holds no digests.jsonl", "diff runs run.jsonl"),
    ("diff: give two files of digests, or folders with tensors: tessera diff A B", "diff run.jsonl"),
    ("unknown flag --step", "diff run.jsonl other.jsonl --step 3"),

    ("step 5: the run has steps 1 to 4", "replay runs --step 5"),
    ("unit says which tensors are written", "replay runs --step 3 --unit 'block 0'"),
    ("unit block is no unit of this model; did you mean 'block 0'", "replay runs --step 3 --tensors c --unit block"),
    ("piece 4: a step has pieces 0 to 3", "replay runs --step 3 --tensors c --piece 4"),
    ("tensors whole: is not empty", "replay runs --step 3 --tensors whole"),
    ("the run cut a step into 4 pieces .*; give a strategy with as many", "replay runs --step 3 --sharding zero3:pieces=8"),
    ("the run cut a step into 4 pieces", "replay runs --step 3 --sharding zero3"),
    ("unknown flag --threads", "replay runs --step 3 --threads 2"),
    ("the run's data was 1 files, 560 bytes.*; give the run's data by --data", "replay runs --step 3 --data row.txt"),
    ("against resumed.jsonl: has no step 1", "replay runs --step 1 --against resumed.jsonl"),
    ("none: cannot be read: No such file", "replay runs --step 3 --against none --tensors c"),
    ("digests runs/step-00000002/config.json is in the run's folder, runs, which replay leaves as it is",
     "replay runs --step 3 --digests runs/step-00000002/config.json"),
    ("tensors runs/step-00000007 is in the run's folder", "replay runs --step 3 --tensors runs/step-00000007"),
    ("digests text.txt is in the run's data", "replay runs --step 3 --digests text.txt"),
    ("digests pieces.jsonl: a run of 4 pieces a step, behind one of 8; give each run a file", "replay runs --step 3 --tensors c --digests pieces.jsonl"),
    ("unknown flag --stpe; did you mean --step", "replay runs --stpe 3"),
    ("runs/step-00000002 is one checkpoint; give the folder that holds it", "replay runs/step-00000002 --step 3"),
    ("step is missing", "replay runs"),
    ("replay: give the folder of the run.s checkpoints: tessera replay", "replay --step 3"),
    ("replay: between its steps 2 and 4 the run's --seed changed from [0-9]+ to 7, so that", "replay anew --step 3"),
    ("its bits are those of 2 ranks, and here are 3; take as many .--comm threads:2", "replay uncut --step 3 --comm threads:3"),
    ("not cut into pieces, so that replay takes its ranks and its strategy, zero3", "replay uncut --step 3 --sharding fsdp2"),

    ("verify-every compares pieces of a step, and .* cuts it into none; take fsdp2:pieces=V", FLAGS + "--verify-every 1"),
    ("verify-every -1 must be at least 0", PIECES + "--verify-every=-1"),
    ("cuda-graphs replays one step, and --verify-every makes steps differ", PIECES + "--verify-every 1 --cuda-graphs on"),
    ("digests no/where: cannot be written: No such file", FLAGS + "--digests no/where"),
    ("digests pieces.jsonl: a run of 4 pieces a step, behind one of 8; give each run a file", TWO + "--digests pieces.jsonl"),
    ("metrics and --digests both write one.jsonl", FLAGS + "--digests one.jsonl --metrics one.jsonl"),
])
def test_refused(tessera, pattern, command):
    before = contents("runs")
    tessera.refuses(pattern, command)
    assert contents("runs") == before

# SPDX-License-Identifier: Apache-2.0
"""Digests over MPI are those over threads; replay under mpirun, whose ranks write tensors together, and diff of those."""
import glob
import os

from support.files import copied, digests, fresh, same, write

TEXT_BYTES = 560
TRAIN = "train --data text.txt --model tiny --layers 2 --seq-len 16 --threads 1 --batch-size 8 --steps 4 --precision fp32"


def test_digests_over_mpi_are_those_over_threads(program):
    program(TRAIN, "--sharding fsdp2:pieces=4 --comm threads:2 --digests run.jsonl --checkpoint-dir runs --checkpoint-every 2")
    for windows in ["true", "false"]:
        program.under("mpirun --oversubscribe -np 3")(
            TRAIN, "--sharding zero3:pieces=4 --verify-every 2 --digests", fresh("mpi.jsonl"), f"--shared-windows={windows}")
        assert digests("run.jsonl") == digests("mpi.jsonl") != []


def test_replay_over_mpi_writes_the_same_tensors(program):
    program.under("mpirun --oversubscribe -np 3")("replay runs --step 3 --against run.jsonl --tensors a").prints(
        "^step 3 of runs on 3 ranks, from runs/step-00000002: ", "^step 3 is the same ")
    program("replay runs --step 3 --tensors b")
    program("diff a b")
    files = [os.path.basename(path) for path in glob.glob("a/*.safetensors")]
    assert len(files) == 5
    for file in files:
        same(f"a/{file}", f"b/{file}")


def test_what_all_ranks_would_report_is_reported_once(program):
    ranks = program.under("mpirun --oversubscribe -np 3")
    assert ranks("replay absent --step 3", status=2).err.count("absent: no such folder") == 1
    write(copied("runs", "torn") + "/step-00000004/trainer.json", "{\n")
    assert ranks("replay torn --step 3 --against run.jsonl").err.count("skipping torn/step-00000004") == 1

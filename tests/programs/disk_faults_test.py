# SPDX-License-Identifier: Apache-2.0
"""System calls that fail, stall or are partial while a run saves: TESSERA_FAULTS is the library that makes them do so.
tests/long/faults_test.py makes each of them fail in turn."""
import os
import re

import pytest

from support.files import copied, listing, same
from support.program import faulty

TRAIN = ("train --data text.txt --model tiny --seq-len 16 --precision fp32 --batch-size 4 --threads 1 --comm threads:2 "
         "--lr-schedule constant")
SAVE = f"{TRAIN} --steps 3 --resume good --checkpoint-dir runs"


@pytest.fixture(scope="module", autouse=True)
def good(program):
    """Checkpoints of two steps, `good`, and a copy, `runs`."""
    program(TRAIN, "--steps 2 --checkpoint-dir good --checkpoint-every 1 --metrics whole.jsonl")
    copied("good", "runs")


@pytest.mark.parametrize("k", [1, 2, 3])  # renames: one finds the old folder, one moves it away, one is of the new folder
def test_a_file_system_that_cannot_exchange_names_loses_nothing_when_killed_between_two_renames(program, k):
    copied("good", "runs")
    again = f"{TRAIN} --steps 2 --resume runs/step-00000001 --checkpoint-dir runs"
    faulty(program, "runs", "exchange:*:EINVAL")(again)
    assert sorted(os.listdir("runs")) == sorted(os.listdir("good"))
    faulty(program, "runs", f"rename:{k}:kill", also="exchange:*:EINVAL")(again, status=-9)
    program(TRAIN, "--steps 3 --checkpoint-dir runs --resume auto").prints("^resumed from runs/step-00000002(.replaced)?: step 2,")
    assert not [path for path in listing("runs") if re.search(r"\.tmp[^/]*$|\.replaced$|/run\.lock$", path)]


def test_a_write_of_no_byte_ends_the_run_and_partial_writes_and_reads_do_no_harm(program):
    copied("good", "runs")
    faulty(program, "runs", "write:9:zero").refuses("cannot be written: the system takes none of its bytes", SAVE, limit=20)
    faulty(program, "runs", "write:*:short")(SAVE)
    faulty(program, "runs", "read:*:short")(TRAIN, "--steps 3 --resume runs/step-00000002 --checkpoint-dir again")
    for file in ["config.json", "model.safetensors", "optimizer.safetensors", "trainer.json", "manifest.json"]:
        same(f"runs/step-00000003/{file}", f"again/step-00000003/{file}")


def test_the_deadline_of_a_slow_disk_is_not_that_of_collectives(program):
    slow = faulty(program, "runs", "sync:2:slow")  # by 6 s
    slow(SAVE, "--deadline 5")
    ended = slow(SAVE, "--disk-deadline 3", status=None)
    ended.warns(r"saving to --checkpoint-dir runs \(--disk-deadline\) took longer than 3 s: is its disk slow")
    assert ended.status
    program(TRAIN, "--steps 3 --resume runs")
    slow = faulty(program, "runs", "read:1:slow")
    read = "eval --model runs/step-00000003 --data text.txt --seq-len 16 --precision fp32 --threads 1 --comm threads:2 --windows 4"
    slow(read, "--deadline 2")
    ended = slow(read, "--disk-deadline 2", status=None)
    ended.warns(r"reading .* \(--disk-deadline\) took longer than 2 s: is its disk slow")
    assert ended.status


def test_a_file_system_without_locks_still_refuses_a_second_run_while_the_first_lives(program):
    without = faulty(program, "runs_without", "lock:*:ENOLCK")
    save = f"{TRAIN} --resume auto --checkpoint-dir " + copied("good", "runs_without")
    with without.train(save, "--steps 1000000 --log-every 1000000") as first:
        writer = f"process {first.process.pid} on "
        without.refuses(f"checkpoint-dir runs_without: another run writes there: {writer}", save, "--steps 3", limit=20)
        first.send("KILL")
        first.ends(-9)
    without(save, "--steps 3", limit=20).warns(f"run.lock was left by {writer}.* its lock is taken over")

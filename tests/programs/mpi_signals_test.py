# SPDX-License-Identifier: Apache-2.0
"""Signals over MPI: what one rank alone is sent, all ranks obey after the same step."""
import os
import shutil
import signal

import pytest

from support.files import fresh, latest, lines_with, steps
from support.program import gone, job

TRAIN = ("train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1 --lr-schedule constant"
         " --log-every 1000000 --batch-size 4 --checkpoint-dir saved --steps")


def started(program):
    fresh("saved")
    return job(program, 2, TRAIN, "100000 --metrics", fresh("metrics.jsonl"))


@pytest.mark.parametrize("rank", [0, 1])
def test_signals_to_one_rank_alone(program, rank):
    with started(program) as (launcher, ranks):
        launcher.makes_steps()
        os.kill(ranks[rank], signal.SIGUSR1)
        first = launcher.until(lambda: latest("saved"), "a checkpoint")
        os.kill(ranks[rank], signal.SIGTERM)
        launcher.ends(143).prints("^SIGTERM: ended after step [0-9]+: saved/step-")
        assert latest("saved") != first
        for pid in ranks.values():
            gone(pid)


def test_the_launcher_forwards_sigterm_and_the_run_resumes_bit_identically(program):
    with started(program) as (launcher, _):
        launcher.makes_steps().send("TERM")
        ended = launcher.ends(1).prints("^SIGTERM: ended after step [0-9]+: saved/step-")  # Open MPI's own status then
    answer = "saves after this step; once more ends without saving; the launcher may end it sooner$"
    assert len(lines_with(answer, ended.err)) == 1, ended
    last = int(latest("saved").removeprefix("step-"))
    shutil.copytree("saved", "before")
    two = program.under("mpirun --oversubscribe -np 2")
    two(TRAIN, f"{last + 3} --resume before --metrics rest.jsonl")
    fresh("saved")
    two(TRAIN, f"{last + 3} --metrics whole.jsonl")
    assert steps("whole.jsonl", last + 1) == steps("rest.jsonl") != []

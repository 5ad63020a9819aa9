# SPDX-License-Identifier: Apache-2.0
"""A rank is killed or stopped, or Ctrl-C: all end within 30 s and report where they waited. Whole checkpoints stay."""
import contextlib
import os
import signal

import pytest

from support.files import fresh, latest
from support.program import gone, job

DATA = "--data text.txt --seq-len 16"
DEADLINES = "--deadline 5 --disk-deadline 5"  # whether the ranks compute or save when one of them is lost


@contextlib.contextmanager
def saving(program, count, flags=""):
    """A long run that has saved a checkpoint."""
    with job(program, count, "train --model tiny --precision fp32 --steps 100000000 --batch-size 12", DATA, flags,
             "--log-every 1000000 --checkpoint-every 10 --checkpoint-dir", fresh("checkpoints")) as (launcher, ranks):
        launcher.until(lambda: latest("checkpoints"), "a checkpoint")
        yield launcher, ranks


def ends(program, launcher, ranks, status=None):
    """The job ends within 30 s, no process of it stays, a whole checkpoint does."""
    ended = launcher.ends(status)
    assert ended.status != 0, ended
    for pid in ranks.values():
        gone(pid)
    program("eval --model", f"checkpoints/{latest('checkpoints')}", DATA)
    return ended


@pytest.mark.parametrize("rank, sent, status, pattern", [
    (1, signal.SIGKILL, None, "rank [02]: ended by its launcher .*waited in [a-z_]+"),
    (2, signal.SIGSTOP, 3, r"(^tessera: |is its disk slow, or gone\? )rank [01], [a-z_]+ of [a-z -]+.*waited 5\.0[0-9]* s for "
     r".*rank 2 \(has [a-z, ]*; host "),
])
def test_of_a_killed_or_stopped_rank_the_others_report_in_which_collective_they_waited(program, rank, sent, status, pattern):
    with saving(program, 3, DEADLINES) as (launcher, ranks):
        os.kill(ranks[rank], sent)
        ends(program, launcher, ranks, status).warns(pattern)


def test_ctrl_c(program):
    with saving(program, 2) as (launcher, ranks):
        launcher.send("INT")
        ends(program, launcher, ranks)

# SPDX-License-Identifier: Apache-2.0
"""A run that saves at every step is killed at a random moment, again and again, over threads and over MPI: the newest
complete checkpoint loads, the next 10 steps are identical to those of the uninterrupted run, no leftovers pile up.

TESSERA_SWEEP=sample: a few kills; TESSERA_KILLS=N: of each kind (100); TESSERA_SEED=N: of the moments (1)."""
import contextlib
import os
import pathlib
import random
import re
import signal
import time

import pytest

from support.files import fresh, steps, write
from support.program import NARROW, WHOLE, gone, ranks_of

KILLS = int(os.environ.get("TESSERA_KILLS", 100)) if WHOLE else 3
LENGTH = 3000 if WHOLE else 400
FLAGS = (f"train --data text.txt --model tiny --layers 1 {NARROW} --precision fp32 --batch-size 4 --threads 1"
         " --lr-schedule constant --log-every 100 --comm")


def kill(launched, comm):
    """A run is killed soon after it has saved a checkpoint."""
    begin = write("begin", "").stat().st_mtime_ns
    latest, ranks = pathlib.Path("killed/latest"), []
    with launched.start(FLAGS, comm, "--steps 1000000 --checkpoint-dir killed --checkpoint-every 1 --keep 3",
                        "--resume auto") as run:
        try:
            run.until(lambda: latest.exists() and latest.stat().st_mtime_ns > begin, "a checkpoint", 120)
            ranks = ranks_of(run.process.pid, launched.path).values()
            time.sleep(random.random() * 0.4)
        finally:
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError):  # its launcher may have ended it
                    os.kill(pid, signal.SIGKILL)
    for pid in ranks:  # the children of a killed launcher end a little later
        gone(pid)


@pytest.mark.parametrize("comm, launcher", [
    ("threads:2", ""), ("mpi", "mpirun --oversubscribe -np 2")][:2 if WHOLE else 1])
def test_the_newest_checkpoint_resumes_identically_after_each_kill(program, comm, launcher):
    random.seed(int(os.environ.get("TESSERA_SEED", 1)))
    launched = program.under(launcher)
    launched(FLAGS, comm, f"--steps {LENGTH} --metrics", fresh("whole.jsonl"), limit=600)
    fresh("killed")
    for _ in range(KILLS):
        kill(launched, comm)
        saved = sorted(name for name in os.listdir("killed") if re.fullmatch("step-.{8}", name))
        others = sorted(set(os.listdir("killed")) - set(saved))
        assert len(others) <= 5, others  # latest, the lock, a folder being written, one being removed, a new latest
        assert len(saved) <= 5, saved  # the three newest, the one resumed from, one committed just before the kill
        step = int(saved[-1].removeprefix("step-"))
        launched(FLAGS, comm, f"--steps {step + 10} --resume killed --metrics", fresh("again.jsonl")).prints(
            f"resumed from killed/{saved[-1]}:")
        assert steps("again.jsonl") == steps("whole.jsonl", step + 1)[:10]
        if step >= LENGTH - 200:
            fresh("killed")
    print(f"{comm}: {KILLS} kills; the newest checkpoint resumed identically after each; at the end: {others + saved}")

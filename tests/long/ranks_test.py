# SPDX-License-Identifier: Apache-2.0
"""A rank of three is killed (SIGKILL), stopped (SIGSTOP) or slowed (stopped, and continued before the deadline) in each
phase of a run over MPI: the others end in time and report who was missing, where, in which collective; a slowed rank
changes nothing. No process stays.

TESSERA_SWEEP=sample: some of them; TESSERA_REPEATS=N: of each case (5)."""
import contextlib
import os
import signal
import time

import pytest

from support.files import fresh, read
from support.program import WHOLE, gone, ranks_of, until

# The second is of ranks that wait for one which saves or opens: a slow disk is not a lost rank.
TEXT_BYTES = 20000
DEADLINES = "--deadline 10 --disk-deadline 20"
TRAIN = ("train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1 --batch-size 12 --steps 12"
         " --validation-fraction 0.5 --validation-windows 0 --validation-every 4 --checkpoint-every 2"
         " --checkpoint-dir saved --metrics metrics.jsonl " + DEADLINES)
REPEATS = int(os.environ.get("TESSERA_REPEATS", 5)) if WHOLE else 1
PHASES = {"open": lambda: True, "first": lambda: has("start"), "later": lambda: has('"loss"', 3),
          "validation": lambda: has('"loss"', 4), "save": lambda: os.path.exists("saved"),
          "end": lambda: has("summary") or has('"loss"', 11)}


def has(word, count=1):
    return os.path.exists("metrics.jsonl") and read("metrics.jsonl").count(word) >= count


def send(pid, name):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.Signals[f"SIG{name}"])


@pytest.mark.parametrize("repeat", range(1, REPEATS + 1))
@pytest.mark.parametrize("name", ["KILL", "STOP", "SLOW"])
@pytest.mark.parametrize("phase", PHASES if WHOLE else ["end"])
def test_a_lost_rank_is_reported_and_a_slow_one_changes_nothing(program, phase, name, repeat):
    fresh("saved"), fresh("metrics.jsonl")
    rank, ranks = repeat % 3, {}
    with program.under("mpirun --oversubscribe -np 3").start(TRAIN) as run:
        def running():
            found = ranks_of(run.process.pid, program.path)
            ranks.update(found)
            return found

        def ended():
            # A rank that is stopped after its last call keeps nobody waiting who could report it.
            if name == "STOP" and has("summary") and running().keys() == {rank}:
                send(ranks[rank], "CONT")
            return run.process.poll() is not None

        try:
            until(lambda: ended() or len(running()) == 3 and PHASES[phase](), phase, 120)
            if rank in ranks:
                send(ranks[rank], "STOP" if name == "SLOW" else name)
                if name == "SLOW":
                    time.sleep(1.5)
                    send(ranks[rank], "CONT")
            until(ended, f"the end after SIG{name} of rank {rank}", 90)
            for pid in ranks.values():
                gone(pid)
        except BaseException:
            for pid in ranks.values():
                send(pid, "KILL")
            raise
        output = run.output()
    if output.status == 0:
        assert has("summary"), str(output)
    else:
        assert name != "SLOW", str(output)
        output.warns(rf"rank {rank} (with PID [0-9]+ )?(on node|\(has)|waited [0-9.]+ s for .*rank {rank}"
                     "|ended by its launcher|MPI_[A-Za-z_]+, waited")
    if os.path.exists("saved/latest"):
        program("eval --model", f"saved/{read('saved/latest').strip()}",
                "--data text.txt --seq-len 16 --precision fp32 --windows 4")
    print(f"SIG{name} of rank {rank}, {phase}: status {output.status}")

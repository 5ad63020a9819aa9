# SPDX-License-Identifier: Apache-2.0
"""Ranks of `tessera --comm nccl` that are processes, on the fakes of CUDA and NCCL in tests_cuda_host_program.
What rank R printed is in R.out and R.err, what the fakes report of it in R.report (machine.cpp)."""
import os
import pathlib
import re
import socket
import subprocess

from support.files import contains, fresh, lacks, read
from support.program import tail, until

LIMIT = float(os.environ.get("TESSERA_TEST_LIMIT", 300))  # seconds of one run, whose kernels are emulated


class Ranks:
    """A command on so many ranks, as torchrun starts them, killed where its `with` ends. `planted` has VARIABLE=VALUE
    of their environment (an empty one counts as none) and --flag=VALUE; with RANK: before it, of one rank."""

    def __init__(self, program, ranks, *arguments, planted=()):
        os.mkdir(fresh("doubles"))
        self.processes = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(ranks):
            mine = [one.removeprefix(f"{rank}:") for one in planted if re.match(f"{rank}:|[^0-9]", one)]
            variables = [f"RANK={rank}", f"WORLD_SIZE={ranks}", f"LOCAL_RANK={rank}", f"LOCAL_WORLD_SIZE={ranks}",
                         "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", f"TESSERA_DOUBLE_GPUS={ranks}",
                         f"TESSERA_DOUBLE_FOLDER={os.path.abspath('doubles')}",
                         f"TESSERA_DOUBLE_REPORT={os.path.abspath(fresh(f'{rank}.report'))}"]
            variables += [one for one in mine if not one.startswith("--")]
            command = program.command(*arguments, [one for one in mine if one.startswith("--")])
            with open(f"{rank}.out", "wb") as out, open(f"{rank}.err", "wb") as err:
                self.processes.append(subprocess.Popen(
                    ["env", *variables, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=err))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def __str__(self):
        paths = [f"{rank}.{name}" for rank in range(len(self.processes)) for name in ("out", "err")]
        return "\n".join(f"--- {path}\n{tail(read(path))}" for path in paths)

    def running(self):
        return [process for process in self.processes if process.poll() is None]

    def makes_steps(self, metrics):
        """Waits until the training has made steps, which it writes to metrics."""
        def made():
            assert self.processes[0].poll() is None, f"ended by itself\n{self}"
            return os.path.exists(metrics) and read(metrics).count('"loss"') >= 4
        until(made, self, LIMIT)

    def statuses(self):
        """Those of a shell, when all have ended and broken no rule of CUDA or NCCL."""
        until(lambda: not self.running(), self, LIMIT)
        for rank in range(len(self.processes)):
            lacks(f"{rank}.err", "^double:")
        statuses = [process.returncode for process in self.processes]
        return [128 - status if status < 0 else status for status in statuses]

    def gives_back(self):
        """What ranks do not lose by a signal goes back to CUDA and NCCL."""
        for path in pathlib.Path().glob("[0-9].report"):
            lacks(path, "^left")

    def ends(self, statuses, *patterns):
        """They end with these, and if they fail with a line on stderr; the last pattern is also that of later ranks."""
        assert (ended := self.statuses()) == statuses, f"{ended} instead of {statuses}\n{self}"
        for rank, status in enumerate(statuses):
            if 0 < status < 128:  # otherwise it was killed, or saved and reported so on stdout
                lines = [line for line in read(f"{rank}.err").splitlines() if ": warning: " not in line]  # of few cores
                assert len(lines) == 1, str(self)
                contains(f"{rank}.err", patterns[min(rank, len(patterns) - 1)])
        self.gives_back()


def on_ranks(program, ranks, *arguments, planted=()):
    """All end with status 0, and give everything back."""
    with Ranks(program, ranks, *arguments, planted=planted) as job:
        job.ends([0] * ranks)


def reported(rank, key):
    """The number after a key of a rank's report; 0 without one."""
    found = re.search(f"^{key} ([0-9]+)$", read(f"{rank}.report"), re.M)
    return int(found[1]) if found else 0

# SPDX-License-Identifier: Apache-2.0
"""Every system call on checkpoints fails once: the k-th open, read, write, ... of a run that resumes and saves, for
each k, over threads and on each rank of MPI. The run ends with a message, or as if nothing had happened; the older
checkpoints are untouched; the next run resumes, saves, and writes what a run without faults writes.

TESSERA_FAULTS: the library of tests/support/faults.cpp. TESSERA_SWEEP=sample: some of the calls."""
import os
import pathlib

import pytest

from support.files import copied, fresh, read
from support.program import NARROW, WHOLE

TRAIN = (f"train --data text.txt --model tiny --layers 1 {NARROW} --precision fp32 --batch-size 4 --threads 1"
         " --lr-schedule constant --log-every 100 --comm")
AFTER = "--steps 3 --resume runs --checkpoint-dir runs"
ERRORS = {  # of each call that a file system may give
    "open": "EIO EACCES EINTR", "read": "EIO EINTR short", "write": "EIO ENOSPC EINTR short zero",
    "reserve": "ENOSPC EINTR", "sync": "EIO EINTR", "close": "EIO EINTR", "rename": "EIO", "exchange": "EINVAL EIO",
    "mkdir": "EIO ENOSPC", "lock": "ENOLCK EINTR"}


@pytest.fixture(scope="module")
def tessera(program):
    """The program, next to the checkpoints of two steps in good, and of one step more in whole."""
    program(TRAIN, "threads:2 --steps 2 --checkpoint-dir good --checkpoint-every 1")
    copied("good", "whole")
    program(TRAIN, "threads:2 --steps 3 --resume whole --checkpoint-dir whole")
    return program


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in pathlib.Path(folder).rglob("*")}


def resumes(tessera, comm, rank, **variables):
    """A run under faults."""
    copied("good", "runs")
    if comm == "mpi":
        tessera = tessera.under("mpirun --oversubscribe -np 2 -x LD_PRELOAD")
    return tessera(TRAIN, comm, AFTER, status=None, limit=60, env=os.environ | variables | {
        "LD_PRELOAD": os.environ["TESSERA_FAULTS"], "TESSERA_FAULT_UNDER": "runs", "TESSERA_FAULT_RANK": str(rank)})


def refused(tessera, comm, rank, call, k, error):
    """Whether the run was refused when the k-th call failed."""
    case = (comm, rank, call, k, error)
    ended = resumes(tessera, comm, rank, TESSERA_FAULT=f"{call}:{k}:{error}")
    if ended.status != 0:
        assert 0 < ended.status < 128, (case, str(ended))
        ended.warns("^(tessera|rank [01]): .*runs").omits("Success")
    for step in ("step-00000001", "step-00000002"):
        assert contents(f"good/{step}") == contents(f"runs/{step}"), f"{case}: an older checkpoint changed"
    tessera(TRAIN, "threads:2", AFTER, limit=60)
    last = "step-00000003"
    assert contents(f"whole/{last}") == contents(f"runs/{last}"), f"{case}: the next run wrote something else"
    assert sorted(os.listdir("runs")) == sorted(os.listdir("whole")), case
    return ended.status != 0


@pytest.mark.parametrize("comm, rank", [("threads:2", ""), ("mpi", 0), ("mpi", 1)][:3 if WHOLE else 1])
def test_each_call_fails(tessera, comm, rank):
    counted = resumes(tessera, comm, rank, TESSERA_FAULT_COUNT=os.path.abspath(fresh("counts")))
    assert counted.status == 0, f"without any fault: {counted}"
    counts = {call: int(count) for call, count in map(str.split, read("counts").splitlines())}
    cases = []
    for call, count in counts.items():
        errors, ks = ERRORS[call].split(), range(1, count + 1)
        if not WHOLE:
            errors, ks = errors[:1], ks[count // 2:][:1]
        cases += [(call, k, error) for error in errors for k in ks]
    refusals = sum(refused(tessera, comm, rank, *case) for case in cases)
    print(f"{comm} {rank}: {len(cases)} cases, {refusals} of them refused with a message; calls: {counts}")
    assert refusals > 0, "no fault was seen"


@pytest.mark.skipif(WHOLE, reason="the whole sweep has it")
def test_a_write_of_a_rank_fails(tessera):
    refused(tessera, "mpi", 1, "write", 20, "EIO")

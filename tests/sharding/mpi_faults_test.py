# SPDX-License-Identifier: Apache-2.0
"""In each phase of a step one rank of three is killed or stopped, with shared windows and without. The others end
within their deadline of 1 s and report where; no process and no shared memory stays. The program is tests_mpi."""
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess

import pytest

from support.program import gone


def processes(folder, path):
    """Those of the job in this folder."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "cwd") == str(folder) and os.readlink(process / "exe") == str(path):
                yield int(process.name)


def shared_memory():
    """Without files of tests, of Open MPI, whose other jobs begin and end, and of LLVM's OpenMP."""
    others = "tessera-test-|vader_segment[.]|__KMP_REGISTERED_LIB_"
    return {name for name in os.listdir("/dev/shm") if not re.match(others, name)}


@pytest.fixture(scope="module", autouse=True)
def no_shared_memory_stays():
    before = shared_memory()
    yield
    assert shared_memory() == before


def ends(program, phase, without, number, pattern):
    """A job whose rank 1 gets the signal ends, and a line matches. `without`: ranks without windows."""
    folder = pathlib.Path(f"{phase}.{number}.{without}").absolute()
    folder.mkdir()
    variables = {"TESSERA_FAULT": f"{phase} {number}", "TESSERA_TEST_NO_WINDOWS": without}
    apart = "--mca orte_tmpdir_base", folder  # two jobs that share it may fail to make it
    try:
        ended = program.under("mpirun --oversubscribe -np 3", *apart)(
            "--gtest_also_run_disabled_tests --gtest_catch_exceptions=0 --gtest_filter=MpiFaults.*",
            status=None, limit=20, cwd=folder, env=os.environ | variables, stderr=subprocess.STDOUT)
        assert ended.status != 0, ended
        ended.prints(pattern)
        for pid in processes(folder, program.path):
            gone(pid)
    finally:
        for pid in processes(folder, program.path):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("without", ["", "0 1 2"])
@pytest.mark.parametrize("phase", ["gather", "forward", "backward", "reduce", "optimizer", "checkpoint"])
def test_a_rank_that_is_killed_or_stopped_in_a_phase(program, phase, without):
    killed = 9, "signal 9|ended by its launcher"
    # For what rank 1 sends, or for its taking what was sent: which of the waits ends first depends on the machine.
    stopped = 19, r"^tessera: rank [02], .*waited 1\.[0-9]+ s for .*rank 1 \(has"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda end: ends(program, phase, without, *end), [killed, stopped]))

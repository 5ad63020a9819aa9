# SPDX-License-Identifier: Apache-2.0
"""Ranks with different arguments, errors of all ranks and of one: every process ends with status 2 and a reason."""
import pytest

from support.files import GOLDEN, lines_with, read, write
from support.program import Program

TRAIN = "train --data text.txt --model tiny --seq-len 16 --precision fp32"
EVAL = f"eval --data text.txt --model '{GOLDEN}/llama-gqa'"
SLURM = "env SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4 SLURM_PROCID={0}"
TORCHRUN = "env WORLD_SIZE=4 RANK={0} LOCAL_RANK={0}"


@pytest.fixture(scope="module", autouse=True)
def data(program):
    written = read("text.txt")
    # The byte is in a window that one rank alone draws.
    write("one-byte.txt", (written[:85] + "\310" + written[86:]).encode("latin-1"))


@pytest.mark.parametrize("pattern, command, one, other", [
    ("different arguments: rank 0 has 'seed = 1', rank 1 has 'seed = 2'", TRAIN, "--seed 1", "--seed 2"),
    ("rank 0 has 'sharding = \"fsdp2\"', rank 1 has 'sharding = \"zero3\"'", TRAIN, "--comm mpi", "--sharding zero3"),
    ("comm threads:1 in each of mpirun's 2 processes", TRAIN, "--comm mpi", "--comm threads:1"),
    ("unknown flag --seeed; did you mean --seed", TRAIN, "--seed 1", "--seeed 1"),
    ("different arguments: rank 0 has 'seq-len = 16', rank 1 has 'seq-len = 17'", EVAL, "--seq-len 16", "--seq-len 17"),
])
def test_different_arguments(program, pattern, command, one, other):
    steps = "--steps 3" if command == TRAIN else ""
    Program("mpirun").refuses(pattern, "--oversubscribe -np 1", program.command(command, steps, one),
                              ": -np 1", program.command(command, steps, other), lines=None)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("pattern, launcher, flags", [
    (r"srun started 4 processes \(PMI_SIZE, SLURM_STEP_NUM_TASKS, SLURM_NTASKS, PMI_RANK, SLURM_PROCID\), and MPI sees one: .*; "
     "start them with mpirun, or with srun --mpi=pmix", f"{SLURM} PMI_RANK={{0}} PMI_SIZE=4", "--comm mpi"),
    (r"comm threads:1 in each of srun.s 4 processes \(SLURM_STEP_NUM_TASKS, SLURM_NTASKS, SLURM_PROCID\) would be as many runs, "
     "each alone", SLURM, ""),
    (r"comm threads:2 in each of torchrun.s 4 processes \(WORLD_SIZE\) would be as many runs, each alone", TORCHRUN, "--comm threads:2"),
])
def test_a_launcher_of_several_processes_of_which_mpi_or_threads_see_one(program, pattern, launcher, flags, rank):
    program.under(launcher.format(rank)).refuses(pattern, TRAIN, "--steps 1", flags)


def test_any_process_may_plan_and_a_batch_script_may_train(program):
    for plan in ["--dry-run", "--print-schedule"]:
        program.under(TORCHRUN.format(1))(TRAIN, "--steps 1", plan)
    program.under("env SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_JOB_NUM_NODES=1")(TRAIN, "--steps 1")


@pytest.mark.parametrize("ranks, pattern, once, flags", [
    (2, "^tessera: unknown flag --nonsense; see --help", "^tessera: ", "--nonsense"),  # before the ranks know each other
    (2, "^tessera: --keep is for checkpoints, and none are written", "^tessera: ", "--keep 1"),
    (3, "^tessera: data: nowhere: no such file", "nowhere", "--batch-size 6 --data nowhere"),
    (2, "data: .* holds byte 200, which is not below the model.s vocabulary of 128", "holds byte",
     "--data one-byte.txt --vocab 128 --batch-size 2 --validation-fraction 0 --steps 500 --log-every 1000"),  # no rank computes on
    (2, "^tessera: rank 0: --metrics /dev/full: cannot be written", None, "--metrics /dev/full"),
    (2, "rank 0: .*checkpoint-dir text.txt/c: cannot be written", None, "--checkpoint-dir text.txt/c"),
    (2, "step [2-5]: .*stopped before any weight was touched", "stopped before",
     "--steps 5 --lr 1000 --weight-decay 1000 --clip 0 --checkpoint-dir checkpoints"),
])
def test_an_error_of_all_ranks_is_reported_once_and_one_of_a_rank_ends_the_others(program, ranks, pattern, once, flags):
    ended = program.under("mpirun --oversubscribe -np", ranks).refuses(
        pattern, TRAIN, flags, status=3 if "stopped" in pattern else 2, lines=None)
    assert once is None or len(lines_with(once, ended.err)) == 1, f"reported more than once: {ended}"

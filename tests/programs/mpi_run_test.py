# SPDX-License-Identifier: Apache-2.0
"""Runs under mpirun: the golden losses, with shared windows and without, exactly the dry run's peak, plain lines in a
file, checkpoints that a run of threads resumes."""
import json
import os
import re
import shutil

import pytest

from support.files import GOLDEN, TESTS, close, fresh, lines_with, steps, summary
from support.program import Program, as_printed, instruction_sets, peak, run

CORES = sorted(os.sched_getaffinity(0))
TINY = "train --model tiny --data text.txt"
MODEL = GOLDEN / "llama-gqa"


def mpi(program, ranks):
    return program.under("mpirun --oversubscribe -np", ranks)


def metrics(program, *arguments, **options):
    """The steps of a run."""
    program(*arguments, "--metrics", fresh("metrics.jsonl"), **options)
    return steps("metrics.jsonl")


@pytest.mark.skipif("avx2" not in instruction_sets(), reason="a processor with one instruction set")
def test_ranks_on_unlike_processors_compute_as_the_lesser_one(program):
    flags = f"{TINY} --seq-len 64 --steps 3 --batch-size 4 --precision bf16 --threads 1"
    unlike = program.command(flags, "--metrics unlike.jsonl")
    run("mpirun --oversubscribe -np 1 env TESSERA_ISA=baseline", unlike, ": -np 1", unlike).warns(
        "the ranks' processors have different instruction sets; all use baseline")
    Program("mpirun").refuses(
        "ranks were started with different environments.*TESSERA_BF16_MATMUL",
        "--oversubscribe -np 1 env TESSERA_BF16_MATMUL=float", unlike, ": -np 1", unlike, lines=None)
    lesser = os.environ | {"TESSERA_ISA": "baseline"}
    assert steps("unlike.jsonl") == metrics(mpi(program, 2), flags, env=lesser) != []


@pytest.mark.skipif(len(CORES) < 2, reason="a processor of one core")
def test_ranks_that_a_launcher_binds_to_cores_of_their_own_do_not_crowd_them_and_two_on_one_core_do(program):
    bound = program.command(TINY, "--seq-len 64 --steps 1 --batch-size 4 --precision fp32")
    for second in CORES[1], CORES[0]:
        ended = run(f"mpirun --oversubscribe --bind-to none -np 1 taskset -c {CORES[0]}", bound,
                    f": -np 1 taskset -c {second}", bound)
        ended.prints("^stack .*, 2 ranks x 1 thread, ")
        assert second == CORES[0] or "warning" not in ended.err, ended
    assert len(lines_with("^tessera: warning: 2 ranks have 1 thread each and may run on 1 core, .* --bind-to none, or "
                          "--map-by slot:PE=1$", ended.err)) == 1, ended


def test_rank_0_makes_the_tokens_of_all(program):
    flags = (f"{TINY} --vocab 1201 --seq-len 64 --steps 2 --batch-size 4 --precision fp32 --threads 1 --end-token none",
             "--tokenizer", TESTS / "text" / "tokenizers" / "smollm.json")
    assert metrics(mpi(program, 2), *flags) == metrics(program, *flags, "--comm threads:2") != []


@pytest.mark.parametrize("ranks, sharding", [(2, "fsdp2"), (3, "zero3"), (2, "replicated")])
def test_golden_losses_and_the_peak_of_the_dry_run(program, ranks, sharding):
    length = (os.path.getsize(MODEL / "text.bin") - 1) // 6
    data = f"--data '{MODEL}/text.bin' --seq-len {length} --precision fp32 --threads 1"
    one = (f"train --model '{MODEL}' {data} --batch-size 6 --validation-fraction 0 --steps 20 --lr 1e-3"
           " --lr-schedule constant --weight-decay 0.1 --clip 0")
    flags = f"{one} --sharding {sharding}"
    many = mpi(program, ranks)
    ended = as_printed(many, flags, "--metrics", fresh("many.jsonl"), "--checkpoint-dir", fresh("saved"))
    assert not re.search(r"[\r\033]", ended.out), ended
    ended.prints(rf"^stack +{sharding} mpi fp32 off, {ranks} ranks x 1 thread")
    close(steps("many.jsonl"), metrics(program, one), 1e-5)
    assert steps("many.jsonl") == metrics(program, flags, f"--comm threads:{ranks}")
    assert steps("many.jsonl") == metrics(many, flags, "--shared-windows=false")
    assert summary("many.jsonl")["peak_bytes"] == peak(program(flags, f"--comm mpi --dry-run --ranks {ranks}"))
    losses = [json.loads(runner("eval --model saved/step-00000020", data).out)["loss"] for runner in (many, program)]
    close(losses[:1], losses[1:], 1e-6)


def test_the_checkpoint_of_two_processes_resumes_in_one_and_in_two_and_a_plan_is_printed_once(program):
    flags = f"{TINY} --seq-len 16 --steps 6 --precision fp32 --threads 1"
    whole = metrics(mpi(program, 2), flags, "--checkpoint-every 3 --checkpoint-dir", fresh("saved"))
    shutil.rmtree("saved/step-00000006")
    assert metrics(program, flags, "--comm threads:2 --resume saved") == whole[3:] != []
    assert metrics(mpi(program, 2), flags, "--resume saved") == whole[3:]
    ended = mpi(program, 2)(flags, "--comm mpi --dry-run")
    assert len(lines_with(" 2 ranks, .*bytes of", ended.out)) == 1, ended


def test_processes_that_share_each_sequence_with_windows_and_without(program):
    flags = f"{TINY} --heads 4 --kv-heads 2 --seq-len 17 --batch-size 8 --threads 1 --precision fp32 --steps 3"
    apart = [step[:3] for step in metrics(program, flags, "--comm threads:2")]
    for windows in "true", "false":
        shared = metrics(mpi(program, 2), flags, f"--comm mpi --sequence ulysses:2:parts=2 --shared-windows={windows}")
        close([step[:3] for step in shared], apart, 1e-6)

# SPDX-License-Identifier: Apache-2.0
"""Four user-defined policies give the results of the built-in ones, bit-identical; policies of policies train as well.

The program is made of policies.cpp.
"""
import pytest
from support.files import losses, read, same, steps

TEXT_BYTES = 7800
FLAGS = "--data text.txt --model tiny --seq-len 16 --batch-size 8 --grad-accum 2 --threads 1"


@pytest.mark.parametrize("which, ranks, stack", [
    ("foreign", 2, "mine::Sharding mine::Ranks mine::Precision mine::Tiles"),
    ("imitated", 2, "fsdp2 threads:2 bf16 tokens:9"),
    ("wrapped", 2, "fsdp2:layout=flat:offload=optimizer threads:2 bf16:wire=bf16 off"),
    ("hybrid", 4, "hybrid:2:zero3 threads:4 bf16 tokens:9")])
def test_trains_and_resumes(program, which, ranks, stack):
    train = f"{which} {FLAGS} --ranks {ranks} --steps 6"
    program(train, f"--metrics {which}.jsonl --checkpoint-dir {which} --checkpoint-every 3")
    program(train, f"--metrics {which}-again.jsonl --checkpoint-dir {which}-again --resume {which}/step-00000003")
    assert f'"stack":"{stack}"' in read(f"{which}.jsonl")
    assert len(steps(f"{which}.jsonl")) == 6
    assert steps(f"{which}.jsonl")[3:] == steps(f"{which}-again.jsonl")
    same(f"{which}/step-00000006/model.safetensors", f"{which}-again/step-00000006/model.safetensors")


def test_user_defined_policies_do_what_they_imitate(program):
    assert steps("foreign.jsonl") == steps("imitated.jsonl")
    for file in ("model", "optimizer"):
        same(f"foreign/step-00000006/{file}.safetensors", f"imitated/step-00000006/{file}.safetensors")
    schedules = [program(which, FLAGS, "--ranks 2 --print-schedule").out for which in ("foreign", "imitated")]
    assert schedules[0] == schedules[1]
    plans = [program(which, FLAGS, "--ranks 2 --dry-run").out.splitlines() for which in ("foreign", "imitated")]
    peaks = [[line for line in plan if "peak" in line] for plan in plans]
    assert peaks[0] and peaks[0] == peaks[1]


@pytest.mark.parametrize("which", ["wrapped", "hybrid"])
def test_policies_of_policies_follow_the_plain_stack(which):
    made, plain = losses(f"{which}.jsonl"), losses("imitated.jsonl")
    assert all(abs(a - b) < 2e-2 * b for a, b in zip(made, plain)) and made[-1] < made[0], (made, plain)


def test_flags(program):
    program("foreign --help").prints("--ranks").omits("--(sharding|precision|tiling|comm) ")
    for flag in ("sharding", "precision", "tiling", "comm"):
        program.refuses(f"--{flag} is fixed by this program: ", "imitated", FLAGS, f"--{flag} fsdp2")
    for ranks in (0, -1, 2000):
        program.refuses(f"--ranks {ranks} must be at least 1 and at most 1024", "imitated", FLAGS, f"--ranks={ranks}")

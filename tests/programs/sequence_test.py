# SPDX-License-Identifier: Apache-2.0
"""--sequence: ranks that share each sequence train what ranks with whole ones do, in the memory that was planned."""
import pytest

from support.files import close, contains, digests, lacks, steps, summary
from support.program import has_stack, peak, trained

TRAIN = "train --data text.txt --model tiny --seq-len 17"
FLAGS = (f"{TRAIN} --heads 4 --kv-heads 2 --batch-size 8 --threads 1 --precision fp32 --validation-fraction 0.05 "
         "--steps 4")
SHARED = "--comm threads:2 --sequence ulysses:2"


def follows(one, other):
    """The losses and norms of two runs' steps, and their held-out losses, are close."""
    close(*([step[:3] for step in steps(f"{name}.jsonl")] for name in (one, other)), 1e-6)
    close(*([summary(f"{name}.jsonl")["validation_loss"]] for name in (one, other)), 1e-6)


def test_the_losses_are_those_of_whole_sequences(program):
    trained(program, "whole", FLAGS, "--comm threads:2")
    trained(program, "shared", FLAGS, SHARED)
    follows("shared", "whole")
    contains("shared.jsonl", '"ranks_per_sequence":2', r'"sequence":\{"all_to_all":')
    lacks("whole.jsonl", "all_to_all")
    trained(program, "groups", FLAGS, "--comm threads:4 --sequence ulysses:2:parts=2 --sharding hybrid:2:zero3",
            "--recompute --grad-accum 2")
    follows("groups", "whole")
    trained(program, "adapters", FLAGS, "--comm threads:2 --lora-rank 2 --lora-dropout 0.2")
    trained(program, "shared", FLAGS, SHARED, "--lora-rank 2 --lora-dropout 0.2")
    follows("shared", "adapters")
    program(FLAGS.replace("--steps 4", "--steps 5"), SHARED, "--checkpoint-dir on --resume whole").prints(
        "resumed: --sequence was whole, is ulysses:2")


@pytest.mark.parametrize("more", [
    "", "--recompute --offload inputs", "--recompute --offload inputs:0.5 --tiling tiles:3"])
def test_a_run_takes_the_bytes_of_its_plan(program, more):
    planned = peak(program(FLAGS, SHARED, "--dry-run --layers 4", more))
    trained(program, "planned", FLAGS, SHARED, "--layers 4", more)
    assert summary("planned.jsonl")["peak_bytes"] == planned


def test_pieces_give_bit_identical_results_on_any_number_of_groups(program):
    for name, comm in (("one", "--comm threads:2"), ("two", "--comm threads:4")):
        trained(program, name, FLAGS, comm, f"--sequence ulysses:2 --sharding fsdp2:pieces=4 --digests {name}.digests")
    assert len(steps("one.jsonl")) == 4 and len(digests("one.digests")) > 20
    assert steps("one.jsonl") == steps("two.jsonl")
    assert digests("one.digests") == digests("two.digests")


def test_a_sequence_of_millions_of_tokens_fits_on_eight_ranks(program):
    long = ("train --dry-run --model small --vocab 128256 --hidden 4096 --intermediate 14336 --layers 32 --heads 32 "
            "--kv-heads 8 --head-dim 128 --precision bf16 --threads 1 --batch-size 1 --sequence ulysses:8 --recompute "
            "--tiling budget:1GiB")
    planned = program(long, "--comm threads:8 --seq-len 5242880 --offload inputs").prints(
        "in host memory: 166[0-9]{9} bytes")
    assert peak(planned) <= 80 << 30
    if has_stack(program, "nccl"):  # whose ranks have a memory of their own
        program.refuses("this step does not fit: a rank needs .*; tessera plan --fit --cluster NAME searches", long,
                        "--seq-len 1048576 --memory 44GiB --comm nccl --ranks 8", lines=None).prints(
            r"would take 3[0-9.]+ GiB with --offload inputs:0\.[0-9]+ \([0-9.]+ GiB of host memory\)")


@pytest.mark.parametrize("pattern, flags", [
    ("6 heads of attention cannot be divided among 4 ranks .*; of 4 ranks 1 or 2 can share one",
     "--heads 6 --kv-heads 2 --comm threads:4 --batch-size 4 --sequence ulysses:4"),
    ("parts are of ranks that share a sequence; give ulysses:K with K above 1, or leave parts out",
     "--comm threads:2 --batch-size 4 --sequence ulysses:1:parts=4"),
    *((f"the 2 heads of each rank cannot be cut into {parts} parts; give 1 or 2",
       f"--heads 4 --kv-heads 2 --comm threads:2 --batch-size 4 --sequence ulysses:2:parts={parts}") for parts in (4, 2147483647)),
])
def test_errors(program, pattern, flags):
    program.refuses(pattern, TRAIN, flags)

# SPDX-License-Identifier: Apache-2.0
"""`tessera train --comm nccl`, every strategy on 1 to 8 processes, compared with the same program's run on the CPU:
losses, those of a golden folder, bit-identical steps by graphs, memory planned to the byte, checkpoints that resume
elsewhere.

TESSERA_SWEEP=sample: some of the strategies' runs."""
import json
import re

import pytest

from cuda_host.program.ranks import on_ranks, reported
from support.files import GOLDEN, close, contains, expected, fresh, losses, read, same, steps, summary
from support.program import NARROW, WHOLE, peak

FLAGS = f"train --data text.txt --layers {2 if WHOLE else 1} {NARROW} --batch-size 8 --lr 1e-2 --threads 1"
RUN = "--precision fp32 --lr-schedule constant"

# Strategy, precision, ranks, with graphs.
STACKS = [
    ("fsdp2", "fp32", 1, True), ("fsdp2:no-reshard", "bf16", 2, True), ("zero1", "fp32", 4, False),
    ("zero2", "fp32", 2, True), ("zero3", "bf16", 2, False), ("fsdp2:2", "bf16", 4, False),
    ("hybrid:2", "bf16", 4, False), ("hybrid:2:full", "bf16", 4, True),
    ("replicated", "bf16", 2, False), ("fsdp2", "bf16", 8, False)]
if WHOLE:
    STACKS = []
    for ranks in (1, 2, 4, 8):
        STACKS += [(strategy, precision, ranks, True) for precision in ("fp32", "bf16")
                   for strategy in ("fsdp2", "fsdp2:no-reshard", "zero1", "zero2", "zero3")]
        groups = ["fsdp2:2", "hybrid:2", "hybrid:2:full"] if ranks > 1 else []
        STACKS += [(strategy, "bf16", ranks, True) for strategy in ["replicated", *groups]]


def on_cpu(program, metrics, ranks, *flags):
    program(FLAGS, f"--comm threads:{ranks} --metrics", fresh(metrics), *flags)


def on_gpus(program, metrics, ranks, *flags):
    on_ranks(program, ranks, FLAGS, "--comm nccl --metrics", fresh(metrics), *flags)


def planned(program, ranks, *flags):
    return peak(program(FLAGS, f"--comm nccl --ranks {ranks} --dry-run", *flags))


@pytest.mark.parametrize("strategy, precision, ranks, graphs", STACKS)
def test_gpus_train_as_the_cpu_does(program, strategy, precision, ranks, graphs):
    stack = f"--sharding {strategy} --precision {precision}"
    on_cpu(program, "cpu.jsonl", ranks, stack, "--steps 4")
    on_gpus(program, "gpus.jsonl", ranks, stack, "--steps 4")
    gpus, cpu = steps("gpus.jsonl"), steps("cpu.jsonl")
    close([step[1] for step in gpus], [step[1] for step in cpu], 1e-5 if precision == "fp32" else 0.01)
    if precision == "fp32":
        close([step[2] for step in gpus], [step[2] for step in cpu], 1e-4)
    assert summary("gpus.jsonl")["peak_bytes"] == planned(program, ranks, stack)
    launches = 3 if ranks == 1 else 0  # with --cuda-graphs auto
    assert reported(0, "calls cudaGraphLaunch") == launches
    if graphs:
        on_gpus(program, "other.jsonl", ranks, stack, "--steps 4 --cuda-graphs", "off" if launches else "on")
        assert reported(0, "calls cudaGraphLaunch") == 3 - launches
        assert steps("other.jsonl") == gpus


@pytest.mark.parametrize("ranks, flags, line", [
    (1, "", "are graphs"),
    (1, "--cuda-graphs=false", "are queued: --cuda-graphs off"),
    (1, "--digests digests.jsonl", "are queued: --digests reads each step's tensors"),
    (1, "--document-separator 10", "are queued: --document-separator makes steps differ"),
    (1, "--trace trace.json", "are queued: --trace records host tasks"),
    (1, "--lora-rank 2 --lora-dropout 0.5", "are queued: the model draws random numbers"),
    (2, "", "are queued: several ranks"),
    (2, "--cuda-graphs=true", "are graphs"),
])
def test_the_start_reports_whether_steps_are_graphs(program, ranks, flags, line):
    on_gpus(program, "gpus.jsonl", ranks, flags, "--steps 3")
    contains("0.out", f"^steps {line}$")
    assert reported(0, "calls cudaGraphLaunch") == (2 if line == "are graphs" else 0)


@pytest.mark.parametrize("planted, flags, library, warns", [
    ("", "--precision fp32", "NCCL_LAUNCH_ORDER_IMPLICIT=1, NCCL_NVLS_ENABLE=0$", False),
    ("NCCL_NVLS_ENABLE=2", "--precision fp32", r"NCCL_NVLS_ENABLE=2 \(set by the user\)$", True),
    ("NCCL_NVLS_ENABLE=2", "--precision bf16:wire=bf16", "", False),
    ("", "--precision fp32 --reductions fast", "NCCL_LAUNCH_ORDER_IMPLICIT=1$", False)])
def test_the_run_records_settings_of_nccl(program, planted, flags, library, warns):
    on_ranks(program, 2, FLAGS, "--steps 1 --comm nccl --metrics", fresh("gpus.jsonl"), flags, planted=planted.split())
    assert re.search(library, json.loads(read("gpus.jsonl").splitlines()[0])["library"])
    assert ("NCCL_NVLS_ENABLE is not 0: NCCL may add floats" in read("0.err")) == warns
    assert "NVLS" not in read("1.err")


def test_losses_are_those_of_a_golden_folder(program):
    model, count = GOLDEN / "llama-gqa", 20 if WHOLE else 6
    data = model / "text.bin"
    on_ranks(program, 2, "train --comm nccl --model", model, "--data", data,
             f"--seq-len {(data.stat().st_size - 1) // 6} --batch-size 6 --steps {count} --validation-fraction 0",
             "--lr 1e-3 --lr-schedule constant --weight-decay 0.1 --clip 0",
             "--precision fp32 --threads 1 --sharding zero3 --tiling tiles:2 --cuda-graphs on --metrics found.jsonl")
    close(losses("found.jsonl"), expected(model, "adamw.losses")[0][:count], 1e-5)


def test_a_gpu_is_asked_for_no_more_than_is_planned(program):
    large = "--vocab 8000 --steps 1"  # the plan is more than what the rate of the matmul is measured in
    on_gpus(program, "gpus.jsonl", 2, large)
    took = [reported(rank, "peak") for rank in (0, 1)]
    assert 0 < max(took) <= planned(program, 2, large), took


def test_checkpoints_of_gpus_resume_on_the_cpu_and_the_other_way_round(program):
    on_gpus(program, "whole.jsonl", 2, RUN, "--steps 6 --checkpoint-dir gpus --checkpoint-every 3")
    on_gpus(program, "again.jsonl", 2, RUN, "--steps 6 --resume gpus/step-00000003 --checkpoint-dir again")
    assert steps("whole.jsonl", 4) == steps("again.jsonl")
    same("gpus/step-00000006/model.safetensors", "again/step-00000006/model.safetensors")
    on_cpu(program, "cpu.jsonl", 1, RUN, "--steps 6 --resume gpus/step-00000003 --checkpoint-dir cpu")
    close(steps("cpu.jsonl"), steps("whole.jsonl", 4), 1e-4)
    on_gpus(program, "back.jsonl", 4, RUN, "--sharding zero3 --steps 8 --resume cpu --cuda-graphs on")
    on_cpu(program, "cpu.jsonl", 2, RUN, "--steps 8 --resume cpu")
    close(steps("back.jsonl"), steps("cpu.jsonl"), 1e-4)

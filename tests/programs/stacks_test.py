# SPDX-License-Identifier: Apache-2.0
"""`tessera stacks`: what is compiled, each found by the flags that are printed, and what policies and backends support."""
import itertools

from support.files import read, steps

FLAGS = "train --data text.txt --model tiny --seq-len 16 --batch-size 4 --threads 1"


def values(listed, flag):
    """The values of a flag, as `tessera stacks` lists them."""
    return [line for line in listed.splitlines() if line.startswith(f"  --{flag} ")][0].split(maxsplit=1)[1]


def test_what_is_listed_is_found_in_turn(program):
    listed = program("stacks").prints(
        r"^  --comm +threads(, mpi)?(, nccl)?$",
        r"^  --precision +fp32, bf16, bf16:wire=bf16$",
        r"^  --sharding +fsdp2\[:pieces=V\] \| .*zero3\[:pieces=V\] \| .*hybrid:K\[:INNER\] \| replicated \| hybrid:K:full\[:INNER\]$",
        r"^  nccl +cuda +yes +yes +yes +yes +yes +yes$",   # its sums take any element type
        r"^  threads +cpu +yes +yes +yes +yes +yes +no$",  # no f16 on the wire
        r"^  fp16 +no +no +no +yes$",                      # the CPU has no matmul in f16
        r"^  hybrid:K:full +sharded +sharded +2 ",
        r"^  replicated +replicated +- +1 ").out
    precisions = itertools.cycle(values(listed, "precision").split(", "))
    offloads = itertools.cycle(values(listed, "offload").split(", "))
    for kind in values(listed, "sharding").replace("K", "2").replace("[:INNER]", ":zero3").split(" | "):
        for sharding in sorted({kind.replace("[:pieces=V]", pieces) for pieces in ("", ":pieces=4")}):
            for layout in ("default", "per-parameter", "flat", "rows", "owned", "blocks"):
                program(FLAGS, f"--comm threads:2 --sharding {sharding} --layout {layout} --dry-run",
                        f"--precision {next(precisions)} --offload {next(offloads)}")


def test_an_optimizer_in_host_memory_and_a_bf16_wire(program):
    for name, stack, flags in [
        ("plain", "fsdp2 threads:2 bf16 off", "--steps 2"),
        ("offload", "fsdp2:offload=optimizer threads:2 bf16 off", "--steps 2 --offload optimizer --checkpoint-dir offload"),
        ("zero3", "zero3:layout=owned:offload=optimizer threads:2 bf16 off", "--steps 2 --offload optimizer --sharding zero3 --layout owned"),
        ("wire", "fsdp2 threads:2 bf16:wire=bf16 off", "--steps 3 --precision bf16:wire=bf16 --resume offload"),
    ]:
        program(FLAGS, f"--comm threads:2 --metrics {name}.jsonl", flags)
        assert f'"stack":"{stack}"' in read(f"{name}.jsonl")
    assert steps("offload.jsonl") == steps("plain.jsonl")

# SPDX-License-Identifier: Apache-2.0
"""`tessera stacks`: what is compiled, each found by the flags that are printed, and what policies and backends support."""
from support.files import read, steps, text

FLAGS = "train --data text.txt --model tiny --seq-len 16 --batch-size 4 --threads 1"
ALL = r" \| ".join(rf"{kind}\[:pieces=V\]" for kind in ("fsdp2", "fsdp2:no-reshard", "zero1", "zero2", "zero3"))


def test_what_is_listed_is_found_by_its_flags(program):
    text(3000, "text.txt")
    listed = program("stacks").prints(
        f"^  --sharding {ALL} --comm threads --precision bf16$",
        f"^  --sharding {ALL} --offload optimizer --comm threads --precision bf16$",
        f"^  --sharding {ALL} --comm threads --precision bf16:wire=bf16$",
        r"^  --sharding hybrid:K:full\[:INNER\] --comm threads --precision fp32$",
        r"^  nccl +cuda +yes +yes +yes +yes +yes +yes$",   # its sums take any element type
        r"^  threads +cpu +yes +yes +yes +yes +yes +no$",  # no f16 on the wire
        r"^  fp16 +no +no +no +yes$",                      # the CPU has no matmul in f16
        r"^  hybrid:K:full +sharded +sharded +2 ",
        r"^  replicated +replicated +- +1 ")
    for line in [line for line in listed.out.splitlines() if "--comm threads" in line]:
        kinds, stack = line.replace("  --sharding ", "", 1).replace("threads", "threads:2").split(" --", 1)
        for kind in kinds.replace("K", "2").replace("[:INNER]", ":zero3").split(" | "):
            for sharding in {kind.replace("[:pieces=V]", pieces) for pieces in ("", ":pieces=4")}:
                program(FLAGS, f"--sharding {sharding} --{stack} --dry-run")


def test_an_optimizer_in_host_memory_and_a_bf16_wire(program):
    text(3000, "text.txt")
    for name, stack, flags in [
        ("plain", "fsdp2 threads:2 bf16 off", "--steps 2"),
        ("offload", "fsdp2:offload=optimizer threads:2 bf16 off", "--steps 2 --offload optimizer --checkpoint-dir offload"),
        ("zero3", "zero3:layout=owned:offload=optimizer threads:2 bf16 off", "--steps 2 --offload optimizer --sharding zero3 --layout owned"),
        ("wire", "fsdp2 threads:2 bf16:wire=bf16 off", "--steps 3 --precision bf16:wire=bf16 --resume offload"),
    ]:
        program(FLAGS, f"--comm threads:2 --metrics {name}.jsonl", flags)
        assert f'"stack":"{stack}"' in read(f"{name}.jsonl")
    assert steps("offload.jsonl") == steps("plain.jsonl")


def test_what_is_not_listed_is_refused(program):
    text(3000, "text.txt")
    program.refuses("compiled without the stack replicated:offload=optimizer / threads / bf16; the nearest is .*",
                    FLAGS, "--offload optimizer --sharding replicated", lines=None)
    program.refuses("offload optimiser is not known; did you mean 'optimizer'", FLAGS, "--offload optimiser")

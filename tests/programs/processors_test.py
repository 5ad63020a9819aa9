# SPDX-License-Identifier: Apache-2.0
"""bf16 trains with every instruction set of this processor; losses are close, and bit-identical in all strategies."""

from support.files import close, contains, falls, read, steps, summary
from support.program import instruction_sets, peak, trained

TEXT_BYTES = 20000
BF16 = "train --model tiny --data text.txt --precision bf16 --seq-len 64 --batch-size 4 --lr 1e-3 --seed 1"
FLAGS = f"{BF16} --comm threads:2 --threads 1 --steps 50"
SETS = instruction_sets()


def losses(name):
    return [step[:2] for step in steps(f"{name}.jsonl")]


def under(program, *variables):
    return program.under("env", *variables)


def test_every_instruction_set_trains(program):
    for isa in SETS:
        restricted, first = under(program, f"TESSERA_ISA={isa}"), f"{isa}.fsdp2"
        for sharding in ("fsdp2", "zero3", "replicated"):
            name = f"{isa}.{sharding}"
            trained(restricted, name, FLAGS, "--sharding", sharding).prints(
                f"^stack .*, 2 ranks x 1 thread, {isa}(, bf16 by way of float)?( .slow|$)")
            assert losses(name) == losses(first)
        falls(f"{first}.jsonl")
        close(losses(first), losses("baseline.fsdp2"), 1e-2)
        contains(f"{first}.jsonl", f'"instruction_set":"{isa}(, bf16 by way of float)?"')
        assert summary(f"{first}.jsonl")["peak_bytes"] == peak(restricted(FLAGS, "--dry-run"))


def test_bf16_by_way_of_float_and_other_sets_give_close_losses(program):
    further = FLAGS.replace("--steps 50", "--steps 51")
    by_float = under(program, "TESSERA_BF16_MATMUL=float")
    by_float(FLAGS, "--metrics float.jsonl")
    close(losses("float"), losses("baseline.fsdp2"), 1e-2)
    if SETS[-1] == "avx512_bf16" and "AuthenticAMD" in read("/proc/cpuinfo"):
        assert losses("float") != losses("avx512_bf16.fsdp2")
        contains("float.jsonl", '"instruction_set":"avx512_bf16, bf16 by way of float"')
        by_float(further, "--resume avx512_bf16.fsdp2").prints(
            "resumed: the instruction set was avx512_bf16, is avx512_bf16, bf16 by way of float")
    if len(SETS) > 1:
        under(program, f"TESSERA_ISA={SETS[-1]}")(further, "--resume baseline.fsdp2").prints(
            f"resumed: the instruction set was baseline, is {SETS[-1]}")
    under(program, "DNNL_MAX_CPU_ISA=AVX2")(FLAGS, "--metrics library.jsonl")  # a lesser set of oneDNN's alone
    close(losses("library"), losses("baseline.fsdp2"), 1e-2)


def test_errors(program):
    under(program, "TESSERA_ISA=sse").refuses(
        "TESSERA_ISA is 'sse'; baseline, avx2, avx512 and avx512_bf16 exist", BF16)
    for flags in (BF16, "train --model tiny --data text.txt --precision fp32"):
        under(program, "TESSERA_BF16_MATMUL=fast").refuses(
            "TESSERA_BF16_MATMUL is 'fast'; native and float exist", flags)
    under(program, "TESSERA_ISA=baseline TESSERA_BF16_MATMUL=native").refuses(
        "oneDNN has no bf16 matmul for baseline, or for what DNNL_MAX_CPU_ISA leaves .it needs AVX-512.; leave it out",
        BF16)
    if SETS[-1] != "avx512_bf16":
        under(program, "TESSERA_ISA=avx512_bf16").refuses(
            "TESSERA_ISA is avx512_bf16, which this processor lacks; it has", BF16)

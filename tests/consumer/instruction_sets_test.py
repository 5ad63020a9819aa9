# SPDX-License-Identifier: Apache-2.0
"""A trainer that links an installed library runs under every instruction set of this processor.

It runs as on a machine without the others: oneDNN is limited as well. The program is examples/01_trainer.
"""
import os

from support.files import close, falls, read, steps
from support.program import instruction_sets

TEXT_BYTES = 4000
LIBRARY = {"baseline": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE", "avx512_bf16": "AVX512_CORE_BF16"}


def test_every_instruction_set_trains_like_the_baseline(program):
    for isa in instruction_sets():
        program("--data text.txt --model tiny --seq-len 32 --batch-size 4 --steps 20 --lr 3e-3 --threads 1",
                f"--metrics {isa}.jsonl", env=os.environ | {"TESSERA_ISA": isa, "DNNL_MAX_CPU_ISA": LIBRARY[isa]})
        assert f'"instruction_set":"{isa}' in read(f"{isa}.jsonl")
        falls(f"{isa}.jsonl")
        close(*([step[:2] for step in steps(f"{name}.jsonl")] for name in (isa, "baseline")), 1e-2)

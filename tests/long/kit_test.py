# SPDX-License-Identifier: Apache-2.0
"""The kit's suites over every policy that ships, under every instruction set of this processor: all strategies in all
layouts, precisions, tilings, communicators, optimizers, devices, modules, operations, and the models of the examples.

The test programs are in ../tests of the program's folder. TESSERA_SWEEP=sample: layouts and strategies alone, under one
instruction set."""
import os
import re
import shutil

import pytest

from support.program import WHOLE, instruction_sets, run

LIBRARY = {"baseline": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE", "avx512_bf16": "AVX512_CORE_BF16"}
AREAS = "testing precision comm device examples".split() if WHOLE else ["testing"]
SETS = instruction_sets() if WHOLE else instruction_sets()[-2:][:1]  # the one below that of the other tests
FILTER = "*/*Suite/*:*/CommunicatorFaults/*" if WHOLE else "OverAllRanks/*TrainsAsReplicatedDoes"


def passes(isa, name, *command):
    """All of its tests pass, and in the whole sweep there are some."""
    ended = run(*command, f"--gtest_brief=1 --gtest_color=no --gtest_filter={FILTER}", limit=3600,
                env=os.environ | {"TESSERA_ISA": isa, "DNNL_MAX_CPU_ISA": LIBRARY[isa]})
    counts = re.findall(r"^\[==========\] ([0-9]+) tests? ", ended.out, re.M) or [0]
    assert int(counts[-1]) > 0 or not WHOLE, f"no test of {name} ran"
    print(f"{isa}: {name}: {counts[-1]} tests")


@pytest.mark.parametrize("isa", SETS)
def test_the_suites_pass(program, isa):
    tests = program.path.parent.parent / "tests"
    for area in AREAS:
        passes(isa, area, tests / f"tests_{area}")
    if WHOLE and os.access(tests / "tests_mpi", os.X_OK) and shutil.which("mpirun"):
        for ranks in (2, 3, 4):
            passes(isa, f"mpi on {ranks} ranks", f"mpirun -np {ranks}", tests / "tests_mpi")

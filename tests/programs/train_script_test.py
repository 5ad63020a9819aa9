# SPDX-License-Identifier: Apache-2.0
"""examples/train.sh, with fewer steps, as it is and on lesser processors: it trains in bf16 on two ranks, the held-out loss
falls, and the model writes."""
import os
import subprocess

import pytest

from support.files import TESTS, latest, summary
from support.program import instruction_sets, run


@pytest.mark.parametrize("isa", [None, *instruction_sets()[:2]])
def test_train_script(program, isa):
    folder = f"{os.getcwd()}/{isa}"
    variables = {"TESSERA": str(program.path), "RUN": folder, "STEPS": "20"} | ({"TESSERA_ISA": isa} if isa else {})
    ended = run("bash", TESTS.parent / "examples" / "train.sh", "/usr/include/boost/mp11", env=os.environ | variables,
                stderr=subprocess.STDOUT, limit=600)
    ended.prints(f"bf16.*, 2 ranks x 1 thread.*, {isa or ''}", "What the model writes after '#ifndef BOOST_'")
    assert 0 < summary(f"{folder}/metrics.jsonl")["validation_loss"] < 4.2  # it begins at 5.5
    assert os.path.isfile(f"{folder}/checkpoints/{latest(f'{folder}/checkpoints')}/config.json")

# SPDX-License-Identifier: Apache-2.0
"""--comm nccl without a GPU, or in a build without CUDA, is refused with the reason; with a GPU it trains."""
import shutil

from support.files import text
from support.program import run

TRAIN = ("train --comm nccl --data data.txt --layers 1 --hidden 64 --heads 1 --kv-heads 1 --head-dim 64 "
         "--intermediate 128 --steps 1 --seq-len 16 --batch-size 2 --checkpoint-dir checkpoint")


def test_it_trains_or_is_refused_with_the_reason(program):
    text(4000, "data.txt")
    if shutil.which("nvidia-smi") and "GPU" in run("nvidia-smi -L", status=None).out:
        program(TRAIN)
        return
    program.refuses("no device|built without nccl", TRAIN, lines=None)
    program.under("env OMPI_COMM_WORLD_SIZE=2").refuses(
        "would be as many runs, each alone.*torchrun", TRAIN, lines=None)

# SPDX-License-Identifier: Apache-2.0
"""--document-separator: another loss, the same memory; and one that occurs nowhere is refused."""
import pytest

from support.files import close, losses, steps, summary, write

TEXT_BYTES = 4000
FLAGS = "train --data text.txt --model tiny --seq-len 96 --steps 3 --batch-size 4 --comm threads:2 --seed 1"
EVAL = "eval --model model/step-00000003 --data text.txt"


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    program(FLAGS, "--checkpoint-dir model")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_separators_change_losses_but_not_the_memory(program, precision):
    def trains(name, flags=""):
        program(FLAGS, f"--precision {precision}", flags, f"--metrics {precision}-{name}.jsonl --checkpoint-dir {precision}-{name}")
        return losses(f"{precision}-{name}.jsonl"), summary(f"{precision}-{name}.jsonl")["peak_bytes"]
    whole, whole_peak = trains("whole")
    for name, separator in ("lines", 10), ("words", 32):
        other, peak = trains(name, f"--document-separator {separator}")
        assert peak == whole_peak
        assert other != whole


def test_windows_of_two_documents_are_windows_of_one_each(program):
    write("even.txt", "\n".join(f"{i} the rank holds a shard".ljust(31) for i in range(16)) + "\nx")  # 32 bytes each
    for name, flags in ("packed", "--seq-len 64 --batch-size 8 --document-separator 10"), ("alone", "--seq-len 32 --batch-size 16"):
        program("train --data even.txt --model tiny --precision fp32 --validation-fraction 0 --steps 2 --comm threads:2 --seed 1", flags,
                f"--metrics {name}.jsonl")
    assert len(steps("packed.jsonl")) == 2
    close(steps("packed.jsonl"), steps("alone.jsonl"), 1e-5)


def test_eval_separates_documents(program):
    assert program(EVAL, "--seq-len 96").out != program(EVAL, "--seq-len 96 --document-separator 10").out


@pytest.mark.parametrize("pattern, arguments", [
    ("document-separator 256 must be a byte: 0 to 255", FLAGS + " --document-separator=256"),
    ("document-separator -1 must be at least 0", FLAGS + " --document-separator=-1"),
    ("document-separator 0: no byte 0 among 4000, so that documents would not be kept apart", FLAGS + " --document-separator 0"),
    ("document-separator 255: no byte 255", EVAL + " --document-separator 255"),
    ("document-separator index: text.txt has no index", FLAGS + " --document-separator index"),
    ("document-separator 256 must be a byte", EVAL + " --document-separator 256"),
])
def test_bad_separators_are_refused(program, pattern, arguments):
    program.refuses(pattern, arguments)

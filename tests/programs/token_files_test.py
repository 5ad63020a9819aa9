# SPDX-License-Identifier: Apache-2.0
"""Token files: the same tokens give bit-identical losses, as text, with llm.c's headers and without any."""
import array
import struct

import pytest

from support.files import close, steps, text, write

FLAGS = "train --model tiny --seq-len 64 --steps 3 --batch-size 4 --comm threads:2 --precision fp32 --seed 1 --document-separator 10"
TINY = "train --model tiny --seq-len 64 --precision fp32 --seed 1 --batch-size 12 --steps 6"
MIXED = f"{TINY} --data mega.idx:0.75 short.txt:0.25"


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    """Text, its bytes as tokens, and the run `whole` of the text."""
    made = text(4000, "text.txt").encode()
    u16, u32 = (array.array(code, list(made)).tobytes() for code in "HI")
    gpt2 = struct.pack("<3i", 20240520, 1, len(made)) + bytes(1024 - 12) + u16
    write("short.txt", made[:1500])
    write("u16.raw", u16)
    write("u32.raw", u32)
    write("gpt2.bin", gpt2)
    write("cut.bin", gpt2[:-3])
    write("llama3.bin", struct.pack("<3i", 20240801, 7, len(made)) + bytes(1024 - 12) + u32)
    write("spaces.raw", b" " * 4000 + bytes(range(1, 9)))
    write("u16.npy", b"\x93NUMPY\1\0\x76\0" + b"{'descr': '<u2', 'fortran_order': False, 'shape': (4000,), }".ljust(117) + b"\n" + u16)
    write("mega.bin", u16)  # Megatron's: documents of 1000, 0 and 3000 tokens
    write("mega.idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ3i3q4q", 1, 8, 3, 4, 1000, 0, 3000, 0, 2000, 2000, 0, 1, 2, 3))
    program(FLAGS, "--data text.txt --metrics whole.jsonl --checkpoint-dir whole")


@pytest.mark.parametrize("data, patterns", [
    ("gpt2.bin", ["^data .* 4000 tokens of 16 bits in 1 file"]),
    ("llama3.bin", []),
    ("u16.raw --data-format u16", []),
    ("u32.raw --data-format u32", []),
    ("mega", []),
])
def test_losses_are_those_of_the_text(program, data, patterns):
    name = data.split()[0]
    program(FLAGS, "--data", data, f"--metrics {name}.jsonl --checkpoint-dir of-{name}").prints(*patterns)
    assert steps(f"{name}.jsonl") == steps("whole.jsonl")


def test_an_evaluation_is_that_of_the_text(program):
    evaluates = "eval --model whole/step-00000003 --seq-len 64 --data"
    assert program(evaluates, "text.txt").out == program(evaluates, "u16.raw --data-format u16").out


def test_a_mixture_resumes_on_any_number_of_ranks(program):
    program(MIXED, "--metrics mixed.jsonl --comm threads:2 --checkpoint-dir mixed --checkpoint-every 3").prints(
        "^data .*weight 0.75: 4000 tokens of 16 bits in 1 file, the index lists 3 documents, whose borders attention crosses .*; "
        "weight 0.25: 1.46 KiB in 1 file")
    mixed = steps("mixed.jsonl", 4)
    for ranks, flags in (2, ""), (1, "--grad-accum 2"), (3, "--grad-accum 2"):
        program(MIXED, flags, f"--metrics resumed{ranks}.jsonl --comm threads:{ranks} --resume mixed/step-00000003")
        close(mixed, steps(f"resumed{ranks}.jsonl", 4), 1e-3)
    assert steps("resumed2.jsonl", 4) == mixed
    program.refuses("the data was weight 0.75.* is weight 0.5", TINY, "--data mega.idx:0.5 short.txt:0.5 --resume mixed/step-00000003")
    program.refuses("eval: --data has weights", "eval --model mixed/step-00000003 --data mega.idx:1 --precision fp32")


@pytest.mark.parametrize("pattern, arguments", [
    ("the data was .* bytes.* is .* tokens of 16 bits", FLAGS + " --data gpt2.bin --resume whole/step-00000003"),
    ("short.txt has no weight, and others have one", "train --model tiny --data mega.idx:0.5 short.txt"),
    ("cut.bin says that it holds 4000 tokens, which make 9024 bytes, and has 9021", FLAGS + " --data cut.bin"),
    ("begins with llm.c.s header, and --data-format u32", FLAGS + " --data gpt2.bin --data-format u32"),
    (r"there is no text in u16.raw \(left out: binary 1 \(u16.raw\)\); if that holds tokens alone, train on it with --data-format u16 or u32",
     FLAGS + " --data u16.raw"),
    (r"u16.npy is an array of NumPy \(dtype <u2, shape \(4000,\)\), and --data-format u16 is of files that hold tokens alone",
     FLAGS + " --data u16.npy --data-format u16"),
    ("u32.raw holds integers of 32 bits .* say --data-format u32", FLAGS + " --data u32.raw --data-format u16"),
    ("u16.npy is an array of NumPy .* which is not read", "eval --model whole/step-00000003 --data u16.npy --seq-len 64"),
    ("give one kind alone", FLAGS + " --data text.txt gpt2.bin"),
    ("--end-token is for text that a tokenizer reads, and --data-format is u16; leave one of them out",
     FLAGS + " --data u16.raw --data-format u16 --end-token none"),
    ("data-format u8 is not known", FLAGS + " --data u16.raw --data-format u8"),
    ("holds token 8224, which is not below", FLAGS + " --data spaces.raw --data-format u16"),
])
def test_bad_token_files_are_refused(program, pattern, arguments):
    program.refuses(pattern, arguments)

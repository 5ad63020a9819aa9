# SPDX-License-Identifier: Apache-2.0
"""A stdout that takes nothing is an error of every command; no file gets the number of a closed one; a reader that is
gone is not reported. A FIFO is never waited for."""
import functools
import json
import os
import signal

import pytest

from support.files import GOLDEN, lacks, read, same, write
from support.program import Running, until

TEXT_BYTES = 600
TRAIN = "train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1 --steps 2"
MODEL = GOLDEN / "llama-gqa"


@pytest.mark.parametrize("command", [
    "--help", "stacks", TRAIN, f"{TRAIN} --dry-run", f"{TRAIN} --print-schedule",
    f"eval --model '{MODEL}' --data text.txt --seq-len 16 --precision fp32 --comm threads:2",
    f"generate --model '{MODEL}' --prompt a --tokens 2 --precision fp32",
])
def test_a_stdout_that_takes_nothing(program, command):
    with open("/dev/full", "w") as full:
        program(command, stdout=full, status=1).warns("stdout cannot be written")


def test_a_closed_stdout(program):
    program(TRAIN, "--metrics metrics.jsonl --checkpoint-dir saved", preexec_fn=lambda: os.close(1))
    lacks("metrics.jsonl", "^[^{]")
    assert read("metrics.jsonl").count("\n") == 5, read("metrics.jsonl")
    program(TRAIN, "--metrics metrics2.jsonl --checkpoint-dir saved2", preexec_fn=lambda: os.closerange(0, 3))
    same("saved/step-00000002/model.safetensors", "saved2/step-00000002/model.safetensors")
    ended = program(TRAIN, "--trace trace.json --data nowhere", status=None,
                    preexec_fn=lambda: (os.close(0), os.close(2)))
    assert ended.status != 0 and not ended.out, ended


@pytest.mark.parametrize("command", ["--help", "stacks", "--version"])
@pytest.mark.parametrize("action", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_pipe_that_nobody_reads(program, command, action):
    reader, writer = os.pipe()
    os.close(reader)
    ended = program(command, status=None, stdout=writer, restore_signals=False,
                    preexec_fn=lambda: signal.signal(signal.SIGPIPE, action))
    os.close(writer)
    assert ended.status in (141, -signal.SIGPIPE) and not ended.err, ended


def opens_fifo(running):
    """Waits until a process sleeps: in opening the FIFO, whose other end is still closed."""
    until(lambda: "\nState:\tS" in read(f"/proc/{running.process.pid}/status"), "a process that opens the FIFO")


def test_a_fifo_without_the_other_end_is_refused_and_one_with_it_is_written_and_read(program):
    os.mkfifo("fifo")
    refuses = functools.partial(program.refuses, limit=20)
    for flag in "metrics", "digests", "trace":
        refuses(f"--{flag} fifo: is a FIFO without a reader; start the reader first", TRAIN, f"--{flag} fifo")
        with Running(["cat", "fifo"]) as reader:
            opens_fifo(reader)
            program(TRAIN, f"--{flag} fifo", limit=20)
            write(f"{flag}.read", reader.ends(0).out)
    assert read("metrics.read").count("\n") == 5, read("metrics.read")
    json.loads(read("trace.read"))
    refuses("^tessera: fifo: is a FIFO without a writer; start the writer first", "diff digests.read fifo")
    refuses("^tessera: plot: fifo: is a FIFO without a writer", "plot fifo")
    refuses("out fifo: is a FIFO without a reader", "plot metrics.read --out fifo")
    refuses("against fifo: is a FIFO, and the file is read twice", "replay saved --step 2 --against fifo")
    with Running(["sh", "-c", "exec >fifo; sleep 0.2; cat digests.read"]) as writer:
        opens_fifo(writer)
        program("diff fifo /dev/stdin", input=read("digests.read"), limit=20)

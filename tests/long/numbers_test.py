# SPDX-License-Identifier: Apache-2.0
"""Every number of every flag of every command at the edges: one message with status 2, a run that ends well, or one
that still makes steps when its time is over. Never a crash, a negative status, an overflow, or silence.

TESSERA_SWEEP=sample: every flag once, at one of the edges. The whole sweep needs tessera_bench next to the program."""
import collections
import itertools
import re
import shlex

import pytest

from support.files import GOLDEN
from support.program import WHOLE, Program

EDGES = "0 -1 2147483648 4294967296 9223372036854775807 9223372036854775808 nan inf 1e39 1e-320".split()
TURNS = itertools.cycle(EDGES)
TRAIN = "train --data text.txt --model tiny --seq-len 16 --precision fp32 --steps 2 --batch-size 4"
LLAMA = f"--model {shlex.quote(str(GOLDEN / 'llama-gqa'))} --precision fp32"
NUMBERS = ""  # the flags that take a number
SWEEPS = [
    (TRAIN, NUMBERS),
    (f"{TRAIN} --dry-run",
     "--steps=N --seq-len=N --batch-size=N --grad-accum=N --ranks=N --hidden=N --layers=N --vocab=N"),
    (f"eval {LLAMA} --data text.txt --seq-len 16", NUMBERS),
    (f"generate {LLAMA} --prompt a --tokens 4", NUMBERS),
    (f"{TRAIN} --comm threads:2", " ".join(f"--sharding={value}" for value in (
        "fsdp2:N", "fsdp2:prefetch=N", "hybrid:N", "hybrid:N:full", "zero3:persist=N", "zero3:live=N"))),
    (TRAIN, "--tiling=tiles:N --tiling=tokens:N --tiling=budget:N --comm=threads:N --loss-scale=dynamic:N"),
    (f"{TRAIN} --tiling budget:auto", "--memory=N"),
]
if WHOLE:
    SWEEPS += [(f"bench {name} --repeats 1 --hidden 64 --seq-len 64 --layers 1 --vocab 128 --precision fp32", NUMBERS)
               for name in "mlp attention head step comm optim".split()]


def outcome(ended, silent):
    """What a case came to, and whether that is allowed."""
    if ended.status == 0:
        return "ended well", ended.out != ""
    if ended.status in (1, 2, 3):
        return "refused", ended.err.count("\n") == 1 and re.match("tessera: .{10}", ended.err)
    if ended.status in (137, -9):
        return "still running", silent or ended.out != ""
    return "crashed", False


@pytest.mark.parametrize("command, flags", SWEEPS)
def test_numbers_at_the_edges(program, command, flags):
    name, arguments = command.split(maxsplit=1)
    if name == "bench":
        program, command = Program(program.path.with_name("tessera_bench")), arguments
    # What cannot be allocated is refused at once; a case has 10 s.
    limited = program.under(f"prlimit --as={16 << 30} timeout -s KILL 10")
    if flags == NUMBERS:
        flags = " ".join(f"{flag}=N" for flag in re.findall(
            "^ *(--[a-z0-9-]+) (?:NUMBER|INT|FLOAT)", program(command.split()[0], "--help").out, re.M))
    counts, problems = collections.Counter(), []
    for flag in flags.split():
        kept = re.sub(rf" {flag.split('=')[0]} \S+", "", command)  # a flag is given once
        for edge in EDGES if WHOLE else [next(TURNS)]:
            ended = limited(kept, flag.replace("N", edge), status=None)
            kind, allowed = outcome(ended, name == "bench")
            counts[kind] += 1
            if not allowed:
                problems.append(f"{kind} with status {ended.status}: {ended}")
    print(f"numbers of {command}: {dict(counts)}")
    assert counts and not problems, "\n\n".join(problems)

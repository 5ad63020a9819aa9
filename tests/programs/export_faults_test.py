# SPDX-License-Identifier: Apache-2.0
"""export that is ended by a signal, or whose disk fails or is full: nothing of it is kept, and one line reports why.
TESSERA_FAULTS is the library that makes system calls fail or stall."""
import glob
import os
import shutil
import time

import pytest

from support.files import GOLDEN, listing, read, same, write
from support.program import faulty, small_disk

MODEL = GOLDEN / "qwen3-window"
EXPORT = f"export {MODEL} below/new --shard-bytes 40000 --files-from tokenizer"
ADVICE = "; nothing of the export is kept. Make room, or choose another folder$"


@pytest.fixture(scope="module")
def calls(program):
    """How many system calls of each kind the export makes."""
    write("tokenizer/tokenizer.json", "{}\n")
    faulty(program, "below", count=os.path.abspath("../count"))(EXPORT)
    shutil.rmtree("below")
    count = {call: int(number) for call, number in (line.split() for line in read("../count").splitlines())}
    assert count["reserve"] >= 2 and count["sync"] >= 6 and count["write"] >= 12, count
    return count


@pytest.mark.parametrize("signal, status, call, k", [  # in a piece, a file of weights or the tokenizer
    ("INT", 130, "write", 3), ("TERM", 143, "write", 3), ("INT", 130, "sync", "reserve"), ("TERM", 143, "write", "write")])
def test_a_signal_ends_it(program, calls, signal, status, call, k):
    before = listing()
    with faulty(program, "below", f"{call}:{calls.get(k, k)}:slow").start(EXPORT) as running:
        running.until(lambda: glob.glob("below/**/*.safetensors", recursive=True), "writing")
        time.sleep(0.3)  # into the slow call, which the signal interrupts
        running.send(signal)
        ended = running.ends(status).warns(f"^tessera: SIG{signal}: nothing of the export is kept$")
    assert ended.err.count("\n") == 1
    assert listing() == before


@pytest.mark.parametrize("call", ["open", "reserve", "write", "sync", "close", "rename", "mkdir"])
def test_any_call_that_fails(program, calls, call):
    last = calls[call] - 2 * (call == "close")  # the last two are of folders, which were only read
    for k in range(1, last + 1, 5 if call == "write" else 1):  # five writes are of one tensor
        faulty(program, "below", f"{call}:{k}:EIO").refuses("^tessera: below.*: Input/output error$", EXPORT)


def test_reading_that_fails_and_partial_reads_and_writes_that_do_no_harm(program):
    shutil.copytree(MODEL, "from-here")
    for fault in ["open:2:EACCES", "read:2:EIO", "read:9:EIO"]:
        faulty(program, "from-here", fault).refuses("^tessera: from-here/[a-z.]+: cannot be (opened|read): ", "export from-here below/new")
    program("export from-here whole")
    for under, fault in [("below", "write:*:short"), ("from-here", "read:*:short")]:
        faulty(program, under, fault)("export from-here below/new")
        same("whole/model.safetensors", "below/new/model.safetensors")
        shutil.rmtree("below")


def test_a_full_disk(program, calls):
    for pattern, fault in [(r"is the disk full\?\): No space left on device", "reserve:2:ENOSPC"),
                           ("written: No space left on device", "write:5:ENOSPC"),
                           ("written: Disk quota exceeded", f"write:{calls['write']}:EDQUOT")]:
        faulty(program, "below", fault).refuses(pattern + ADVICE, EXPORT)
    small_files = program.under("bash -c 'ulimit -f 20; exec \"$@\"' -")
    small_files.refuses("File too large; nothing of the export is kept. --shard-bytes N makes smaller files$", "export", MODEL, "new")
    small_files("export", MODEL, "new --shard-bytes 9000")


def test_a_disk_that_becomes_full(program, calls):
    with small_disk("disk", "256k"):
        write("disk/other", b"\0" * 150000)
        write("tokenizer/merges.txt", b"\0" * 90000)
        program.refuses(f"disk/a/new.tmp-[0-9]+/merges.txt: cannot be written: No space left on device{ADVICE}",
                        "export", MODEL, "disk/a/new --files-from tokenizer --dtype bf16")
        write("disk/other", b"\0" * 230000)
        program.refuses("disk/a/new: takes [0-9]+ bytes and its disk has [0-9]+ left: No space left on device. Make room, or ",
                        "export", MODEL, "disk/a/new")

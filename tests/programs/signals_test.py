# SPDX-License-Identifier: Apache-2.0
"""SIGTERM, SIGINT, SIGHUP and a reader of stdout that ends end a run after a step that is saved; SIGUSR1 saves and the
run continues. A second signal a second later ends it at once. A run that was ended resumes bit-identically."""
import fcntl
import os
import struct
import termios
import time

import pytest

from support.files import fresh, latest, lines_with, listing, read, steps, write
from support.program import run

TRAIN = ("train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1 --lr-schedule constant"
         " --comm threads:2 --batch-size 4")
LONG = f"{TRAIN} --steps 100000 --log-every 1000000"
ENDED = "ended after step [0-9]+"


def ended_by_term(program, *flags):
    with program.train(LONG, *flags) as running:
        running.send("TERM")
        return running.ends(143)


@pytest.mark.parametrize("name, status", [("TERM", 143), ("INT", 130), ("HUP", 129)])
def test_a_signal_ends_a_run_after_a_step_that_is_saved(program, name, status):
    in_background = """bash -c 'trap "" INT; exec "$@"' -"""  # scripts start their background jobs so
    with program.under(in_background).train(LONG, "--checkpoint-dir", fresh("saved")) as running:
        running.send(name)
        running.send(name)  # counts as the same
        ended = running.ends(status)
    message = f"SIG{name}: {ENDED}: saved/step-[0-9]+$"
    ended.prints(f"^{message}").warns(f"^tessera: {message}")
    answers = len(lines_with(f"^tessera: SIG{name}: saves after this step; once more ends without saving$", ended.err))
    assert answers == (0 if name == "HUP" else 1), ended
    assert ended.err.count("\n") == 1 + answers, ended
    assert not os.path.exists("saved/run.lock")
    assert latest("saved") == f"step-{steps('metrics.jsonl')[-1][0]:08d}"


def test_a_sighup_that_was_ignored_at_the_start_stays_ignored(program):
    with program.under("nohup").train(LONG) as running:
        running.send("HUP")
        running.makes_steps(len(steps("metrics.jsonl")) + 5)
        running.send("TERM")
        running.ends(143)


@pytest.mark.parametrize("kept, flags", [("saved/step-", "--checkpoint-dir saved"),
                                         ("nothing is saved without --checkpoint-dir", "--seed 0")])
def test_a_run_ends_when_nobody_reads_stdout_any_more(program, kept, flags):
    command = program.command(TRAIN, "--steps 100000 --log-every 1", flags)
    fresh("saved")
    ended = run(["bash", "-c", '"$@" | head -n 7; exit ${PIPESTATUS[0]}', "-", *command], status=141)
    ended.warns(rf"^tessera: SIGPIPE \(nobody reads stdout any more\): {ENDED}: {kept}")
    assert ended.err.count("\n") == 1, ended
    if "saved" in flags:
        assert latest("saved") and not os.path.exists("saved/run.lock"), listing("saved")


def test_sigusr1_saves_and_the_run_continues(program):
    with program.train(LONG, "--checkpoint-dir", fresh("saved")) as running:
        running.send("USR1")
        first = running.until(lambda: latest("saved"), "a checkpoint")
        running.send("TERM")
        running.ends(143)
    assert latest("saved") != first
    assert len([path for path in os.listdir("saved") if path.startswith("step-")]) == 2, listing("saved")


def test_a_signal_ends_a_validation_of_minutes(program):
    write("long.txt", 1000 * read("text.txt"))
    with program.train(LONG, "--data long.txt --validation-fraction 0.9 --validation-windows 0 --validation-every 5",
                       "--checkpoint-dir", fresh("saved")) as running:
        running.makes_steps(5).send("TERM")
        running.ends(143).prints("^SIGTERM: ended after step 5: saved/step-00000005")


@pytest.mark.parametrize("flags, reason, warned", [
    ("", "nothing is saved without --checkpoint-dir", "^tessera: SIGTERM: ends after this step; once more ends at once$"),
    ("--on-signal stop --checkpoint-dir saved", "not saved", ""),
])
def test_a_run_reports_that_nothing_was_saved(program, flags, reason, warned):
    fresh("saved")
    ended_by_term(program, flags).prints(f"^SIGTERM: {ENDED}: {reason}").warns(warned)
    assert not os.path.exists("saved")


def test_one_more_signal_a_second_later_ends_at_once_with_nothing_saved(program):
    os.mkfifo("stalled")
    reader = os.open("stalled", os.O_RDONLY | os.O_NONBLOCK)  # it never reads: when the FIFO is full, a step never ends
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)

    def held():
        time.sleep(0.4)
        return struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))[0]

    with program.start(LONG, "--metrics stalled --checkpoint-dir", fresh("saved")) as running:
        running.until(lambda: 3400 < held() == held(), "a step that does not end", 60)
        running.send("TERM")
        time.sleep(1.05)
        running.send("TERM")
        running.ends(143)
    os.close(reader)
    assert not lines_with("step-", "\n".join(listing("saved")))


def test_a_run_that_was_ended_resumes_bit_identically(program):
    ended_by_term(program, "--checkpoint-dir", fresh("saved"))
    last = int(latest("saved").removeprefix("step-"))
    few = f"{TRAIN} --steps {last + 3}"
    program(few, "--metrics whole.jsonl")
    program(few, "--metrics rest.jsonl --resume saved").prints(f"^resumed from saved/step-[0-9]+: step {last}, epoch")
    assert steps("whole.jsonl", last + 1) == steps("rest.jsonl") != []

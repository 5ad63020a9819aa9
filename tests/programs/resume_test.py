# SPDX-License-Identifier: Apache-2.0
"""A resumed run is bit-identical; another sharding and number of ranks may resume it; a killed save loses nothing."""
import os
import pathlib
import shutil
import time

import pytest

from support.files import close, fresh, latest, listing, read, same, steps, write

FLAGS = ("--data text.txt --model tiny --tied --seq-len 16 --steps 6 --precision fp32 --grad-accum 2 --batch-size 12 "
         "--warmup 2 --threads 1")


@pytest.mark.parametrize("stack", ["fsdp2 --comm threads:2", "zero3 --comm threads:3", "replicated --comm threads:1"])
def test_a_resumed_run_is_bit_identical(program, stack):
    train = f"train {FLAGS} --sharding {stack} --metrics"
    program(train, fresh("whole.jsonl"), "--checkpoint-every 3 --checkpoint-dir", fresh("whole"))
    assert latest("whole") == "step-00000006"
    assert len(os.listdir("whole")) == 3
    program(train, fresh("again.jsonl"), "--resume whole/step-00000003 --checkpoint-dir", fresh("again"))
    assert steps("whole.jsonl", 4) == steps("again.jsonl", 4)
    for file in ["model.safetensors", "optimizer.safetensors", "config.json", "trainer.json"]:
        same(f"whole/step-00000006/{file}", f"again/step-00000006/{file}")


def test_a_run_that_ends_until_a_step_is_a_part_of_the_whole(program):
    train = f"train {FLAGS} --sharding fsdp2 --comm threads:2 --checkpoint-dir part --metrics"
    whole = f"train {FLAGS} --sharding fsdp2 --comm threads:2 --metrics"
    program(whole, fresh("uncut.jsonl"))
    fresh("part")
    program(train, fresh("first.jsonl"), "--until 4")
    assert latest("part") == "step-00000004"
    program(train, fresh("second.jsonl"), "--resume part")
    assert steps("first.jsonl") + steps("second.jsonl") == steps("uncut.jsonl")
    program.refuses("is at step 6 already, beyond --until 4; take a later step, or an earlier checkpoint", train,
                    "third.jsonl --resume part --until 4")


def test_another_sharding_and_number_of_ranks_and_a_renamed_folder_and_the_newest_of_a_directory(program):
    os.rename("whole/step-00000003", "renamed")
    for stack in ["zero3 --comm threads:2", "fsdp2 --comm threads:6", "replicated --comm threads:3"]:
        program("train", FLAGS, "--resume renamed --metrics", fresh("other.jsonl"), "--sharding", stack)
        close(steps("other.jsonl"), steps("whole.jsonl", 4), 1e-4)
    shutil.rmtree("whole/step-00000006")  # which `latest` specifies
    os.rename("renamed", "whole/step-00000003")
    program("train", FLAGS, "--comm threads:1 --sharding replicated --resume whole --metrics", fresh("other.jsonl"))
    assert steps("whole.jsonl", 4) == steps("other.jsonl")


def test_what_changed_is_reported_or_refused_where_the_run_would_get_other_data(program):
    write("whole/latest", "step-00000003\n")
    resume = f"train {FLAGS} --comm threads:2 --resume whole"
    ended = program(resume, "--lr 0.002 --beta1 0.8").prints(
        "^resumed from whole/step-00000003: step 3, epoch 0, window 36 of ",
        "^resumed: --lr was 0.001, is 0.002$", "^resumed: --beta1 was 0.9, is 0.8$")
    ended.warns("^tessera: warning: the learning rate of step [0-9]+ is .*, after .* at step [0-9]+: --lr was 0.001, is 0.002$")
    ended.omits("^resumed: --(steps|resume|metrics)")
    write("same-size.txt", read("text.txt").replace("a", "b"))
    other = resume.replace("text.txt", "same-size.txt")
    program.refuses("the data was 1 files, 3000 bytes.*or --resume-anyway", other)
    program(other, "--resume-anyway").prints("^resumed anyway: the data was 1 files")
    program.refuses("batch-size was 12, is 24; resume with what it was, or --resume-anyway", resume.replace("12", "24"))


def test_a_run_that_is_killed_while_it_saves_always_leaves_a_checkpoint_that_opens(program):
    file = pathlib.Path("killed/latest")
    save = "train --data text.txt --model tiny --seq-len 16 --precision fp32 --batch-size 2 --checkpoint-dir killed"
    for delay in [0.3, 0.05, 0.11, 0.17]:
        before = file.stat().st_mtime_ns if file.exists() else 0
        resume = "--resume killed" if before else ""
        with program.start(save, "--steps 100000 --comm threads:2 --checkpoint-every 1", resume) as running:
            running.until(lambda: file.exists() and file.stat().st_mtime_ns > before, "it has saved")
            time.sleep(delay)
            running.send("KILL")
            running.ends(-9)
    last = int(latest("killed").removeprefix("step-"))
    program(f"eval --model killed/step-{last:08d} --data text.txt --seq-len 16")
    program(save, "--resume killed --steps", last + 1)
    assert latest("killed") == f"step-{last + 1:08d}"
    assert not [path for path in listing("killed") if ".tmp" in path]

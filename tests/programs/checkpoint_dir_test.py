# SPDX-License-Identifier: Apache-2.0
"""What a run does with its folder of checkpoints: which it resumes from, which it keeps, and who else may write there."""
import os
import pathlib
import re

import pytest

from support.files import copied, flip, fresh, listing, read, same, steps, write
from support.program import small_disk

FLAGS = "train --data text.txt --seq-len 16 --precision fp32 --batch-size 4 --threads 1 --comm threads:2 --lr-schedule constant"
TRAIN = f"{FLAGS} --model tiny"
AUTO = "--resume auto --checkpoint-dir"


@pytest.fixture(scope="module")
def train(program):
    return lambda flags, model="tiny": program(FLAGS, "--model", model, flags)


def steps_in(folder):
    return sorted(int(path.name.removeprefix("step-")) for path in pathlib.Path(folder).glob("step-*"))


def identity(folder):
    return re.search(r'"identity": "[0-9a-f]*"', read(f"{folder}/step-00000001/trainer.json"))[0]


def test_the_newest_sound_step_is_resumed_from_whatever_latest_names(train):
    train("--steps 3 --checkpoint-dir runs --checkpoint-every 1 --metrics whole.jsonl")
    for latest, printed, warning in [
        ("step-00000002\n", "3: step 3,", "names step-00000002; the newest checkpoint there is step-00000003"),  # a kill between two renames
        ("step-00000003\r\n", "3", ""),
        ("step-00000009\n", "", "names step-00000009"),
    ]:
        write("runs/latest", latest.encode())
        resumed = train("--steps 4 --resume runs").prints(f"^resumed from runs/step-0000000{printed}")
        assert not warning or resumed.warns(f"runs/latest {warning}")
    train("--steps 4 --resume runs/step-00000002").prints("^resumed from runs/step-00000002: step 2,")


def test_auto_starts_a_run_and_resumes_it(program, train):
    train(f"--steps 2 --checkpoint-every 1 {AUTO} auto").prints("^--resume auto: auto holds no checkpoint; a fresh start$")
    train(f"--steps 3 --metrics again.jsonl {AUTO} auto").prints("^resumed from auto/step-00000002")
    assert steps("whole.jsonl", 3) == steps("again.jsonl")
    os.remove("auto/step-00000002/manifest.json")
    os.remove("auto/step-00000003/manifest.json")
    resumed = train(f"--steps 4 {AUTO} auto").prints("^resumed from auto/step-00000001")
    resumed.warns("skipping auto/step-00000003: .*manifest.json: no such file")
    for manifest in pathlib.Path("auto").glob("*/manifest.json"):
        manifest.unlink()
    program.refuses("auto holds checkpoints and none is complete", TRAIN, f"--steps 5 {AUTO} auto", lines=None)
    program.refuses("resume auto takes the newest checkpoint of --checkpoint-dir, which is missing", TRAIN, "--resume auto")


def test_a_flipped_bit_is_found(program, train):
    changed = "bytes 983040 to 1048575 are not those that were written"
    copied("runs/step-00000003", "flipped")
    flip("flipped/optimizer.safetensors", 1000000)
    program.refuses(f"flipped/optimizer.safetensors: {changed}", TRAIN, "--steps 4 --resume flipped")
    copied("runs", "spoilt")
    flip("spoilt/step-00000003/optimizer.safetensors", 1000000)
    train("--steps 4 --checkpoint-dir sound --resume runs/step-00000002 --metrics sound.jsonl")
    for resume in ("auto", "spoilt"):  # all ranks use the newest sound step
        fresh("spoilt/step-00000004")
        resumed = train(f"--steps 4 --checkpoint-dir spoilt --resume {resume} --metrics {fresh('spoilt.jsonl')}")
        resumed.prints("resumed from spoilt/step-00000002").warns(f"skipping spoilt/step-00000003: .*{changed}")
        assert steps("sound.jsonl") == steps("spoilt.jsonl")
    os.rename("flipped", "step-00000004")
    program.refuses("step-00000004: is the folder of step 4, and its trainer.json is of step 3",
                    TRAIN, "--steps 4 --resume step-00000004")


def test_the_newest_and_the_one_resumed_from_are_kept(program, train):
    train("--steps 5 --checkpoint-dir runs --checkpoint-every 1 --keep 2 --resume runs/step-00000002")
    assert steps_in("runs") == [2, 4, 5]
    train(f"--steps 7 --checkpoint-every 1 --keep 1 {AUTO} runs")
    assert steps_in("runs") == [5, 7]
    assert not [path for path in listing("runs") if ".tmp" in path or path.endswith("run.lock")]
    program.refuses("keep -1 must be at least 0", TRAIN, "--checkpoint-dir runs --keep=-1")


def test_a_full_disk_is_found_before_training(program, train):
    with small_disk("disk", "3m"):
        program.refuses("checkpoint-dir disk/c: a checkpoint takes [0-9]+ bytes and its disk has [0-9]+ left: No space",
                        TRAIN, "--steps 2 --checkpoint-dir disk/c")


def test_two_runs_do_not_share_a_folder(program, train):
    with program.start(TRAIN, "--steps 1000000 --checkpoint-dir shared --checkpoint-every 1 --keep 1") as first:
        first.until(lambda: os.path.exists("shared/latest"), "a checkpoint")
        process = f"process {first.process.pid}"
        program(TRAIN, "--steps 2 --checkpoint-dir shared", status=2).warns(f"another run writes there: {process} on ")
        assert first.process.poll() is None
    last = int(read("shared/latest").removeprefix("step-"))
    resumed = train(f"--steps {last + 1} {AUTO} shared")
    resumed.warns(f"shared/run.lock was left by {process} .* its lock is taken over")
    assert not os.path.exists("shared/run.lock")


def test_a_folder_of_another_run_is_refused(program, train):
    program.refuses("checkpoint-dir auto: holds checkpoints of another run, up to auto/step-[0-9]+; go on with that run by "
                    "--resume auto, or", TRAIN, "--steps 5 --checkpoint-dir auto")
    os.mkdir("afresh")  # as a scheduler starts a run, and starts it again
    train(f"--steps 1 {AUTO} afresh").prints("^--resume auto: afresh holds no checkpoint; a fresh start$")
    train(f"--steps 2 {AUTO} afresh --lr 0.01").prints("^resumed from afresh/step-00000001")
    program.refuses("checkpoint-dir afresh: afresh/step-00000002 is a checkpoint of another run than sound/step-00000004, "
                    "which --resume takes", TRAIN, "--steps 5 --checkpoint-dir afresh --resume sound/step-00000004")
    copied("sound", "mixed")
    copied("afresh/step-00000002", "mixed/step-00000002")  # as earlier versions left it
    program.refuses("checkpoint-dir mixed: mixed/step-00000002 is a checkpoint of another run than mixed/step-00000004",
                    TRAIN, f"--steps 5 {AUTO} mixed")
    for step in pathlib.Path("mixed").glob("step-*"):  # nothing distinguishes runs of earlier versions
        trainer = re.sub('.*"identity".*\n', "", read(step / "trainer.json"))
        write(step / "trainer.json", trainer.replace('"format_version": 2', '"format_version": 1'))
        os.remove(step / "manifest.json")
    train(f"--steps 5 {AUTO} mixed").prints("^resumed from mixed/step-00000004")
    resumed = train("--steps 3 --checkpoint-dir afresh --resume afresh/step-00000001")
    resumed.prints("^resumed: afresh keeps its later steps, up to 2, which --resume auto would take$")


def test_another_model_is_another_run(program, train):
    train("--steps 1 --checkpoint-dir base")
    for other in ("--layers 1", "--lora-rank 2"):
        train(f"--steps 1 --checkpoint-dir {fresh('other')} {other}")
        assert identity("base") != identity("other"), other
    program.refuses("other/step-00000001 is a checkpoint of another run than base/step-00000001, which --resume takes",
                    TRAIN, "--steps 2 --checkpoint-dir other --resume base")


def test_weights_are_another_model_if_they_differ_wherever_they_are(train):
    moved, others = "moved/step-00000001", "sound/step-00000004"
    train("--steps 1 --checkpoint-dir fine", "base/step-00000001")
    os.rename("base", "moved")
    train("--steps 1 --checkpoint-dir again", moved)
    same("fine/step-00000001/trainer.json", "again/step-00000001/trainer.json")
    train(f"--steps 2 {AUTO} fine", moved).omits("^resumed: --model")
    resumed = train(f"--steps 3 {AUTO} fine", others)
    resumed.prints("^resumed: --model was the weights of digest [0-9a-f]{16}, is the weights of digest [0-9a-f]{16}$")
    train("--steps 1 --checkpoint-dir fourth", others)
    assert identity("fourth") != identity("again")
    train(f"--steps 4 {AUTO} fine", moved).omits("^resumed: --model")  # the run began with these

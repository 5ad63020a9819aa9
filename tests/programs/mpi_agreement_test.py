# SPDX-License-Identifier: Apache-2.0
"""Ranks that see other files, weights, checkpoints or another program: one message with both values, status 2, before
anything is trained, evaluated or written. Folders of ranks stand for disks of hosts."""
import os
import pathlib
import re
import shutil

import pytest

from support.files import GOLDEN, copied, flip, fresh, lines_with, read, text, write
from support.program import Program, run

SIZE = "--data text.txt --seq-len 16 --precision fp32 --threads 1"
TRAIN = f"train {SIZE} --model tiny --batch-size 4 --lr-schedule constant --steps"
RESUME = f"{TRAIN} 6 --resume saved"
NOT_SHARED = "is not the folder that rank 0 writes, or cannot be written from here: run.lock"
MPIRUN = Program("mpirun")


@pytest.fixture(scope="module", autouse=True)
def folders(program):
    for folder in "ab":
        text(3000, f"{folder}/text.txt")
        shutil.copytree(GOLDEN / "llama-gqa", f"{folder}/model")


def apart(program, *arguments):
    """The arguments of mpirun that start rank 0 in folder a and rank 1 in folder b."""
    command = program.command(*arguments)
    return ["--oversubscribe", "-np", "1", "-wdir", "a", *command, ":", "-np", "1", "-wdir", "b", *command]


def differ(program, pattern, *arguments):
    """Both are refused, in one line of ours."""
    ended = MPIRUN.refuses(pattern, apart(program, *arguments), lines=None)
    assert len(lines_with(pattern, ended.err)) == 1, f"reported more than once: {ended}"


def test_data(program):
    flip("b/text.txt", 2000)
    data = "do not see the same: rank 0 has 'data = 1 files, 3000 bytes, digest [0-9a-f]+', rank 1 has 'data = "
    differ(program, data, TRAIN, "2 --checkpoint-dir saved")
    differ(program, data, "eval --model", GOLDEN / "llama-gqa", SIZE)
    os.remove("b/text.txt")
    differ(program, "rank 1: data: text.txt: no such file", TRAIN, "2")
    shutil.copy("text.txt", "b")


def test_a_folder_of_checkpoints_that_hosts_do_not_share(program):
    differ(program, f"rank 1: --checkpoint-dir saved: {NOT_SHARED}: No such file or directory; "
           "give a folder that all hosts share", TRAIN, "2 --checkpoint-dir saved")


@pytest.mark.skipif(os.system("unshare -m true 2>/dev/null"), reason="unshare is not permitted here")
def test_a_folder_of_checkpoints_that_one_host_cannot_write(program):
    os.mkdir("c")
    command = program.command(TRAIN, "2 --checkpoint-dir c")
    other = ["unshare", "-m", "bash", "-c", 'mount --bind c c && mount -o remount,bind,ro c && exec "$@"', "-"]
    MPIRUN.refuses(f"rank 1: --checkpoint-dir c: {NOT_SHARED}: Read-only file system",
                   "--oversubscribe -np 1", command, ": -np 1", other, command, lines=None)


def test_models(program):
    flip("b/model/model.safetensors", -1)
    weights = "rank 0 has 'model/model.safetensors = [0-9]+ bytes, digest [0-9a-f]+', rank 1 has"
    differ(program, weights, "eval --model model", SIZE)
    differ(program, weights, "train --model model --steps 1 --batch-size 4", SIZE)
    config = pathlib.Path("b/model/config.json")
    write(config, re.sub('"rms_norm_eps": *[0-9.e-]*', '"rms_norm_eps": 0.0099', read(config)))
    differ(program, """rank 0 has ' *"rms_norm_eps": .*rank 1 has ' *"rms_norm_eps": 0.0099,'""",
           "eval --model model", SIZE)


def save(program, folder, *flags):
    run("mpirun --oversubscribe -np 2 -wdir", folder, program.command(
        TRAIN, "4 --checkpoint-every 2 --checkpoint-dir saved", *flags))


def test_no_rank_falls_back_to_another_checkpoint_alone(program):
    save(program, "a")
    os.truncate(copied("a/saved", "b/saved") + "/step-00000004/optimizer.safetensors", 100)
    differ(program, "rank 1: saved/step-00000004/optimizer.safetensors", RESUME)
    fresh("b/saved")
    differ(program, "rank 1: saved/step-00000004: no such", RESUME)
    save(program, "b", "--lr 0.002")
    differ(program, "rank 0 has 'saved/step-00000004/.* = [0-9]+ bytes, digest [0-9a-f]+', rank 1 has", RESUME)
    copied("a/saved", "b/saved")
    fresh("a/saved/step-00000004")  # what rank 0 finds is what all take
    resumed = run("mpirun", apart(program, RESUME, "--metrics metrics.jsonl"))
    resumed.prints("^resumed from saved/step-00000002: step 2,")


def test_programs(program):
    note = run("readelf -n", program.path).out
    build, data = bytes.fromhex(re.search("Build ID: ([0-9a-f]+)", note)[1]), program.path.read_bytes()
    assert data.count(build) == 1
    write("other", data.replace(build, build[::-1])).chmod(0o755)
    MPIRUN.refuses("different arguments: rank 0 has 'build = .*rank 1 has 'build = ", "--oversubscribe -np 1",
                   program.command(TRAIN, "1"), ": -np 1 ./other", TRAIN, "1", lines=None)

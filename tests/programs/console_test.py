# SPDX-License-Identifier: Apache-2.0
"""What a run prints: whole lines into a file, a progress line that a terminal overwrites; metrics line by line."""
import json
import os
import re
import shlex
import shutil

import pytest

from support.files import lines_with, records
from support.program import Program, as_printed

CORES = len(os.sched_getaffinity(0))
TINY = "train --data text.txt --model tiny --seq-len 16 --precision fp32"
TRAIN = f"{TINY} --steps 10 --threads 1"
ONE_THREAD = "^stack .*, 1 rank x 1 thread, "


def test_lines_in_a_file_and_metrics(program):
    ended = as_printed(program, TRAIN, "--log-every 4 --validation-every 5 --metrics metrics.jsonl --trace trace.json",
                       "--checkpoint-dir saved")
    assert not re.search(r"[\r\033]", ended.out) and not ended.err, ended
    ended.prints("^step +8/10 .* [0-9]+:[0-9]+ left$", "^step 10/10 .*%$", "^checkpoint saved/step-00000010",
                 "^step 5  held-out loss [0-9.]+ nats per token")
    assert len(lines_with("^step .* tok/s", ended.out)) == 4, ended  # steps 1, 4, 8 and 10
    lines = records("metrics.jsonl")
    assert [line.get("event", line.get("step")) for line in lines] == [
        "start", 1, 2, 3, 4, 5, "validation", 6, 7, 8, 9, 10, "validation", "summary"], lines
    assert {"stack", "model", "seed", "world", "threads"} <= lines[0].keys()
    for line in lines:
        if "event" not in line:
            assert {"loss", "grad_norm", "lr", "tokens", "tokens_per_second", "step_seconds", "peak_bytes", "tflops",
                    "mfu", "mfu_peak"} <= line.keys(), line
            assert line["tokens"] == 128 * line["step"] and line["mfu_peak"].startswith("matmul f32"), line
    assert {"validation_loss", "tokens", "seconds", "peak_bytes"} <= lines[-1].keys()
    with open("trace.json") as file:
        events = json.load(file)["traceEvents"]
    assert len(events) > 100 and {"gather 0", "forward 1"} & {event["name"] for event in events}


@pytest.mark.parametrize("launcher, flags, printed, warning", [
    ("", f"--threads 1 --comm threads:{CORES + 1}", "",
     rf"^tessera: warning: {CORES + 1} ranks have 1 thread each and may run on {CORES} cores?, .*; take fewer ranks$"),
    # What a launcher reports of cores is compared with what the process has; OMP_NUM_THREADS counts without --threads.
    (f"env SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_CPUS_PER_TASK=2 taskset -c {min(os.sched_getaffinity(0))}", "",
     ONE_THREAD, "warning: a process of this run may run on 1 core, and the job requested 2 for each process "
     r"\(SLURM_CPUS_PER_TASK\); start it with srun --cpus-per-task=2$"),
    (f"env SLURM_CPUS_ON_NODE={CORES}", "--comm threads:1", "", None),
    ("", "--threads 1 --warmup 4", "", "^tessera: warning: --warmup 4 is more than --steps 1, so that the learning rate ends at "
     "0.00025 of --lr 0.001; "),
    (f"env OMP_NUM_THREADS=1 SLURM_CPUS_ON_NODE={CORES}", "", ONE_THREAD, None),
    (f"env OMP_NUM_THREADS={CORES + 1}", "", "", f"warning: a rank has {CORES + 1} threads and may run on {CORES} cores?, "
     f"which makes steps slow; take --threads {CORES}$"),
    (f"env OMP_NUM_THREADS={CORES + 1}", "--threads 1", ONE_THREAD, None),
])
def test_warnings(program, launcher, flags, printed, warning):
    ended = program.under(launcher)(TINY, f"--steps 1 --batch-size {CORES + 1}", flags).prints(printed)
    assert not ended.err if warning is None else len(lines_with(warning, ended.err)) == 1, ended


@pytest.mark.skipif(not shutil.which("script"), reason="no script(1), which makes a terminal")
def test_a_terminal(program):
    terminal = Program("script")
    command = shlex.join(program.command(TRAIN, "--log-every 100"))
    ended = as_printed(terminal, "-qec", [command], "/dev/null", env=os.environ | {"TERM": "xterm"})
    ended.prints(r"\r\033\[K", r"% +step [0-9]+/10 .* left")
    ended = as_printed(terminal, "-qec", [command], "/dev/null", env=os.environ | {"TERM": "dumb"})
    assert "\033" not in ended.out, ended

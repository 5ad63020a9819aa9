# SPDX-License-Identifier: Apache-2.0
"""--patience ends a run whose held-out loss no longer falls; its best step stays; resumed it ends at the same step."""
import os
import re
import shutil

from support.files import records, summary
from support.program import trained

FLAGS = ("train --data text.txt --data-format bytes --model tiny --seq-len 32 --batch-size 4 --precision fp32 --seed 1 "
         "--lr 1e-2 --lr-schedule constant --validation-fraction 0.2 --validation-every 3 --patience 2 --steps 300 "
         "--threads 1")


def best_step(ended):
    return int(re.search("that of step ([0-9]*)", ended.out)[1])


def test_a_run_ends_and_its_best_step_stays(program):
    ended = trained(program, "all", FLAGS, "--checkpoint-every 3").prints(
        "ended, since 2 held-out losses in a row were no lower than that of step [0-9]+, [0-9.]+")
    best, last = best_step(ended), summary("all.jsonl")["steps"]
    assert last == best + 6
    assert os.path.isdir(f"all/step-{last:08}")
    held_out = {record["step"]: float(record["validation_loss"])
                for record in records("all.jsonl") if record.get("event") == "validation"}
    assert min(held_out, key=held_out.get) == best

    few = best_step(program(FLAGS, "--checkpoint-dir few --keep 1 --checkpoint-every 3 --comm threads:2"))
    assert sum(name.startswith("step-") for name in os.listdir("few")) <= 2, "more than the newest and the best"
    assert os.path.isdir(f"few/step-{few:08}")

    shutil.copytree("all", "again")
    shutil.rmtree(f"again/step-{last:08}")
    program(FLAGS, "--checkpoint-dir again --resume auto").prints(
        f"held-out losses in a row were no lower than that of step {best},")
    assert os.path.isdir(f"again/step-{last:08}")
    program(FLAGS, "--checkpoint-dir again --resume auto").prints(f"no lower than that of step {best},")
    program.refuses("--patience counts held-out losses", "train --data text.txt --model tiny --patience 3")

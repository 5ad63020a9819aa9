# SPDX-License-Identifier: Apache-2.0
"""plot: a picture of one run and of two, of resumed and damaged metrics files; event files of a resumed run."""
import os
import shutil
import xml.etree.ElementTree

import pytest

from support.files import read, steps, write

TRAIN = ("train --data text.txt --model tiny --seq-len 16 --batch-size 4 --precision fp32 --threads 1 --steps 6 "
         "--warmup 1 --validation-fraction 0.1 --validation-every 2 --lr-schedule wsd --lr-decay-steps 2 "
         "--metrics 'a&b.jsonl' --tensorboard board")
IS_DRAWN = "is whole.jsonl, which is to be drawn; give the picture a name of its own"
SVG = "{http://www.w3.org/2000/svg}"


def points(picture):
    """How many points each polyline has, and the number of points of held-out losses."""
    root = xml.etree.ElementTree.parse(picture).getroot()
    assert root.tag == f"{SVG}svg"
    return ([len(line.get("points").split()) for line in root.iter(f"{SVG}polyline")],
            sum(circle.get("class") == "held-out" for circle in root.iter(f"{SVG}circle")))


def test_a_run_and_the_same_resumed_into_the_same_files_are_drawn(program):
    program(TRAIN, "--checkpoint-dir saved --checkpoint-every 3")
    program("plot a&b.jsonl")
    assert points("plot.svg") == ([6, 6, 6], 3)
    rates = [float(step[3]) for step in steps("a&b.jsonl")]
    assert rates[:4] == [0.001] * 4 and 1e-4 < rates[4] < 1e-3 and abs(rates[5] - 1e-4) < 1e-12

    shutil.copy("a&b.jsonl", "whole.jsonl")
    write("a&b.jsonl", read("whole.jsonl") + '{"step":7,"lo')
    program(TRAIN, "--resume saved/step-00000003").omits("^resumed: --(lr|tensorboard)")
    lines = read("a&b.jsonl").splitlines(keepends=True)
    write("mended.jsonl", "".join(lines[:11] + lines[12:]))
    assert steps("mended.jsonl", 4)[3:] == steps("whole.jsonl", 4)
    program("plot a&b.jsonl whole.jsonl --out two.svg").warns(
        "a&b.jsonl:12: is no line of a metrics file, or a part of one; left out")
    assert points("two.svg") == ([6] * 6, 6)
    assert sum(name.startswith("events.out.tfevents.") for name in os.listdir("board")) == 2
    write("empty.jsonl", "")
    os.symlink("whole.jsonl", "link.svg")


@pytest.mark.parametrize("pattern, arguments", [
    ("give metrics files: tessera plot", ""),
    ("plot: none.jsonl: cannot be read: No such file", "none.jsonl"),
    ("plot: empty.jsonl holds no step", "whole.jsonl empty.jsonl"),
    ("out no/where.svg: cannot be written: No such file", "whole.jsonl --out no/where.svg"),
    ("out /dev/full: cannot be written .is the disk full", "whole.jsonl --out /dev/full"),
    *((IS_DRAWN, f"mended.jsonl whole.jsonl --out {out}") for out in ("whole.jsonl", "./whole.jsonl", "link.svg")),
])
def test_what_cannot_be_drawn_is_refused(program, pattern, arguments):
    before = read("whole.jsonl")
    program.refuses(pattern, "plot", arguments)
    assert read("whole.jsonl") == before

# SPDX-License-Identifier: Apache-2.0
"""`train --fit` under mpirun: processes agree on a configuration; an error is reported once, that of one rank too."""
import pathlib

import pytest

from support.files import cluster, lines_with, same, steps, text
from support.program import flags_taken, trained

FLAGS = "train --data text.txt --model tiny --layers 2 --seq-len 32 --batch-size 8 --threads 1 --steps 3"
FIT = f"{FLAGS} --fit --cluster two.toml"
LARGE = ("train --fit --cluster ample.toml --data text.txt --vocab 32000 --hidden 4096 --layers 2 --heads 32 "
         "--intermediate 11008 --seq-len 64 --batch-size 4 --threads 1")


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    text(3000, "text.txt")
    cluster("two.toml")
    cluster("ample.toml", "memory=800_000_000_000")


@pytest.mark.parametrize("windows", ["--shared-windows=true", "--shared-windows=false"])
def test_the_run_is_that_of_the_flags_that_it_takes(program, windows):
    two = program.under("mpirun --oversubscribe -np 2")
    fitted = trained(two, "fit", FIT, windows)
    assert len(lines_with("^fit ", fitted.out)) == 3 and len(lines_with("; taken$", fitted.out)) == 1
    for number in (1, 2, 3):
        assert len(lines_with(f"^--fit: timing {number} of 3", fitted.err)) == 1
    trained(two, "direct", FLAGS, flags_taken(fitted), windows)
    assert steps("fit.jsonl") == steps("direct.jsonl")
    files = list(pathlib.Path("fit").glob("step-*/*.safetensors"))
    assert files
    for file in files:
        same(file, "direct" / file.relative_to("fit"))


def test_one_process_may_be_alone(program):
    program(FLAGS, "--comm mpi --fit --cluster epyc").prints("; taken$")


def test_an_error_is_reported_once(program):
    one = program.under("mpirun --oversubscribe -np 1")
    one.refuses("different arguments: rank 0 has 'seed = 1', rank 1 has 'seed = 2'", FIT, "--seed 1 : -np 1",
                program.path, FIT, "--seed 2", lines=None)
    ended = program.under("mpirun --oversubscribe -np 3").refuses(
        "^tessera: --fit: the run has 3 ranks, and --cluster two.toml is of 2", FIT, lines=None)
    assert len(lines_with("the run has 3 ranks", ended.err)) == 1
    for windows in ("--shared-windows=true", "--shared-windows=false"):  # one rank alone has too little memory
        ended = one.refuses("^tessera: --fit: a plan says that these ways fit, and for none of them is there memory",
                            LARGE, windows, ": -np 1 bash -c 'ulimit -v 3000000; exec \"$@\"' -", program.path,
                            LARGE, windows, lines=None)
        assert len(lines_with("for none of them", ended.err)) == 1

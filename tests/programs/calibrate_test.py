# SPDX-License-Identifier: Apache-2.0
"""`tessera calibrate` measures the file of a cluster, which `tessera plan` takes; errors of what cannot be written."""
import os
import re
import stat

import pytest

from support.files import contains, fresh, lines_with, listing, read, write
from support.program import has_stack, run


def test_plan_takes_the_file(program):
    before = listing()
    program("calibrate --comm threads:2 --threads 1 --repeats 3 --out machine.toml").prints("^machine.toml$")
    assert set(listing()) ^ set(before) == {"machine.toml"}
    contains("machine.toml", "^ranks = 2 ", "^# .*: 1 node, 2 ranks each, 1 thread$",
             "^matmul_bf16 = [0-9.e+]+  # FLOP/s in bf16 of matmuls .*; .* to .* in 3 repeats$",
             "^# network_bandwidth: not measured, one node; give it to plan several$")
    program("plan --cluster machine.toml --model tiny").prints(
        "^fsdp2 / threads / bf16 on machine.toml, 2 ranks in 1 node, ")
    program.refuses("--cluster machine.toml: network_latency is missing; give it: ",
                    "plan --cluster machine.toml --model tiny --ranks 4")

    figures = {}
    for line in read("machine.toml").splitlines():
        if match := re.match(r"(\w+) = ([0-9.e+-]+)  #", line):
            figures[match[1]] = float(match[2])
        if spread := re.search(r"; (\S+) to (\S+) in 3 repeats", line):
            assert 0.99 * float(spread[1]) <= figures[match[1]] <= 1.01 * float(spread[2]), line
    assert 1e9 < figures["matmul_fp32"] <= figures["peak_fp32"] < 1e14
    assert figures["matmul_bf16"] <= figures["peak_bf16"]
    for dtype in ("bf16", "fp32"):
        for size in ("medium", "small"):
            assert 1e9 < figures[f"matmul_{dtype}_{size}"] <= figures[f"peak_{dtype}"]
    assert 1e8 < figures["memory_bandwidth"] < 1e13 and 1e8 < figures["node_bandwidth"] < 1e13
    assert 0 < figures["collective_latency"] < 0.1 and figures["threads"] == 1 and figures["memory"] > 2**27


def test_it_is_printed_without_a_file_and_once_by_several_processes(program):
    one = program("calibrate --threads 1 --repeats 1")
    one.prints("^ranks = 1 ", "^node_bandwidth = .*; not measured, one rank: a copy of its own$")
    os.symlink("behind.toml", fresh("link.toml"))
    program("calibrate --threads 1 --repeats 1 --out link.toml")
    os.remove("link.toml")
    contains("behind.toml", "^ranks = 1 ")
    program("calibrate --threads 1 --repeats 1 --out /dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    if has_stack(program, "mpi"):
        two = program.under("mpirun --oversubscribe -np 2")("calibrate --threads 1 --repeats 1").prints("^ranks = 2 ")
        assert len(lines_with("^ranks = ", two.out)) == 1


def on_nodes(program, *names, **options):
    """Calibrates with a rank on each of these hosts; a rank renames its host in a namespace of its own."""
    node = "-np 1 unshare -u bash -c 'hostname \"$0\" && exec \"$@\"'"
    jobs = [[node, name, program.path, "calibrate --threads 1 --repeats 1 --deadline 60", ":"] for name in names]
    return run("mpirun --oversubscribe", *sum(jobs, [])[:-1], **options)


def test_figures_of_several_nodes_are_those_inside_and_between_them(program):
    if not (has_stack(program, "mpi") and "Open MPI" in run("mpirun --version").out
            and run("unshare -u true", status=None).status == 0):
        pytest.skip("there is no Open MPI, or no host can be given another name")
    four = on_nodes(program, "one", "one", "two", "two").prints(
        "^# .*: 2 nodes, 2 ranks each, 1 thread$", "^ranks = 4 ", "^ranks_per_node = 2 ",
        *(f"^{key} = .* in 1 repeats$" for key in ("node_bandwidth", "network_latency", "network_bandwidth")))
    write("nodes.toml", four.out)
    program("plan --cluster nodes.toml --model tiny --batch-size 8").prints(
        "^fsdp2 / mpi / bf16 on nodes.toml, 4 ranks in 2 nodes, ")
    on_nodes(program, "one", "two").prints("^ranks_per_node = 1 ",
                                           "^node_bandwidth = .*not measured: one rank on each node$")
    for names in (("one", "two", "one"), ("one", "one", "two")):
        refused = on_nodes(program, *names, status=None).warns(
            r"calibrate: one has (ranks again behind those of two|2 of the ranks and two 1); "
            "plans have equally many ranks on each node, ")
        assert refused.status != 0


def test_errors(program):
    write("flags.toml", "repeats = 1\n")
    os.mkdir("folder")
    program.refuses("--out none/machine.toml: cannot be written: ", "calibrate --out none/machine.toml")
    program.refuses("--out ./flags.toml is the file of --config; give it a file of its own",
                    "calibrate --config flags.toml --out ./flags.toml")
    contains("flags.toml", "^repeats = 1$")
    program.refuses("--out folder: cannot be written: Is a directory", "calibrate --out folder --repeats 1000")
    program.refuses("--repeats 0", "calibrate --repeats 0")

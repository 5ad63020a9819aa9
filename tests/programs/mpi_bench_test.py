# SPDX-License-Identifier: Apache-2.0
"""`tessera_bench comm` under mpirun: operations with and without shared windows, next to MPI's own. Nothing asserts a time."""
import json

import pytest


@pytest.mark.parametrize("flag, ways", [("", ["windows", "messages"]), ("--shared-windows=false", ["-"])])
def test_every_operation(program, flag, ways):
    ended = program.under("mpirun --oversubscribe -np 3")("comm --bytes 100000 --repeats 2", flag)
    lines = [json.loads(line) for line in ended.out.splitlines()]
    for line in lines:
        assert line["backend"] == "mpi" and line["ranks"] == 3 and line["bytes"] == 100000, line
        assert line["ms"] > 0 and line["ratio"] > 0 and line.get("ratio_to_library", 1) > 0, line
    assert [(line.get("way", "-"), line["op"], "library_ms" in line) for line in lines] == [
        (way, op, op in ("all_gather", "reduce_scatter"))
        for way in ways for op in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")]

# SPDX-License-Identifier: Apache-2.0
"""`bench/gpu.sh card` from end to end: the program on the fakes of CUDA and NCCL, and fakes of everything else."""
import json
import os
import re
import shutil
import subprocess

import pytest
from gpu_script_test import FAKES
from support.files import TESTS, read, write
from cuda_host.program.ranks import LIMIT
from support.program import run

SMALL = "--layers 1 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 32 --vocab 64 --seq-len 8 --batch-size 4"
TESSERA = """
export TESSERA_DOUBLE_GPUS=1 TESSERA_DOUBLE_GPU_BYTES=100000000000
[ -z "${MASTER_PORT:-}" ] || { export TESSERA_DOUBLE_FOLDER=$PWD/doubles.$MASTER_PORT; mkdir -p "$TESSERA_DOUBLE_FOLDER"; }
[[ "$*" != *"${BROKEN:-nothing}"* ]] || { echo "tessera: planted" >&2; exit 3; }
exec "$REAL_PROGRAM" "$@" """
MORE = {
    "programs/tests_cuda_stacks": FAKES["programs/tests_cuda"],
    "programs/bench_step": """
echo '{"bench": "step of a 1.5-billion Llama, 4 x 4096 tokens", "ms": 400.00, "share_of_matmul_rate": 0.5}'
[ -z "${TIMELINE:-}" ] || echo '{"bench": "timeline, graphs", "busy_ms": 299.0}' >"$TIMELINE" """,
    "programs/bench_matmuls": """echo '{"bench": "residual as C", "ms": 0.5}'""",
    "bin/python3": "exit 1",  # without torch
    "bin/ncu": """
if [ -n "${MANY:-}" ]; then
  yes '{"bench": "many", "value": 1234567890123456789012345678901234567890}' | head -n 20000
  yes "a log" | head -n 9000
  exit 1
fi
printf '%s\\n' '==PROF== Connected' '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"' \
  '"0","void norm_rows<bf16>(int)","sm__inst_executed.sum","inst","1,234,567"' >"$3" """,
}
SCRIPTED = """
while [ $# -gt 0 ]; do
  case $1 in
    diff) exit "${DIFF:-0}" ;;
    --metrics) metrics=$2 ;;
    --steps) steps=$2 ;;
    --cuda-graphs) [ "$2" = off ] || LOSS=${GRAPHS_LOSS:-${LOSS:-5.0}} ;;
  esac
  shift
done
[ "$WORLD_SIZE" != 1 ] || LOSS=5.0
[ "$RANK" != 0 ] || for step in 1 2 3 4; do echo "{\\"step\\":$step,\\"loss\\":${LOSS:-5.0},\\"grad_norm\\":1.0,\\"step_seconds\\":1}"; done >"$metrics"
[ "$steps" != 100000 ] || { sleep 1; exit "${SURVIVORS:-3}"; }"""
NCCL = ["2 ranks, fsdp2", "2 ranks, zero1", "2 ranks, replicated", "4 ranks, hybrid:2", "4 ranks, hybrid:2:full",
        "4 ranks, fsdp2:2", "4 ranks, fsdp2", "4 ranks, fsdp2, Ring", "4 ranks, ulysses:2", "1, 2 and 4 ranks, pieces", "2 ranks, fsdp2, one killed",
        "4 ranks, hybrid:2, one killed", "4 ranks, hybrid:2 as graphs, one killed"]


@pytest.fixture
def card(program, folder):
    """Runs it with these arguments and variables, and returns {name: result}, the rows, and all of the report."""
    for path, lines in (FAKES | MORE | {"programs/tessera": TESSERA}).items():
        write(path, f"#!/usr/bin/env bash\n{lines}\n").chmod(0o755)

    def ran(*arguments, status=0, **variables):
        shutil.rmtree("build", ignore_errors=True)
        environment = {"PROGRAMS": str(folder / "programs"), "CALLS": str(folder / "calls"), "BUILD": str(folder / "build"),
                       "OUT": str(folder), "REAL_PROGRAM": str(program.path), "CARD_MODEL": SMALL, "CARD_STEPS": "3",
                       "CARD_REPEATS": "1", "SLOW": "3",
                       "PATH": f"{folder}/bin:{folder}/sanitizer:{os.environ['PATH']}"}
        ended = run("bash", TESTS.parent / "bench/gpu.sh", "card", *arguments, status=None, limit=LIMIT, stderr=subprocess.STDOUT,
                    env=os.environ | environment | variables)
        assert os.path.getsize("report.json") < 1 << 20
        report = json.loads(read("report.json"))
        assert ended.status == status, [entry for entry in report["results"] if entry["result"].startswith("FAILED")]
        return {entry["name"]: entry["result"] for entry in report["results"]}, report["rows"], report
    return ran


def test_every_step_passes_or_is_skipped_with_a_reason(card):
    results, rows, report = card("300")
    assert {f"NCCL, {name}" for name in NCCL} <= set(results)
    for name, result in results.items():
        assert re.match("passed, [0-9]+ s$|SKIPPED: python3 has no torch$", result), (name, result)
    kernels = {row["kernel"]: row["value"] for row in rows if row["bench"] == "counters"}
    assert kernels == {"void norm_rows<bf16>(int)": 1234567}
    assert {"timeline, graphs", "calibrate --comm nccl", "fsdp2 on 4 ranks, Ring, graphs"} <= {row["bench"] for row in rows}
    assert any("ratio_to_measured" in row for row in rows if row["bench"] == "plan of the step, 4 x 4096 tokens")
    goals = {(goal["name"], goal["field"]): goal["result"] for goal in report["goals"]}
    assert goals["step of a 1.5-billion Llama, 4 x 4096 tokens", "ms"] == "MISSED"  # of an H100
    assert "1755 to 1755 MHz, 612 W, 55 C, reasons 0x0000000000000004" in [entry["clocks"] for entry in report["results"]]
    assert "interfaces: " in report["inventory"]


def test_steps_that_fail_are_reported_and_the_others_run(card):
    results, rows, report = card("300", "fsdp2:2|kernels$", status=1, BROKEN="fsdp2:2 --cuda-graphs on", MANY="1")
    assert results.pop("NCCL, 4 ranks, fsdp2:2").startswith("FAILED (status 1)")
    assert results.pop("counters of kernels").startswith("FAILED (status 1)")
    assert [name for name, result in results.items() if result.startswith("passed")] == ["plain kernels"]
    assert 1000 < len(rows) < 20000  # the first of them
    failure, other = report["failures"]
    assert other["end_of_log"].count("a log") < 100
    assert failure["name"] == "NCCL, 4 ranks, fsdp2:2" and "tessera: planted" in failure["end_of_log"]
    assert "fsdp2:2 on 4 ranks, queued" in [row["bench"] for row in rows]  # before it failed


@pytest.mark.parametrize("pattern, planted, reported", [
    ("zero1|pieces|hybrid:2,.one.killed", {}, ""),
    ("zero1", {"LOSS": "5.2"}, "queued, step 1: loss 5.2, and 5.0 on one rank"),
    ("zero1", {"GRAPHS_LOSS": "5.01"}, "graphs give other losses or gradient norms"),
    ("pieces", {"DIFF": "1"}, ""),
    ("hybrid:2,.one.killed", {"SURVIVORS": "0"}, "rank 2: status 0 instead of 3")])
def test_ranks_that_differ_fail(card, pattern, planted, reported):
    write("programs/tessera", f"#!/usr/bin/env bash\n{SCRIPTED}\n")
    results, _, report = card("300", pattern, status=1 if planted else 0, **planted)
    assert len(results) == (1 if planted else 3)
    assert reported in "".join(failure["end_of_log"] for failure in report["failures"])


def test_what_there_is_no_time_for_is_named(card):
    results, _, _ = card("28", "^operations|pieces|plan$", SLOW="1")
    assert results.pop("operations").startswith("passed")
    for name, limit in ("NCCL, 1, 2 and 4 ranks, pieces", 54), ("calibrate and plan", 60):
        assert re.fullmatch(f"LEFT OUT: 1[0-9] s are left, and it may take {limit} s", results.pop(name))
    assert not results


def test_without_a_gpu_it_ends_in_a_sentence(card, folder):
    ended = run("bash", TESTS.parent / "bench/gpu.sh", "card 60", status=2, env=os.environ | {
        "NO_GPU": "1", "PATH": f"{folder}/bin:{os.environ['PATH']}"})
    assert ended.err == "bench/gpu.sh card: no GPU: No devices were found; run it on a machine that has one\n"

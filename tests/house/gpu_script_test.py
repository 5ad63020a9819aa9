# SPDX-License-Identifier: Apache-2.0
"""bench/gpu.sh with fakes of CMake, the GPU's tools and the programs that it builds: its steps, its table, its file."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from support.files import TESTS, read, write
from support.program import run

FAKES = {  # a script's path: its lines
    "bin/cmake": """[ "$1" != "${BROKEN_CMAKE:-}" ] || exit 1
[ "$1" != --build ] || cp "$PROGRAMS"/* "$2" """,
    "bin/nvidia-smi": """
[ -z "${NO_GPU:-}" ] || { echo "No devices were found"; exit 6; }
while [[ "$*" = *-lms* ]]; do echo "1755, 612.30, 55, 0x0000000000000004"; sleep 0.1; done
echo 'name, driver_version\nNVIDIA "H100", 580.1'""",
    "bin/strip": """cp "$3" "$2" """,
    "bin/nvcc": """echo 'Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0'""",
    "sanitizer/compute-sanitizer": """
[ "$1" != --version ] || { echo "NVIDIA Compute Sanitizer 2025"; exit; }
[ "$2" != "${BROKEN_TOOL:-}" ] || { echo "========= ERROR: a hazard"; exit 1; }
"${@:5}" """,
    "programs/tests_cuda": """
echo "tests_cuda $*" >>"$CALLS"
[ -z "${NO_DEVICE:-}" ] || { echo "[  SKIPPED ] Cuda.A: no device: CUDA's driver sees no GPU"; exit; }
echo "[==========] 3 tests from 1 test suite ran." """,
    "programs/bench_operations": """
[ -z "${NO_DEVICE:-}" ] || { echo '{"bench": "all", "skipped": "no device: there is none"}'; exit; }
echo '{"bench": "copy", "ms": 0.1, "gb_per_second": 3000.0}'
echo '{"bench": "rms_norm 16384 x 4096 bf16", "ms": 0.1000, "gb_per_second": 2700.0, "ratio_to_copy": 0.900}'
echo '{"bench": "swiglu", "ms": 0.1000, "gb_per_second": 1500.0, "ratio_to_copy": 0.500}'
echo '{"bench": "attention by own, 64/8 heads of 128, sequence 16384", "ms": 10.0, "tflops": 190.0, "ratio_to_matmul": 0.3}'""",
    "programs/bench_killed": """
[ -z "${NO_DEVICE:-}" ] || { echo "SKIPPED: no device: there is none"; exit; }
[ "$1" != signal ] || trap 'echo "SIGTERM: ended after step 9"; exit 143' TERM  # before it reports that it may be ended
echo "steps are graphs"
case $1 in
  error) echo "planted: rank 0 gives up" >&2; exit "${ERROR_STATUS:-1}" ;;
  silence) echo "SKIPPED: no device for a second rank"; exit ;;
  signal) for _ in $(seq 200); do sleep 0.1; done ;;
esac""",
}


@pytest.fixture(scope="module", autouse=True)
def fakes(folder):
    for path, lines in FAKES.items():
        write(path, f"#!/usr/bin/env bash\n{lines}\n").chmod(0o755)


@pytest.mark.parametrize("environment, status, printed, reported", [
    ({}, 0,
     ["^operations: passed", "^a run that fails with graphs: passed", "^a run whose peer is silent, with graphs: SKIPPED",
      "^a run that is ended with graphs: passed", "^racecheck, .*: passed", "^synccheck, ", "^initcheck, ", "^memcheck, ",
      "rms_norm 16384 x 4096 bf16 +ratio_to_copy +>= 0.75 +0.900 +met", "swiglu +ratio_to_copy +>= 0.75 +0.500 +MISSED",
      "heads of 128, sequence 16384 +tflops +>= 189 +190.0 +met", "adamw 100 million .* - +not measured"],
     ['"tessera": ', "NVIDIA .*H100", "release 13.0", '"bench": "swiglu"', '"result": "MISSED"',
      '"name": "racecheck, attention, odd sizes, 12288 columns"']),
    ({"NO_DEVICE": "1"}, 0,
     ["operations: SKIPPED: no device: CUDA's driver sees no GPU", "a run that fails with graphs: SKIPPED: no device",
      "times of operations: SKIPPED: no device", "rms_norm .*not measured"], []),
    ({"BROKEN_TOOL": "racecheck"}, 1, [r"^racecheck, .*: FAILED \(status 1\)", "^memcheck, .*: passed"],
     ['"end_of_log": ".*a hazard']),
    ({"ERROR_STATUS": "139"}, 1,
     ["bench_killed error: status 139 instead of 1", "^a run that fails with graphs: FAILED"], []),
    ({"NO_SANITIZER": "1"}, 0, ["^racecheck, .*: SKIPPED: no compute-sanitizer in PATH"], []),
], ids=["whole", "no_device", "hazard", "crash", "no_sanitizer"])
def test_smoke(folder, environment, status, printed, reported):
    shutil.rmtree("build", ignore_errors=True)
    for file in ("calls", "report.json"):
        pathlib.Path(file).unlink(missing_ok=True)
    tools = ["bin"] if "NO_SANITIZER" in environment else ["bin", "sanitizer"]
    paths = {"PROGRAMS": "programs", "CALLS": "calls", "BUILD": "build", "REPORT": "report.json"}
    run("bash", TESTS.parent / "bench/gpu.sh", "smoke", status=status, stderr=subprocess.STDOUT,
        env=os.environ | environment | {name: str(folder / path) for name, path in paths.items()}
        | {"PATH": ":".join([*(str(folder / tool) for tool in tools), os.environ["PATH"]])}).prints(*printed)
    report = read("report.json")
    json.loads(report)
    for pattern in reported:
        assert re.search(pattern, report), f"no /{pattern}/ in {report}"
    if tools == ["bin", "sanitizer"]:
        assert re.search("CudaAttention.OnTensorCores.*Cuda.RmsNormOfLongRows", read("calls"))


def test_surplus_arguments_are_refused_before_anything_is_built():
    for arguments in (["pack", "90a", "x"], ["card", "300", "fsdp2", "x"], ["smoke", "90a", "x"]):
        run("bash", TESTS.parent / "bench/gpu.sh", *arguments, status=2).warns("^usage: bench/gpu.sh card SECONDS ")


def test_pack_makes_an_archive_of_at_most_so_many_bytes(folder):
    for name in "tessera", "tests_cuda_stacks", "bench_step", "bench_matmuls", "libtessera_timeline.so":
        write(f"programs/{name}", "#!/bin/sh\n").chmod(0o755)

    def pack(**variables):
        return run("bash", TESTS.parent / "bench/gpu.sh", "pack", status=None, env=os.environ | {
            "PROGRAMS": str(folder / "programs"), "BUILD": str(folder / "pack"), "CUDNN_FRONTEND_ROOT": "/nowhere",
            "PATH": f"{folder}/bin:{os.environ['PATH']}"} | variables)

    assert pack().prints("tessera-gpu.tar.xz: [0-9]+ bytes; needs of the machine: ").status == 0
    listed = run("tar", "-tJf", "pack/tessera-gpu.tar.xz").out
    for name in "bin/tessera", "bin/bench_killed", "bin/libtessera_timeline.so", "bench/gpu.sh", "bench/gpu/ranks.sh", "libraries":
        assert f"tessera-gpu/{name}\n" in listed
    assert pack(MOST_BYTES="100").warns("has [0-9]+ bytes, [0-9]+ more than it may have; the largest file is .*/bin/").status == 1
    assert pack(BROKEN_CMAKE="--build").status == 1 and not os.path.exists("pack/tessera-gpu.tar.xz")
    missing = pack(CUDACXX="/nowhere/nvcc")
    assert (missing.status, missing.err.count("\n")) == (2, 1)
    missing.warns("^bench/gpu.sh pack: /nowhere/nvcc is not in PATH or /usr/local/cuda/bin; pack where CUDA's compiler")

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/gpu.sh with doubles of CMake, the GPU's tools and the programs that it builds: its steps, its table, its file.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/sanitizer" "$work/programs" "$work/build"

tool() { # PATH: a program of what stands on stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}
tool "$work/bin/cmake" <<'END'
[ "$1" != --build ] || cp "$PROGRAMS"/* "$2"
END
tool "$work/bin/nvidia-smi" <<'END'
echo 'name, driver_version
NVIDIA "H100", 580.1'
END
tool "$work/bin/nvcc" <<'END'
echo 'Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0'
END
tool "$work/sanitizer/compute-sanitizer" <<'END'
[ "$1" != --version ] || { echo "NVIDIA Compute Sanitizer 2025"; exit; }
[ "$2" != "${BROKEN_TOOL:-}" ] || { echo "========= ERROR: a hazard"; exit 1; }
"${@:5}"
END
tool "$work/programs/tests_cuda" <<'END'
echo "tests_cuda $*" >>"$CALLS"
[ -z "${NO_DEVICE:-}" ] || { echo "[  SKIPPED ] Cuda.A: no device: CUDA's driver sees no GPU"; exit; }
echo "[==========] 3 tests from 1 test suite ran."
END
tool "$work/programs/bench_operations" <<'END'
[ -z "${NO_DEVICE:-}" ] || { echo '{"bench": "all", "skipped": "no device: there is none"}'; exit; }
echo '{"bench": "copy", "ms": 0.1, "gb_per_second": 3000.0}'
echo '{"bench": "rms_norm 16384 x 4096 bf16", "ms": 0.1000, "gb_per_second": 2700.0, "ratio_to_copy": 0.900}'
echo '{"bench": "swiglu", "ms": 0.1000, "gb_per_second": 1500.0, "ratio_to_copy": 0.500}'
echo '{"bench": "attention by own, 64/8 heads of 128, sequence 16384", "ms": 10.0, "tflops": 190.0, "ratio_to_matmul": 0.3}'
END
tool "$work/programs/bench_killed" <<'END'
[ -z "${NO_DEVICE:-}" ] || { echo "SKIPPED: no device: there is none"; exit; }
[ "$1" != signal ] || trap 'echo "SIGTERM: ended after step 9"; exit 143' TERM  # before it says that it may be ended
echo "steps are graphs"
case $1 in
  error) echo "planted: rank 0 gives up" >&2; exit "${ERROR_STATUS:-1}" ;;
  silence) echo "SKIPPED: no device for a second rank"; exit ;;
  signal) for _ in $(seq 200); do sleep 0.1; done ;;
esac
END

run() { # STATUS NAME=VALUE...: bench/gpu.sh smoke in such an environment; $work/out and $work/report.json are what it says
  local status=0 wanted=$1
  shift
  rm -rf "$work/build" "$work/report.json" "$work/calls"
  env PATH="$work/bin:${SANITIZER-$work/sanitizer:}$PATH" PROGRAMS="$work/programs" CALLS="$work/calls" BUILD="$work/build" \
    REPORT="$work/report.json" "$@" bash "$root/bench/gpu.sh" smoke >"$work/out" 2>&1 || status=$?
  [ "$status" -eq "$wanted" ] || { echo "status $status instead of $wanted with $*:"; cat "$work/out"; exit 1; }
  python3 -m json.tool "$work/report.json" >/dev/null || { echo "no JSON with $*:"; cat "$work/report.json"; exit 1; }
}
expect() { # FILE WORDS...
  local words
  for words in "${@:2}"; do
    grep -qE -- "$words" "$1" || { echo "$1 lacks '$words':"; cat "$1"; exit 1; }
  done
}

run 0
expect "$work/out" '^operations: passed' '^a run that fails with graphs: passed' '^a run whose peer is silent, with graphs: SKIPPED' \
  '^a run that is ended with graphs: passed' '^racecheck, .*: passed' '^synccheck, ' '^initcheck, ' '^memcheck, ' \
  'rms_norm 16384 x 4096 bf16 +ratio_to_copy +>= 0.75 +0.900 +met' 'swiglu +ratio_to_copy +>= 0.75 +0.500 +MISSED' \
  'heads of 128, sequence 16384 +tflops +>= 189 +190.0 +met' 'adamw 100 million .* - +not measured'
expect "$work/report.json" '"tessera": ' 'NVIDIA .*H100' 'release 13.0' '"bench": "swiglu"' '"result": "MISSED"' \
  '"name": "racecheck, attention, odd sizes, 12288 columns"'
expect "$work/calls" 'CudaAttention.OnTensorCores.*Cuda.RmsNormOf12288Columns'

run 0 NO_DEVICE=1
expect "$work/out" "operations: SKIPPED: no device: CUDA's driver sees no GPU" 'a run that fails with graphs: SKIPPED: no device' \
  'times of operations: SKIPPED: no device' 'rms_norm .*not measured'

run 1 BROKEN_TOOL=racecheck
expect "$work/out" '^racecheck, .*: FAILED \(status 1\)' '^memcheck, .*: passed'
expect "$work/report.json" '"end_of_log": ".*a hazard'

run 1 ERROR_STATUS=139
expect "$work/out" 'bench_killed error: status 139 instead of 1' '^a run that fails with graphs: FAILED'

SANITIZER='' run 0
expect "$work/out" '^racecheck, .*: SKIPPED: no compute-sanitizer in PATH'
echo "bench/gpu.sh smoke: passed"

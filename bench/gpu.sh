#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# device::Cuda and stacks on it, on a machine that has CUDA, CMake and a C++20 compiler, and perhaps nothing else.
#
# usage: bench/gpu.sh smoke|test|bench [ARCHITECTURES]     default: 90a
#   smoke  the first minutes on a GPU: builds; tests the operations, attention and the vocabulary; kills training runs of
#          CUDA graphs; times the operations; then, where compute-sanitizer is, memcheck, racecheck, synccheck and
#          initcheck over attention, odd sizes and rows of 12288 columns
#   test   all tests of Cuda's operations; stacks whose ranks share the GPU; then, where compute-sanitizer is, memcheck
#          over some of both
#   bench  times the operations, the MLP at the published shape and a training step; the first two from PyTorch too,
#          where that is. What there is no time for is left out, and named.
# One line a result as it comes, then a table, the goals against what was measured, and all of it in one JSON file to send
# home: REPORT (default: report.json in BUILD). Ends within LIMIT seconds (default: 300, smoke 600). BUILD is where it
# builds (default: build/gpu). Status 1 where something failed; a goal that is missed fails nothing.
# The golden Llamas are among the stacks where CMake finds nlohmann-json (CMAKE_PREFIX_PATH), and runs of two
# GPUs are killed too where it finds NCCL.
# Not built here, whatever is found: the program, MPI, and what compares with the CPU; see the main build's tests_cuda and
# tests_cuda_stacks.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-} architectures=${2:-90a} build=${BUILD:-build/gpu} begin=$SECONDS
limit=${LIMIT:-300}
case $mode in
  smoke) targets=(tests_cuda bench_killed bench_operations) limit=${LIMIT:-600} ;;
  test) targets=(tests_cuda tests_cuda_stacks) ;;
  bench) targets=(bench_operations bench_mlp bench_step) ;;
  *) echo "usage: bench/gpu.sh smoke|test|bench [ARCHITECTURES]" >&2; exit 2 ;;
esac
PATH=$PATH:/usr/local/cuda/bin
left() { echo $((begin + limit - 10 - SECONDS > 1 ? begin + limit - 10 - SECONDS : 1)); }
at_most() { echo $(($1 < $(left) - 5 ? $1 : $(left) - 5)); } # SECONDS: as many, or what is left
. bench/gpu/report.sh
report_begin "$build/report"

# NAME COMMAND...: passed, FAILED, or skipped with the first reason that the command prints.
step() {
  local name=$1 start=$SECONDS log result code=0 line
  shift
  log=$(mktemp)
  timeout "$(left)" "$@" 2>&1 | tee "$log" || code=$?
  case $code in
    0) result=passed ;;
    124) result="FAILED (out of time)" ;;
    *) result="FAILED (status $code)" ;;
  esac
  if [ "$code" -eq 0 ] && grep -qE 'SKIPPED|"skipped"' "$log"; then
    result="SKIPPED: $(grep -m1 -oE 'no device[^"]*|the driver is made for[^"]*|device [0-9]+[,a-z ][^"]*' "$log" || echo "see above")"
  elif [ "$code" -eq 0 ] && grep -qE '^\[==========\] (Running )?0 (tests|cases)' "$log"; then
    result="FAILED (no test has such a name)"
  fi
  row "$name" "$result, $((SECONDS - start)) s" $((SECONDS - start))
  while IFS= read -r line; do results+=("$line"); done < <(rows_of "$log")
  case $result in FAILED*)
    printf '{"name": %s, "end_of_log": %s}\n' "$(printf %s "$name" | json)" "$(tail -n 60 "$log" | json)" >>"$report_folder/failures" ;;
  esac
  rm -f "$log"
}
finish() {
  compare_goals
  echo "----"
  printf '%s\n' "${results[@]}"
  echo "---- goals"
  show_goals
  local report=${REPORT:-$build/report.json}
  write_report "$report" "$mode" "$architectures"
  echo "---- all of this, to send home: $report"
  exit "$status"
}

for tool in cmake nvidia-smi; do
  command -v "$tool" >/dev/null || row "$tool" "not found"
done
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true

step "configure" cmake -S bench/gpu -B "$build" -DTESSERA_CUDA_ARCHITECTURES="$architectures"
[ "$status" -eq 0 ] || finish
step "build" cmake --build "$build" --target "${targets[@]}" -j "${JOBS:-$(nproc)}"
[ "$status" -eq 0 ] || finish

sanitize() { # TOOL NAME COMMAND...
  if ! command -v compute-sanitizer >/dev/null; then
    row "$1, $2" "SKIPPED: no compute-sanitizer in PATH"
  elif [ "$(left)" -lt 20 ]; then
    row "$1, $2" "SKIPPED: no time is left; LIMIT=$((limit + 300)) gives more"
  else
    step "$1, $2" compute-sanitizer --tool "$1" --error-exitcode 1 "${@:3}"
  fi
}

# A run that must end by itself, soon, with this status and these words. Where HOW is "signal" it gets SIGTERM once its
# steps are graphs.
killed_run() { # HOW STATUS WORDS
  local log code=0
  log=$(mktemp)
  timeout -k 5 90 "$build/bench_killed" "$1" >"$log" 2>&1 &
  local run=$!
  while [ "$1" = signal ] && ! grep -qE "steps are graphs|SKIPPED" "$log" && kill -0 $run 2>/dev/null; do sleep 0.2; done
  [ "$1" != signal ] || kill -TERM $run 2>/dev/null || true # timeout passes it on
  wait $run || code=$?
  cat "$log"
  if ! grep -q SKIPPED "$log" && { [ "$code" -ne "$2" ] || ! grep -q "$3" "$log"; }; then
    echo "bench_killed $1: status $code instead of $2 (124, 137: it hung), or no '$3'"
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
export build
export -f killed_run

# On the tensor cores and not, of sizes that divide by nothing, and of a launch that asks for shared memory.
checked='CudaAttention.OnTensorCores*:CudaAttention.Windows*:CudaVocabulary.Embedding*:CudaVocabulary.CrossEntropyAdds*:Cuda.RmsNormOfLongRows*'
case $mode in
  smoke)
    step "operations" "$build/tests_cuda" --gtest_filter='Cuda.*'
    step "attention and odd sizes" "$build/tests_cuda" --gtest_filter='CudaAttention.*:CudaVocabulary.*:CudaOptimizer.*'
    step "a run that fails with graphs" bash -c 'killed_run error 1 "gives up"'
    step "a run whose peer is silent, with graphs" bash -c 'killed_run silence 3 "the device or the other ranks"'
    step "a run that is ended with graphs" bash -c 'killed_run signal 143 "SIGTERM: ended after step"'
    step "times of operations" "$build/bench_operations"
    for tool in memcheck racecheck synccheck initcheck; do
      sanitize $tool "attention, odd sizes, 12288 columns" "$build/tests_cuda" --gtest_filter="$checked"
    done ;;
  test)
    step "operations" "$build/tests_cuda"
    step "plain kernels" env TESSERA_CUDA_PLAIN=1 "$build/tests_cuda" --gtest_filter='CudaAttention.*'
    step "stacks" "$build/tests_cuda_stacks"
    sanitize memcheck "operations" "$build/tests_cuda" --gtest_filter='CudaVocabulary.*'
    sanitize memcheck "stacks" "$build/tests_cuda_stacks" --gtest_filter='CudaRanks.AreRepeated*' ;;
  bench)
    step "operations" "$build/bench_operations"
    step "MLP" "$build/bench_mlp" "$(at_most 60)"
    step "training step" "$build/bench_step" "$(at_most 90)"
    if python3 -c 'import torch' 2>/dev/null; then
      step "PyTorch" python3 bench/gpu/torch_rows.py "$(at_most 60)"
    else
      row "PyTorch" "SKIPPED: python3 has no torch"
    fi ;;
esac
finish

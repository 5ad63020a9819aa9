#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# device::Cuda and stacks on it, on a machine that has CUDA, CMake and a C++20 compiler, and perhaps nothing else.
#
# usage: bench/gpu.sh smoke|test|bench [ARCHITECTURES]     default: 90a
#   smoke  builds, and tests memory, queues and the operations on activations
#   test   all tests of Cuda's operations; stacks whose ranks share the GPU; then, where compute-sanitizer is, memcheck
#          over some of both
#   bench  times the operations, the MLP at the published shape and a training step; the first two from PyTorch too,
#          where that is. What there is no time for is left out, and named.
# One line a result as it comes, a table last. Ends within 5 minutes. BUILD is where it builds (default: build/gpu).
# The golden Llamas are among the stacks where CMake finds nlohmann/json.hpp (CMAKE_PREFIX_PATH).
# Not built here, whatever is found: the program, MPI and NCCL, and what compares with the CPU; see the main build's
# tests_cuda and tests_cuda_stacks.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-} architectures=${2:-90a} build=${BUILD:-build/gpu} begin=$SECONDS
case $mode in
  smoke) targets=(tests_cuda) ;;
  test) targets=(tests_cuda tests_cuda_stacks) ;;
  bench) targets=(bench_operations bench_mlp bench_step) ;;
  *) echo "usage: bench/gpu.sh smoke|test|bench [ARCHITECTURES]" >&2; exit 2 ;;
esac
PATH=$PATH:/usr/local/cuda/bin
left() { echo $((begin + 290 - SECONDS > 1 ? begin + 290 - SECONDS : 1)); }
at_most() { echo $(($1 < $(left) - 5 ? $1 : $(left) - 5)); }  # SECONDS: as many, or what is left

table=()
status=0
row() {  # NAME RESULT: a line now, and one of the table
  echo "== $1: $2"
  table+=("$1: $2")
  case $2 in FAILED*) status=1 ;; esac
}
# The rows of a bench, which are JSON objects, for the table: of each the name, the time and the ratios.
rows_of() {
  sed -nE 's/^\{"bench": "([^"]*)"(.*)\}$/\1\2/p' "$1" | awk -F ', "' '{
    line = "  " $1
    for (i = 2; i <= NF; ++i)
      if ($i ~ /^(library|seq|tiling|ms|ratio[a-z_]*|share[a-z_]*|left_out)"/) {
        gsub(/"/, "", $i)
        line = line "  " $i
      }
    if (line != "  " $1) print line
  }'
}
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
  fi
  row "$name" "$result, $((SECONDS - start)) s"
  while IFS= read -r line; do table+=("$line"); done < <(rows_of "$log")
  rm -f "$log"
}
finish() {
  echo "----"
  printf '%s\n' "${table[@]}"
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

memcheck() {  # NAME COMMAND...
  if command -v compute-sanitizer >/dev/null; then
    step "memcheck, $1" compute-sanitizer --tool memcheck --error-exitcode 1 "${@:2}"
  else
    row "memcheck, $1" "SKIPPED: no compute-sanitizer in PATH"
  fi
}
case $mode in
  smoke) step "tests of operations" "$build/tests_cuda" --gtest_filter='Cuda.*' ;;
  test)
    step "operations" "$build/tests_cuda"
    step "plain kernels" env TESSERA_CUDA_PLAIN=1 "$build/tests_cuda" --gtest_filter='CudaAttention.*'
    step "stacks" "$build/tests_cuda_stacks"
    memcheck "operations" "$build/tests_cuda" --gtest_filter='CudaVocabulary.*'
    memcheck "stacks" "$build/tests_cuda_stacks" --gtest_filter='CudaRanks.AreRepeated*' ;;
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

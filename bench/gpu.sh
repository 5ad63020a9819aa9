#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# device::Cuda on a machine that has CUDA, CMake and a C++20 compiler, and perhaps nothing else.
#
# usage: bench/gpu.sh smoke|test|bench [ARCHITECTURES]     default: 90a
#   smoke  builds, and tests memory, queues and the operations on activations
#   test   all tests of Cuda; then, where compute-sanitizer is, memcheck over some of them
#   bench  times the operations; the same rows from PyTorch where that is
# One line a result as it comes, a table last. Ends within 5 minutes. BUILD is where it builds (default: build/gpu).
# Not built here, whatever is found: the program, stacks, MPI and NCCL; they need oneDNN, CLI11 and nlohmann-json.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-} architectures=${2:-90a} build=${BUILD:-build/gpu} begin=$SECONDS
case $mode in
  smoke | test | bench) ;;
  *) echo "usage: bench/gpu.sh smoke|test|bench [ARCHITECTURES]" >&2; exit 2 ;;
esac
PATH=$PATH:/usr/local/cuda/bin
left() { echo $((begin + 290 - SECONDS)); }

table=()
status=0
row() {  # NAME RESULT: a line now, and one of the table
  echo "== $1: $2"
  table+=("$1: $2")
  case $2 in FAILED*) status=1 ;; esac
}
# NAME COMMAND...: passed, FAILED, or skipped with the first reason that the command prints.
step() {
  local name=$1 start=$SECONDS log result
  shift
  log=$(mktemp)
  if timeout "$(left)" "$@" 2>&1 | tee "$log"; then result=passed; else result="FAILED (status $?)"; fi
  if [ "$result" = passed ] && grep -qE 'SKIPPED|"skipped"' "$log"; then
    result="SKIPPED: $(grep -m1 -oE 'no device[^"]*|the driver is made for[^"]*|device [0-9]+[,a-z ][^"]*' "$log" || echo "see above")"
  fi
  rm -f "$log"
  row "$name" "$result, $((SECONDS - start)) s"
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

target=$([ "$mode" = bench ] && echo bench_cuda || echo tests_cuda)
step "configure" cmake -S bench/gpu -B "$build" -DTESSERA_CUDA_ARCHITECTURES="$architectures"
[ "$status" -eq 0 ] || finish
step "build" cmake --build "$build" --target "$target" -j "${JOBS:-$(nproc)}"
[ "$status" -eq 0 ] || finish

case $mode in
  smoke) step "tests of operations" "$build/tests_cuda" --gtest_filter='Cuda.*' ;;
  test)
    step "all tests of Cuda" "$build/tests_cuda"
    step "plain kernels" env TESSERA_CUDA_PLAIN=1 "$build/tests_cuda" --gtest_filter='CudaAttention.*'
    if command -v compute-sanitizer >/dev/null; then
      step "memcheck" compute-sanitizer --tool memcheck --error-exitcode 1 "$build/tests_cuda" \
        --gtest_filter='CudaVocabulary.*'
    else
      row "memcheck" "SKIPPED: no compute-sanitizer in PATH"
    fi ;;
  bench)
    step "operations" "$build/bench_cuda"
    if python3 -c 'import torch' 2>/dev/null; then
      step "PyTorch" python3 bench/gpu/torch_rows.py
    else
      row "PyTorch" "SKIPPED: python3 has no torch"
    fi
    row "MLP, training step" "NOT RUN: modules and models are not built here" ;;
esac
finish

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# device::Cuda, comm::Nccl and stacks on them, on a machine that has a GPU.
#
# usage: bench/gpu.sh pack [ARCHITECTURES]              where there is nvcc
#        bench/gpu.sh card SECONDS [PATTERN]            on a machine with a GPU, from the unpacked archive
#        bench/gpu.sh smoke|test|bench [ARCHITECTURES]  on a machine with a GPU, CUDA, CMake and a C++20 compiler
#   pack   builds in BUILD (default: build/pack), and makes tessera-gpu.tar.xz there, of at most 44 MiB: programs, libraries
#          and this script. CUDA, cuDNN and NCCL are found on the machine.
#   card   builds nothing. Tests, NCCL's ranks that share the GPU, times, plans, PyTorch, compute-sanitizer; those that
#          show most come first. PATTERN: only the steps whose names match, as bash's =~ does.
#   smoke  the first minutes: builds in BUILD (default: build/gpu); tests operations; kills training runs of CUDA graphs;
#          times the operations; then compute-sanitizer's four tools
#   test   all tests of Cuda's operations; stacks whose ranks share the GPU; then memcheck
#   bench  times the operations, the MLP at the published shape and a training step; the first two from PyTorch too
# One line a result as it comes, then a table, the goals against what was measured, and all of it in one JSON file below
# 1 MiB to send home: REPORT (default: report.json in OUT, or else in BUILD). Ends within SECONDS or LIMIT (default: 300, smoke
# 600); what there is no time for is left out, and named. Status 1 where something failed; a goal that is missed fails nothing.
# Architectures: default 90a. smoke, test and bench do without MPI, the program, and what compares with the CPU; the golden
# Llamas are among the stacks where CMake finds nlohmann-json (CMAKE_PREFIX_PATH).
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-} begin=$SECONDS architectures=${2:-90a} pattern=
[ $# -le 2 ] || [ "$#/$mode" = 3/card ] || mode=usage
case $mode in
  pack) . bench/gpu/pack.sh; pack; exit ;;
  card)
    if ! [[ ${2:-} =~ ^[1-9][0-9]*$ ]]; then
      echo "bench/gpu.sh card: the number of seconds is '${2:-}'; it is a whole number, such as 560" >&2
      exit 2
    elif problem=$(command -v nvidia-smi >/dev/null || echo "nvidia-smi is not in PATH") && [ -n "$problem" ] || ! problem=$(nvidia-smi -L 2>&1); then
      echo "bench/gpu.sh card: no GPU: $(head -n 1 <<<"$problem"); run it on a machine that has one" >&2
      exit 2
    fi
    limit=$2 pattern=${3:-} build=${BUILD:-$PWD} programs=${PROGRAMS:-$PWD/bin} architectures=packed ;;
  smoke) targets=(tests_cuda bench_killed bench_operations) limit=${LIMIT:-600} ;;
  test) targets=(tests_cuda tests_cuda_stacks) limit=${LIMIT:-300} ;;
  bench) targets=(bench_operations bench_mlp bench_step) limit=${LIMIT:-300} ;;
  *) echo "usage: bench/gpu.sh card SECONDS [PATTERN] | pack|smoke|test|bench [ARCHITECTURES]" >&2 && exit 2 ;;
esac
build=${build:-${BUILD:-build/gpu}} programs=${programs:-$build} report=${REPORT:-${OUT:-$build}/report.json}
PATH=$PATH:/usr/local/cuda/bin
. bench/gpu/report.sh
. bench/gpu/steps.sh
report_begin "$build/report"

if [ "$mode" = card ]; then
  . bench/gpu/card.sh
  card
  finish
fi

for tool in cmake nvidia-smi; do
  command -v "$tool" >/dev/null || row "$tool" "not found"
done
step "configure" "$(left)" cmake -S bench/gpu -B "$build" -DTESSERA_CUDA_ARCHITECTURES="$architectures"
[ "$status" -eq 0 ] || finish
step "build" "$(left)" cmake --build "$build" --target "${targets[@]}" -j "${JOBS:-$(nproc)}"
[ "$status" -eq 0 ] || finish
case $mode in
  smoke)
    step "operations" "$(left)" "$programs/tests_cuda" --gtest_filter='Cuda.*'
    step "attention and odd sizes" "$(left)" "$programs/tests_cuda" --gtest_filter='CudaAttention.*:CudaVocabulary.*:CudaOptimizer.*'
    killed_runs
    step "times of operations" "$(left)" "$programs/bench_operations"
    sanitize memcheck racecheck synccheck initcheck ;;
  test)
    tests_of_kernels "$(left)"
    step "stacks" "$(left)" "$programs/tests_cuda_stacks"
    sanitize memcheck
    sanitize_with memcheck "stacks" "$programs/tests_cuda_stacks" --gtest_filter='CudaRanks.AreRepeated*' ;;
  bench)
    step "operations" "$(left)" "$programs/bench_operations"
    step "MLP" "$(left)" "$programs/bench_mlp" "$(at_most 60)"
    step "training step" "$(left)" "$programs/bench_step" "$(at_most 90)"
    rival ;;
esac
finish

# SPDX-License-Identifier: Apache-2.0
# For bench/gpu.sh card: what the machine has, and the steps in the order of what they show.

# Libraries that the archive does not hold, as pack.sh lists them. Their folders, and the archive's libraries that the
# machine lacks, are put into LD_LIBRARY_PATH.
find_libraries() {
  local library known folder places
  known=$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null || true)
  places=(/usr/local/cuda*/lib64 /usr/local/cuda*/extras/CUPTI/lib64
    "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null || true)"/nvidia/*/lib)
  for library in $(cat libraries 2>/dev/null); do
    folder=$(sed -nE "s|^\s*${library//./\\.} .*=> (.*)/[^/]*|\1|p" <<<"$known" | sed -n 1p)
    for folder in "$folder" "${places[@]}"; do
      [ -n "$folder" ] && [ -e "$folder/$library" ] && break
      folder=
    done
    echo "$library: ${folder:-not found}"
    [ -z "$folder" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  rm -rf "$report_folder/lib" && mkdir "$report_folder/lib"
  for library in lib/*.so*; do
    [ ! -e "$library" ] || grep -q "^\s*${library#lib/} " <<<"$known" || ln -s "$PWD/$library" "$report_folder/lib/"
  done
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$report_folder/lib
}
inventory() {
  nvidia-smi || true
  uname -srm && nproc && ldd --version | sed -n 1p
  free -g 2>/dev/null || true
  df -h "$PWD" /tmp || true
  echo "interfaces: $(ls /sys/class/net)"
  echo "MPS: $(pgrep -f nvidia-cuda-mps-control || echo "not running")"
  python3 -c 'import torch; print("torch", torch.__version__, "NCCL", torch.cuda.nccl.version(), "cuDNN", torch.backends.cudnn.version())' 2>&1 | tail -n 1 || true
  for tool in compute-sanitizer ncu nsys; do echo "$tool: $(command -v $tool || echo "not found")"; done
}
# Why a program of the archive cannot run here; nothing if it can.
problem_of() { # PROGRAM
  [ -x "$programs/$1" ] || { echo "the archive does not hold $1" && return; }
  ldd "$programs/$1" 2>&1 | grep -E "not found" | sed -n 1p | sed -E 's/^\s+//' || true
}
# NAME LIMIT PROGRAM COMMAND...: a step, skipped where PROGRAM cannot run.
step_of() {
  local problem
  problem=$(problem_of "$3")
  if [ -n "$problem" ]; then skip "$1" "$problem"; else step "$1" "$2" "${@:4}"; fi
}
ranks() { step_of "$1" "$2" tessera bash bench/gpu/ranks.sh "${@:3}"; } # NAME LIMIT ARGUMENTS...

card() {
  local sharding
  export PROGRAMS=$programs REPORT_FOLDER=$report_folder
  rm -f "$report_folder/alone.jsonl"
  find_libraries >"$report_folder/inventory"
  cat "$report_folder/inventory"
  inventory >>"$report_folder/inventory" 2>&1
  nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu,clocks_event_reasons.active --format=csv,noheader,nounits -lms 500 >"$report_folder/samples" 2>&1 &
  trap "kill $! 2>/dev/null || true" EXIT

  step_of "operations" 45 tests_cuda "$programs/tests_cuda"
  step_of "plain kernels" 15 tests_cuda env TESSERA_CUDA_PLAIN=1 "$programs/tests_cuda" --gtest_filter='CudaAttention.*'
  step_of "stacks" 60 tests_cuda_stacks "$programs/tests_cuda_stacks" --gtest_filter='-CudaGolden.*' # whose files are not packed

  for sharding in fsdp2 zero1 replicated; do ranks "NCCL, 2 ranks, $sharding" 36 strategy 2 --sharding $sharding; done
  for sharding in hybrid:2 hybrid:2:full fsdp2:2; do ranks "NCCL, 4 ranks, $sharding" 36 strategy 4 --sharding $sharding; done
  ranks "NCCL, 4 ranks, fsdp2" 36 strategy 4 --sharding fsdp2
  NCCL_ALGO=Ring ranks "NCCL, 4 ranks, fsdp2, Ring" 36 strategy 4 --sharding fsdp2 # another order of sums?
  ranks "NCCL, 4 ranks, ulysses:2" 36 strategy 4 --sequence ulysses:2
  ranks "NCCL, 1, 2 and 4 ranks, pieces" 54 pieces
  ranks "NCCL, 2 ranks, fsdp2, one killed" 40 killed 2 --sharding fsdp2
  ranks "NCCL, 4 ranks, hybrid:2, one killed" 40 killed 4 --sharding hybrid:2
  ranks "NCCL, 4 ranks, hybrid:2 as graphs, one killed" 40 killed 4 --sharding hybrid:2 --cuda-graphs=on
  step_of "a run that fails with graphs" 20 bench_killed bash bench/gpu/killed.sh "$programs/bench_killed" error
  step_of "a run that is ended with graphs" 20 bench_killed bash bench/gpu/killed.sh "$programs/bench_killed" signal

  step_of "times of operations" 60 bench_operations "$programs/bench_operations" 50
  step_of "training step" 60 bench_step "$programs/bench_step" 50
  step_of "timeline of a training step" 40 bench_step bash bench/gpu/profile.sh timeline "$programs/bench_step" 30
  step_of "matmuls next to copies, and with a residual" 25 bench_matmuls "$programs/bench_matmuls"
  if command -v ncu >/dev/null; then
    step_of "counters of kernels" 45 bench_operations bash bench/gpu/profile.sh counters "$programs/bench_operations"
  else
    skip "counters of kernels" "no ncu in PATH"
  fi
  ranks "calibrate and plan" 60 plan
  rival
  sanitize memcheck racecheck synccheck initcheck
}

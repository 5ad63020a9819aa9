#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/gpu as on a machine that has CUDA, CMake and a C++20 compiler and nothing else: builds all of it without the
# libraries that may be found here, and looks whether any of their headers was read all the same. Some 15 minutes.
#
# usage: gpu_build.sh     Needs nvcc; takes no program, its own are built. They find no device, or run.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/gpu_bare
cmake -S bench/gpu -B "$build" -G Ninja -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DCMAKE_DISABLE_FIND_PACKAGE_NCCL=ON \
  -DTESSERA_JSON_FOLDER= -DTESSERA_ENABLE_CUDNN=OFF
cmake --build "$build"
if ninja -C "$build" -t deps | grep -E '/(gtest/gtest|gmock|nlohmann|boost|pcre2|utf8proc|CLI|toml|dnnl|oneapi|isa-l|mpi|nccl)[./-]' | grep -v bench/gpu; then
  echo "gpu_build.sh: a header that a bare machine lacks is read"
  exit 1
fi
for program in tests_cuda bench_operations bench_mlp bench_step; do "$build/$program" | tail -n 1; done

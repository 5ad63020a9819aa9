#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the tests of stacks on a GPU, which take long to compile, if there is one.
# usage: cuda_stacks.sh CMAKE BUILD PROGRAM
set -euo pipefail
nvidia-smi -L >/dev/null 2>&1 || { echo "[  SKIPPED ] no GPU"; exit 0; }
"$1" --build "$2" --target tests_cuda_stacks
exec "$3"

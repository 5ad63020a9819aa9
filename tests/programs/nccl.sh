#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --comm nccl without a GPU, or in a build without CUDA: refused with the reason. With one, it trains.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 4000 data.txt
train=("$program" train --comm nccl --data data.txt --layers 1 --hidden 64 --heads 1 --kv-heads 1 --head-dim 64
  --intermediate 128 --steps 1 --seq-len 16 --batch-size 2 --checkpoint-dir checkpoint)
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep GPU >/dev/null; then
  tessera "${train[@]:1}"
  exit
fi
refused 'no device|built without nccl' "${train[@]}"
OMPI_COMM_WORLD_SIZE=2 refused 'would be as many runs, each alone.*torchrun' "${train[@]}"

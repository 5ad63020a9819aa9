#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A loss or gradient norm that is no finite number stops all ranks before a weight is touched.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 600 text.txt
stopped='stopped before any weight was touched'
base=("$program" train --data text.txt --seq-len 16 --precision fp32 --threads 1 --steps 6)

for comm in threads:1 threads:2; do
  expect_error "step [2-6]: loss is .*$stopped" "${base[@]}" --model tiny --lr 1e30 --clip 0 --comm $comm \
    --checkpoint-dir checkpoints
  expect_error "step [2-6]: .*$stopped" "${base[@]}" --model tiny --lr 1e30 --sharding replicated --comm $comm \
    --checkpoint-dir checkpoints
done

# Weights that hold NaN: the last float of the file.
cp -r "$golden/llama-gqa" broken
python3 -c "
import struct
with open('broken/model.safetensors', 'r+b') as file:
    file.seek(-4, 2)
    file.write(struct.pack('<f', float('nan')))"
cp broken/model.safetensors before.safetensors
for sharding in fsdp2 zero3 replicated; do
  expect_error "step 1: .*nan.*$stopped" "${base[@]}" --model broken --sharding $sharding --comm threads:2 \
    --batch-size 4 --checkpoint-dir checkpoints
done
same before.safetensors broken/model.safetensors
expect_error 'mean loss is nan' "$program" eval --model broken --data text.txt --seq-len 16 --comm threads:2

# One bad step of a longer run leaves the checkpoints that were there, each of them whole.
rm -rf checkpoints
tessera train --data text.txt --seq-len 16 --precision fp32 --model tiny --steps 2 --checkpoint-dir checkpoints
expect_error "$stopped" "${base[@]}" --model tiny --lr 1e30 --clip 0 --resume checkpoints --checkpoint-dir checkpoints
tessera eval --model checkpoints/step-00000002 --data text.txt --seq-len 16

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A loss, gradient norm, weight or optimizer state that is no finite number stops all ranks with status 3, before a
# weight is touched or a checkpoint is committed.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 600 text.txt
stopped='stopped before any weight was touched'
base=("$program" train --data text.txt --seq-len 16 --precision fp32 --threads 1)
six=(--steps 6)

# diverges PATTERN COMMAND...: status 3, one line that matches, nothing new on disk.
diverges() { expect_end 3 "$@"; }

wild=(--lr 1000 --weight-decay 1000)  # the most that flags take: each step multiplies weights by a million
for comm in threads:1 threads:2; do
  diverges "step [2-6]: loss is .*$stopped" "${base[@]}" "${six[@]}" --model tiny "${wild[@]}" --clip 0 --comm $comm \
    --checkpoint-dir checkpoints
  diverges "step [2-6]: .*$stopped" "${base[@]}" "${six[@]}" --model tiny "${wild[@]}" --sharding replicated --comm $comm \
    --checkpoint-dir checkpoints
done

echo "== the last step destroys the weights: its own loss was finite"
for comm in threads:1 threads:2; do
  diverges 'step 1: the held-out loss is nan; nothing was saved' "${base[@]}" --steps 1 --model tiny "${wild[@]}" \
    --clip 0 --comm $comm --checkpoint-dir checkpoints --validation-fraction 0.1
done
# A huge weight of a token that no text has: decay makes it infinite, and no loss sees it.
tessera train --data text.txt --seq-len 16 --precision fp32 --model tiny --steps 1 --checkpoint-dir huge
python3 -c "
import json, struct
with open('huge/step-00000001/model.safetensors', 'r+b') as file:
    length = struct.unpack('<Q', file.read(8))[0]
    embedding = json.loads(file.read(length))['model.embed_tokens.weight']
    file.seek(8 + length + embedding['data_offsets'][1] - 4)
    file.write(struct.pack('<f', 3e38))"
mkdir model && mv huge/step-00000001/{config.json,model.safetensors} model
for comm in threads:1 threads:2; do
  diverges 'weight model.embed_tokens.weight\[24575\] is not finite' "${base[@]}" --model model --steps 1 --lr 1 \
    --weight-decay 10 --validation-fraction 0 --comm $comm --checkpoint-dir checkpoints
done

echo "== constants that cannot be meant"
for lr in 1e39 1e30 inf nan -1 1001; do
  expect_error "lr '?$lr|lr 1e\\+3|lr -1|lr 1001" "${base[@]}" --model tiny --lr=$lr
done
expect_error 'eps 0 must be above 0, at least 1e-30 and at most 1' "${base[@]}" --model tiny --eps 0
expect_error 'eps 2 must be' "${base[@]}" --model tiny --eps 2
expect_error 'weight-decay 1e\+09 must be at least 0 and at most 1000' "${base[@]}" --model tiny --weight-decay 1e9
expect_error 'beta1 0.99999999999 must be at least 0 and below 1 as a float' "${base[@]}" --model tiny --beta1 0.99999999999

# Weights that hold NaN: the last float of the file.
cp -r "$golden/llama-gqa" broken
python3 -c "
import struct
with open('broken/model.safetensors', 'r+b') as file:
    file.seek(-4, 2)
    file.write(struct.pack('<f', float('nan')))"
cp broken/model.safetensors before.safetensors
for sharding in fsdp2 zero3 replicated; do
  expect_error '^tessera: (rank [01]: )?broken/model.safetensors: lm_head.weight.8191. is nan; no run can use it' \
    "${base[@]}" "${six[@]}" --model broken --sharding $sharding --comm threads:2 --batch-size 4 \
    --checkpoint-dir checkpoints
done
same before.safetensors broken/model.safetensors
expect_error 'lm_head.weight.8191. is nan; no run can use it' "$program" eval --model broken --data text.txt --seq-len 16 --comm threads:2

# One bad step of a longer run leaves the checkpoints that were there, each of them whole.
rm -rf checkpoints
tessera train --data text.txt --seq-len 16 --precision fp32 --model tiny --steps 2 --checkpoint-dir checkpoints
# A line on the risen rate stands in front.
ends_with 3 "$stopped" "${base[@]}" "${six[@]}" --model tiny "${wild[@]}" --clip 0 --resume checkpoints --checkpoint-dir checkpoints
tessera eval --model checkpoints/step-00000002 --data text.txt --seq-len 16

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# 20 AdamW steps of each golden folder through the program give its float64 losses; eval gives the first of them. Losses of
# steps of other families than Llama's, which are transformers', to 1e-4. Ranks that share each sequence give the same.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

steps_bound=1e-5
# run NAME CLIP FLAG...: the losses and gradient norms of the run, to $steps_bound relative.
run() {
  local name=$1 clip=$2 model=$golden/$1
  shift 2
  local length=$((($(stat -c %s "$model/text.bin") - 1) / 6))
  rm -f metrics.jsonl
  tessera train --model "$model" --data "$model/text.bin" --seq-len $length --batch-size 6 --validation-fraction 0 \
    --steps 20 --lr 1e-3 --lr-schedule constant --weight-decay 0.1 --clip "$clip" --precision fp32 --threads 1 \
    --metrics metrics.jsonl "$@"
  steps metrics.jsonl | cut -d' ' -f2,3 >found
  expected "$model" adamw.losses adamw.grad_norms >wanted
  [ "$(wc -l <found)" -eq 20 ] || fail "$name: $(wc -l <found) steps"
  close found wanted $steps_bound
  ! cut -d' ' -f1 found | grep -Evq '^([0-9]\.?){9,}$' || fail "$name: losses with fewer than 9 digits"

  local sharing=()
  [[ "$*" != *--sequence* ]] || sharing=("$@")
  tessera eval --model "$model" --data "$model/text.bin" --seq-len $length --batch-size 4 --precision fp32 "${sharing[@]}"
  python3 -c "
import json, sys
print(repr(json.load(open(sys.argv[1]))['loss']))
assert json.load(open(sys.argv[1]))['tokens'] == int(sys.argv[2])" "$out" $((6 * length)) >found
  expected "$model" loss >wanted
  close found wanted 1e-5
}

run llama-gqa 0
run llama-odd 0.5
run llama-gqa 0 --comm threads:3 --sharding zero3 --grad-accum 2 --tiling tiles:4
run llama-odd 0.5 --comm threads:2 --sharding replicated --grad-accum 3 --tiling tokens:3
run llama-gqa 0 --comm threads:2 --sequence ulysses:2
run llama-odd 0.5 --comm threads:3 --sequence ulysses:3
steps_bound=1e-4
run mistral-window 0 --comm threads:3 --sharding zero3
run qwen2-yarn 0 --comm threads:2 --grad-accum 3 --tiling tokens:5
run qwen3-window 0 --comm threads:2 --sharding zero2 --recompute
run llama-llama3 0 --sharding replicated
for name in mistral-window qwen2-yarn qwen3-window llama-llama3; do run $name 0 --comm threads:2 --sequence ulysses:2; done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_main of a model that the library does not know: the values of its config are flags.
# usage: 13_gpt2.sh PROGRAM
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 4000 text.txt
flags=(--data text.txt --batch-size 8 --lr 3e-3 --ranks 2 --threads 1)
sizes=(--n-layer 1 --n-embd 32 --n-head 2)

tessera "${flags[@]}" "${sizes[@]}" --seq-len 32 --steps 8 --metrics whole.jsonl --checkpoint-dir whole --checkpoint-every 4
contains whole.jsonl '"sizes":\{"vocab_size":256,"n_positions":256,"n_embd":32,"n_layer":1,"n_head":2'
falls whole.jsonl
tessera "${flags[@]}" "${sizes[@]}" --seq-len 32 --steps 8 --metrics again.jsonl --resume whole/step-00000004
same <(steps whole.jsonl 5) <(steps again.jsonl 5)
tessera "${flags[@]}" --seq-len 32 --model whole/step-00000008 --steps 1  # a folder says its sizes itself
contains "$out" 'n_embd 32, n_layer 1'
expect_error 'is a folder whose config.json gives all sizes; drop --n-head, --n-layer' \
  "$program" "${flags[@]}" --model whole/step-00000008 --n-layer 2 --n-head 2
tessera "${flags[@]}" "${sizes[@]}" --seq-len 300 --optimizer sgd --steps 1 --checkpoint-dir long
contains long/step-00000001/config.json '"n_positions": 300'

tessera  # without arguments: a plan
contains "$out" '^fsdp2 / threads / bf16, 4 ranks'

echo "== flags"
tessera --help
for flag in model vocab n-positions n-embd n-layer n-head layer-norm-epsilon optimizer ranks; do
  contains "$out" "^  --$flag[ =]"
done
lacks "$out" '^  --(hidden|kv-heads|sharding)'
expect_error 'unknown flag --hidden' "$program" "${flags[@]}" --hidden 32
expect_error "n-layer '1.5' is not a whole number" "$program" "${flags[@]}" --n-layer 1.5
echo "gpt2: as described"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --optimizer: each trains, plans and resumes to the bit; Muon wants whole matrices; another's checkpoint is refused.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 6000 text.txt
flags=(--data text.txt --model tiny --seq-len 32 --batch-size 8 --lr-schedule constant --threads 1
       --comm threads:2)

# trains NAME FLAG...: falls, and goes on to the bit from its middle. Checkpoints are in NAME.
trains() {
  local name=$1
  shift
  echo "== $name: $*"
  tessera train "${flags[@]}" --steps 12 "$@" --metrics "$name.jsonl" --checkpoint-dir "$name" --checkpoint-every 6
  falls "$name.jsonl"
  tessera train "${flags[@]}" --steps 12 "$@" --metrics "$name.again.jsonl" --checkpoint-dir "$name.again" \
    --resume "$name/step-00000006"
  same <(steps "$name.jsonl" 7) <(steps "$name.again.jsonl" 7)
  for file in model.safetensors optimizer.safetensors; do
    same "$name/step-00000012/$file" "$name.again/step-00000012/$file"
  done
}

trains sgd --optimizer sgd --momentum 0.9 --lr 0.05
contains sgd.jsonl '"optimizer":\{"name":"sgd","momentum":0.9,"nesterov":false,"weight-decay":0.0\}'
contains "$out" '^optimizer sgd, momentum 0.9, nesterov false, weight-decay 0'
trains nesterov --optimizer sgd --nesterov --weight-decay 1e-3 --lr 0.05 --sharding zero3 --precision fp32
trains muon --optimizer muon --layout owned --lr 2e-3
contains muon.jsonl '"optimizer":\{"name":"muon","momentum":0.95,"nesterov":true,"iterations":5,"beta1":0.9'
trains replicated --optimizer muon --sharding replicated --lr 2e-3
trains adamw --lr 1e-3
contains adamw.jsonl '"optimizer":\{"name":"adamw","beta1":0.9,"beta2":0.95,"eps":1e-08,"weight-decay":0.1\}'

echo "== Muon needs whole matrices"
muon=("$program" train "${flags[@]}" --optimizer muon)
whole='the optimizer muon works on whole matrices, and the strategy cuts ".*" over ranks; take .*--layout owned'
expect_error "$whole" "${muon[@]}"
expect_error "$whole" "${muon[@]}" --sharding zero3
expect_error "$whole" "${muon[@]}" --layout rows --dry-run
tessera stacks
if grep -q -- '--sharding hybrid:K:full.*--comm threads --precision bf16$' "$out"; then  # owners' buffers are cut again
  expect_error "$whole" "${muon[@]}" --layout owned --sharding hybrid:1:full
fi
tessera train "${flags[@]}" --optimizer muon --layout owned --sharding hybrid:1 --steps 1
tessera train --data text.txt --model tiny --seq-len 32 --batch-size 8 --steps 1 --optimizer muon  # one rank cuts nothing

echo "== plans count what each keeps"
bytes() { tessera train "${flags[@]}" "$@" --dry-run; sed -n 's/^ *optimizer[^0-9]*\([0-9][0-9,]*\).*/\1/p' "$out" | tr -d ,; }
adamw=$(bytes --lr 1) sgd=$(bytes --optimizer sgd) none=$(bytes --optimizer sgd --momentum 0)
[ "$adamw" -eq $((2 * sgd)) ] || fail "AdamW keeps $adamw bytes, SGD $sgd"
[ "${none:-0}" -eq 0 ] || fail "SGD without momentum keeps $none bytes"
tessera train "${flags[@]}" --optimizer muon --layout owned --tiling budget:auto --memory 320MiB --steps 1
contains "$out" 'tiling budget:auto is'

echo "== a checkpoint of another optimizer is refused by name"
expect_error 'sgd.*adamw|adamw.*sgd' "$program" train "${flags[@]}" --resume sgd
expect_error 'muon.*adamw|adamw.*muon' "$program" train "${flags[@]}" --layout owned --resume muon
expect_error 'adamw.*muon|muon.*adamw' "${muon[@]}" --layout owned --resume adamw

echo "== constants"
expect_error "--nesterov is not adamw's; it takes --beta1, --beta2, --eps, --weight-decay" \
  "$program" train "${flags[@]}" --nesterov
expect_error 'optimizer mun is not known; did you mean .muon' "$program" train "${flags[@]}" --optimizer mun
expect_error '--momentum 1 must be at least 0 and below 1' \
  "$program" train "${flags[@]}" --optimizer sgd --momentum 1
printf 'optimizer = "sgd"\nmomentum = 0.5\nlr = 0.05\n' >sgd.toml
tessera train "${flags[@]}" --config sgd.toml --steps 1 --metrics toml.jsonl
contains toml.jsonl '"name":"sgd","momentum":0.5'
echo "optimizers: as described"

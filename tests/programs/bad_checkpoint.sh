#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints and model folders that are of another model, cut short or not to be written: said in one line, status 2.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 600 text.txt
flags=(--data text.txt --seq-len 16 --precision fp32 --model tiny --lr-schedule constant)
tessera train "${flags[@]}" --steps 2 --checkpoint-dir good --comm threads:2
step=good/step-00000002
resume=("$program" train "${flags[@]}" --steps 4 --metrics metrics.jsonl --trace trace.json --comm threads:2 --resume)

echo "== of another model"
expect_error 'another model: tensor "model.embed_tokens.weight" has shape \[256, 96\] in it and \[256, 128\]' \
  "${resume[@]}" good --hidden 128 --heads 8
expect_error 'another model: tensor "model.layers.0.mlp.gate_proj.weight"' "${resume[@]}" good --intermediate 99
expect_error 'another model: its tensor "model.layers.2.input_layernorm.weight"' "${resume[@]}" good --layers 2
expect_error 'the run.s seed was 0' "${resume[@]}" good --seed 1
expect_error 'windows' "${resume[@]}" good --validation-fraction 0.5
expect_error 'is at step 2 already; --steps 1' "$program" train "${flags[@]}" --resume good --steps 1
expect_error 'nowhere: no such checkpoint' "${resume[@]}" nowhere
mkdir empty
expect_error 'holds no complete checkpoint' "${resume[@]}" empty
sed 's/"hidden_size": 96/"hidden_size": 48/' $step/config.json >other.json
cp -r $step other && mv other.json other/config.json && rm other/manifest.json  # which would tell of the change
expect_error 'model.safetensors: tensor "model.embed_tokens.weight" has shape' \
  "$program" eval --model other --data text.txt --seq-len 16

echo "== cut short"
cp -r $step short
for file in model.safetensors optimizer.safetensors trainer.json config.json; do
  size=$(stat -c %s $step/$file)
  for bytes in 0 7 $((size / 2)) $((size - 1)); do
    # The last byte of a JSON file is its newline.
    if [ $bytes -eq $((size - 1)) ] && [ "$file" != "${file%.json}" ]; then continue; fi
    head -c $bytes $step/$file >short/$file
    expect_error "short/$file" "${resume[@]}" short
  done
  rm short/$file
  expect_error "short/$file: .*[Nn]o such file" "${resume[@]}" short
  cp $step/$file short/$file
done

echo "== without its states, of another optimizer: what to do instead"
rm short/optimizer.safetensors short/manifest.json
expect_error 'short: holds no optimizer states .*, which resuming needs; --model short starts a new run from its weights$' \
  "${resume[@]}" short
tessera train "${flags[@]/tiny/short}" --steps 1
contains "$out" '^weights   of step 2 of a run; its optimizer states and its step are not used \(--resume uses them\)$'
expect_error "with the optimizer adamw, this run's is sgd; resume with adamw, or start a new run from its weights by --model $step" \
  "${resume[@]}" good --optimizer sgd

echo "== not to be written"
touch file
write=("$program" train "${flags[@]}" --steps 2 --comm threads:2)
expect_error 'checkpoint-dir file/below: cannot be written: .*Not a directory' "${write[@]}" --checkpoint-dir file/below
expect_error 'metrics file/m: cannot be written: Not a directory' "${write[@]}" --metrics file/m
expect_error 'trace file/t[.a-z0-9]*: cannot be written: Not a directory' "${write[@]}" --trace file/t
expect_error 'metrics /dev/full: cannot be written' "${write[@]}" --metrics /dev/full
expect_error 'tensorboard file: cannot be written: ' "${write[@]}" --tensorboard file
expect_error 'tensorboard file/b: cannot be written: Not a directory' "${write[@]}" --tensorboard file/b
if [ "$(id -u)" -ne 0 ]; then
  mkdir -m 555 locked
  expect_error 'checkpoint-dir locked/c: cannot be written' "${write[@]}" --checkpoint-dir locked/c
fi

echo "== no space: the older checkpoint stays, nothing of the new one does"
full() {
  before=$(cd "$1" && listing)
  expect_error "$2" bash -c 'ulimit -f '"$3"'; exec "$@"' - "${write[@]:0:${#write[@]}-4}" --comm threads:2 --steps 4 \
    --resume "$1" --checkpoint-dir "$1"
  [ "$before" = "$(cd "$1" && listing)" ] || fail "left something in $1"
  tessera eval --model "$1/step-00000002" --data text.txt --seq-len 16 --precision fp32
}
cp -r good limited
full limited 'limited/.*(File too large|No space)' 1024  # KiB of one file; the weights take 1347, the moments 2694
full limited 'limited/.*(File too large|No space)' 2000
mkdir disk
if mount -t tmpfs -o size=6m tessera_test disk 2>/dev/null; then
  trap 'umount "$folder/cwd/disk"; rm -rf "$folder"' EXIT
  cp -r good disk/runs
  full disk/runs 'No space left on device' unlimited
else
  echo "skipped: a full disk (mounting one is not permitted here)"
fi

echo "== too little memory"
less='[0-9.]+ [MG]iB'
refused "gave no [0-9]+ bytes of memory.*takes $less of each rank, and would take $less (with|on)" bash -c 'ulimit -v 3000000; exec "$@"' - "$program" train --data text.txt \
  --seq-len 16 --steps 1 --hidden 4096 --heads 32 --kv-heads 8 --intermediate 14336 --layers 8

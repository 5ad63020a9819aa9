#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A resumed run goes on to the bit; another sharding and number of ranks may take it over; a killed save is survived.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(--data text.txt --model tiny --tied --seq-len 16 --steps 6 --precision fp32 --grad-accum 2 --batch-size 12
       --warmup 2 --threads 1)

for stack in "fsdp2 threads:2" "zero3 threads:3" "replicated threads:1"; do
  read -r sharding comm <<<"$stack"
  echo "== $stack"
  run=(train "${flags[@]}" --sharding "$sharding" --comm "$comm")
  rm -rf whole again ./*.jsonl
  tessera "${run[@]}" --metrics whole.jsonl --checkpoint-dir whole --checkpoint-every 3
  [ "$(cat whole/latest)" = step-00000006 ] || fail "latest is $(cat whole/latest)"
  [ "$(cd whole && listing | grep -c '^\./[^/]*$')" -eq 3 ] || fail "whole holds $(ls whole)"

  tessera "${run[@]}" --metrics again.jsonl --checkpoint-dir again --resume whole/step-00000003
  same <(steps whole.jsonl 4) <(steps again.jsonl 4)
  for file in model.safetensors optimizer.safetensors config.json trainer.json; do
    same whole/step-00000006/$file again/step-00000006/$file
  done
done

echo "== another sharding, number of ranks and micro-batches; a renamed folder; the newest of a directory"
mv whole/step-00000003 renamed
for stack in "zero3 threads:2" "fsdp2 threads:6" "replicated threads:3"; do
  read -r sharding comm <<<"$stack"
  rm -f other.jsonl
  tessera train "${flags[@]}" --sharding "$sharding" --comm "$comm" --metrics other.jsonl --resume renamed
  close <(steps other.jsonl) <(steps whole.jsonl 4) 1e-4
done
rm -rf whole/step-00000006 && mv renamed whole/step-00000003  # `latest` names what is no longer there
rm -f other.jsonl
tessera train "${flags[@]}" --comm threads:1 --sharding replicated --metrics other.jsonl --resume whole
same <(steps whole.jsonl 4) <(steps other.jsonl)
echo step-00000003 >whole/latest

echo "== what changed is said, or refused where other data would be seen"
run=(train "${flags[@]}" --comm threads:2 --resume whole)
tessera "${run[@]}" --lr 0.002 --beta1 0.8
contains "$out" '^resumed from whole/step-00000003: step 3, epoch 0, window 36 of '
contains "$out" '^resumed: --lr was 0.001, is 0.002$'
contains "$out" '^resumed: --beta1 was 0.9, is 0.8$'
contains "$err" '^tessera: warning: the learning rate of step [0-9]+ is .*, after .* at step [0-9]+: --lr was 0.001, is 0.002$'
lacks "$out" '^resumed: --(steps|resume|metrics)'
tr a b <text.txt >same-size.txt
run=(train "${flags[@]/text.txt/same-size.txt}" --comm threads:2 --resume whole)
expect_error 'the data was 1 files, 3000 bytes.*or --resume-anyway' "$program" "${run[@]}"
tessera "${run[@]}" --resume-anyway
contains "$out" '^resumed anyway: the data was 1 files'
run=(train "${flags[@]/12/24}" --comm threads:2 --resume whole)
expect_error 'batch-size was 12, is 24; resume with what it was, or --resume-anyway' "$program" "${run[@]}"

echo "== killed while it saves, again and again: there is always one that opens"
save=("$program" train --data text.txt --model tiny --seq-len 16 --steps 100000 --precision fp32 --batch-size 2
      --comm threads:2 --checkpoint-dir killed --checkpoint-every 1)
for delay in 0.3 0.05 0.11 0.17; do
  resume=()
  [ ! -d killed ] || resume=(--resume killed)
  "${save[@]}" "${resume[@]}" >/dev/null 2>&1 &
  child=$!
  for _ in $(seq 300); do  # until it has saved once itself
    [ -e killed/latest ] && [ killed/latest -nt "$folder/begin" ] && break
    kill -0 $child 2>/dev/null || fail "ended by itself"
    sleep 0.1
  done
  sleep $delay
  kill -KILL $child
  wait $child 2>/dev/null || true
  touch "$folder/begin"
done
latest=$(cat killed/latest)
tessera eval --model "killed/$latest" --data text.txt --seq-len 16
last=$((10#${latest#step-}))
tessera train --data text.txt --model tiny --seq-len 16 --steps $((last + 1)) --precision fp32 --batch-size 2 \
  --checkpoint-dir killed --resume killed
[ "$(cat killed/latest)" = "$(printf 'step-%08d' $((last + 1)))" ] || fail "from $latest to $(cat killed/latest)"
[ -z "$(find killed -name '*.tmp*')" ] || fail "leftovers: $(find killed -name '*.tmp*')"

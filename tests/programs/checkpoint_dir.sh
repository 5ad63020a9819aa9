#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a run does with its folder of checkpoints: which it resumes from, which it keeps, who else may write there.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(--data text.txt --model tiny --seq-len 16 --precision fp32 --batch-size 4 --threads 1 --comm threads:2
       --lr-schedule constant)
train() { tessera train "${flags[@]}" "$@"; }
steps_in() { (cd "$1" && echo step-*) | tr ' ' '\n' | sed 's/step-0*//' | paste -sd ' '; }

echo "== the newest sound step, whatever latest says"
train --steps 3 --checkpoint-dir runs --checkpoint-every 1 --metrics whole.jsonl
echo step-00000002 >runs/latest  # as a kill between the two renames leaves it
train --steps 4 --resume runs
contains "$out" '^resumed from runs/step-00000003: step 3,'
contains "$err" 'runs/latest names step-00000002; the newest checkpoint there is step-00000003'
printf 'step-00000003\r\n' >runs/latest
train --steps 4 --resume runs
contains "$out" '^resumed from runs/step-00000003'
echo step-00000009 >runs/latest
train --steps 4 --resume runs
contains "$err" 'runs/latest names step-00000009'
train --steps 4 --resume runs/step-00000002
contains "$out" '^resumed from runs/step-00000002: step 2,'

echo "== auto"
train --steps 2 --checkpoint-dir auto --checkpoint-every 1 --resume auto
contains "$out" '^--resume auto: auto holds no checkpoint; a fresh start$'
train --steps 3 --checkpoint-dir auto --resume auto --metrics again.jsonl
contains "$out" '^resumed from auto/step-00000002'
same <(steps whole.jsonl 3) <(steps again.jsonl)
rm auto/step-0000000[23]/manifest.json
train --steps 4 --checkpoint-dir auto --resume auto
contains "$err" 'skipping auto/step-00000003: .*manifest.json: no such file'
contains "$out" '^resumed from auto/step-00000001'
rm auto/*/manifest.json
expect_one() { refused "$@"; contains "$err" "$1"; }
expect_one 'auto holds checkpoints and none is complete' "$program" train "${flags[@]}" --steps 5 --checkpoint-dir auto \
  --resume auto
expect_error 'resume auto takes the newest checkpoint of --checkpoint-dir, which is missing' "$program" train \
  "${flags[@]}" --resume auto

echo "== a flipped bit"
cp -r runs/step-00000003 flipped
flip() { python3 - "$1" <<'PY'
import sys
with open(sys.argv[1], 'r+b') as file:
    file.seek(1000000)
    byte = file.read(1)[0] ^ 16
    file.seek(1000000)
    file.write(bytes([byte]))
PY
}
flip flipped/optimizer.safetensors
expect_error 'flipped/optimizer.safetensors: bytes 983040 to 1048575 are not those that were written' "$program" train \
  "${flags[@]}" --steps 4 --resume flipped
cp -r runs spoilt
flip spoilt/step-00000003/optimizer.safetensors
for resume in auto spoilt; do  # all ranks take the newest sound step
  rm -rf spoilt/step-00000004 spoilt.jsonl
  train --steps 4 --checkpoint-dir spoilt --resume $resume --metrics spoilt.jsonl
  contains "$err" 'skipping spoilt/step-00000003: .*bytes 983040 to 1048575 are not those that were written'
  contains "$out" 'resumed from spoilt/step-00000002'
done
train --steps 4 --checkpoint-dir sound --resume runs/step-00000002 --metrics sound.jsonl
same <(steps sound.jsonl) <(steps spoilt.jsonl)
mv flipped step-00000004
expect_error 'step-00000004: is the folder of step 4, and its trainer.json is of step 3' "$program" train \
  "${flags[@]}" --steps 4 --resume step-00000004

echo "== --keep: the newest, and the one resumed from"
train --steps 5 --checkpoint-dir runs --checkpoint-every 1 --keep 2 --resume runs/step-00000002
[ "$(steps_in runs)" = "2 4 5" ] || fail "runs holds $(steps_in runs)"
train --steps 7 --checkpoint-dir runs --checkpoint-every 1 --keep 1 --resume auto
[ "$(steps_in runs)" = "5 7" ] || fail "runs holds $(steps_in runs)"
[ -z "$(find runs -name '*.tmp*')" ] && [ ! -e runs/run.lock ] || fail "leftovers: $(ls -a runs)"
expect_error 'keep -1 must be at least 0' "$program" train "${flags[@]}" --checkpoint-dir runs --keep=-1

echo "== no room, seen before training"
if mkdir disk && mount -t tmpfs -o size=3m tessera_test disk 2>/dev/null; then
  trap 'umount "$folder/cwd/disk"; rm -rf "$folder"' EXIT
  expect_error 'checkpoint-dir disk/c: a checkpoint takes [0-9]+ bytes and its disk has [0-9]+ left: No space' \
    "$program" train "${flags[@]}" --steps 2 --checkpoint-dir disk/c
  umount disk
else
  echo "skipped: a small disk (mounting one is not permitted here)"
fi

echo "== two runs in one folder"
"$program" train "${flags[@]}" --steps 1000000 --checkpoint-dir shared --checkpoint-every 1 --keep 1 >first.out 2>&1 &
first=$!
trap 'kill -KILL $first 2>/dev/null || true; rm -rf "$folder"' EXIT
for _ in $(seq 300); do [ ! -e shared/latest ] || break; sleep 0.1; done
status=0
timeout "$limit" "$program" train "${flags[@]}" --steps 2 --checkpoint-dir shared >"$out" 2>"$err" || status=$?
[ $status -eq 2 ] || fail "status $status of a second run"
contains "$err" "another run writes there: process $first on "
kill -0 $first || fail "the first run ended"
kill -KILL $first
wait $first 2>/dev/null || true
last=$(cat shared/latest)
train --steps $((10#${last#step-} + 1)) --checkpoint-dir shared --resume auto
contains "$err" "shared/run.lock was left by process $first .* its lock is taken over"
[ ! -e shared/run.lock ] || fail "the lock stays"

echo "== a folder of another run"
used='checkpoint-dir auto: holds checkpoints of another run, up to auto/step-[0-9]+; go on with that run by --resume auto, or'
expect_error "$used" "$program" train "${flags[@]}" --steps 5 --checkpoint-dir auto
mkdir afresh
train --steps 1 --checkpoint-dir afresh --resume auto  # as a scheduler starts a run, and starts it again
contains "$out" '^--resume auto: afresh holds no checkpoint; a fresh start$'
train --steps 2 --checkpoint-dir afresh --resume auto --lr 0.01
contains "$out" '^resumed from afresh/step-00000001'
expect_error 'checkpoint-dir afresh: afresh/step-00000002 is a checkpoint of another run than sound/step-00000004, which --resume takes' \
  "$program" train "${flags[@]}" --steps 5 --checkpoint-dir afresh --resume sound/step-00000004
cp -r sound mixed && cp -r afresh/step-00000002 mixed  # as earlier versions left it
expect_error 'checkpoint-dir mixed: mixed/step-00000002 is a checkpoint of another run than mixed/step-00000004' \
  "$program" train "${flags[@]}" --steps 5 --checkpoint-dir mixed --resume auto
sed -i '/"identity"/d' mixed/*/trainer.json && rm mixed/*/manifest.json
sed -i 's/"format_version": 2/"format_version": 1/' mixed/*/trainer.json
train --steps 5 --checkpoint-dir mixed --resume auto  # nothing tells runs of earlier versions apart
contains "$out" '^resumed from mixed/step-00000004'
train --steps 3 --checkpoint-dir afresh --resume afresh/step-00000001
contains "$out" '^resumed: afresh keeps its later steps, up to 2, which --resume auto would take$'

echo "== another model is another run"
identity_in() { grep -o '"identity": "[0-9a-f]*"' "$1/trainer.json"; }
train --steps 1 --checkpoint-dir base
for other in "--layers 1" "--lora-rank 2"; do
  rm -rf other
  train --steps 1 --checkpoint-dir other $other
  ! cmp -s <(identity_in base/step-00000001) <(identity_in other/step-00000001) || fail "$other: one identity"
done
expect_error 'other/step-00000001 is a checkpoint of another run than base/step-00000001, which --resume takes' \
  "$program" train "${flags[@]}" --steps 2 --checkpoint-dir other --resume base
flags[3]=base/step-00000001  # --model
train --steps 1 --checkpoint-dir fine
mv base moved
flags[3]=moved/step-00000001
train --steps 1 --checkpoint-dir again
same fine/step-00000001/trainer.json again/step-00000001/trainer.json
train --steps 2 --checkpoint-dir fine --resume auto
lacks "$out" '^resumed: --model'
flags[3]=sound/step-00000004
train --steps 3 --checkpoint-dir fine --resume auto
contains "$out" '^resumed: --model was the weights of digest [0-9a-f]{16}, is the weights of digest [0-9a-f]{16}$'
train --steps 1 --checkpoint-dir fourth
! cmp -s <(identity_in fourth/step-00000001) <(identity_in again/step-00000001) || fail "weights: one identity"
flags[3]=moved/step-00000001
train --steps 4 --checkpoint-dir fine --resume auto  # the run began with these
lacks "$out" '^resumed: --model'

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# System calls that fail, stall or are cut short while a run saves: TESSERA_FAULTS is the library that makes them do so.
# tests/long/faults.sh makes each of them fail in turn.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(--data text.txt --model tiny --seq-len 16 --precision fp32 --batch-size 4 --threads 1 --comm threads:2
       --lr-schedule constant)
faulty() {  # CALL:K:WHAT FLAG...
  local fault=$1
  shift
  env LD_PRELOAD="$TESSERA_FAULTS" TESSERA_FAULT_UNDER=runs TESSERA_FAULT="$fault" "$program" train "${flags[@]}" "$@"
}
tessera train "${flags[@]}" --steps 2 --checkpoint-dir runs --checkpoint-every 1 --metrics whole.jsonl
cp -r runs good

echo "== a file system that cannot exchange names: killed between its two renames, nothing is lost"
for k in 1 2 3; do  # the rename that finds the old folder, that which moves it aside, that of the new one
  rm -rf runs && cp -r good runs
  status=0
  faulty "exchange:*:EINVAL" --steps 2 --resume runs/step-00000001 --checkpoint-dir runs >"$out" 2>"$err" || status=$?
  [ $status -eq 0 ] || fail "status $status without an exchange"
  [ "$(ls runs)" = "$(ls good)" ] || fail "runs holds $(ls runs)"
  env LD_PRELOAD="$TESSERA_FAULTS" TESSERA_FAULT_UNDER=runs TESSERA_FAULT="rename:$k:kill" \
    TESSERA_FAULT_ALSO="exchange:*:EINVAL" "$program" train "${flags[@]}" --steps 2 --resume runs/step-00000001 \
    --checkpoint-dir runs >"$out" 2>"$err" && fail "was not killed"
  tessera train "${flags[@]}" --steps 3 --checkpoint-dir runs --resume auto
  contains "$out" '^resumed from runs/step-00000002(.replaced)?: step 2,'
  [ -z "$(find runs -name '*.tmp*' -o -name '*.replaced' -o -name run.lock)" ] || fail "leftovers: $(ls -a runs)"
done

echo "== a write that takes no byte ends, parts of writes and reads do no harm"
rm -rf runs && cp -r good runs
limit=20
expect_error 'cannot be written: the system takes none of its bytes' env LD_PRELOAD="$TESSERA_FAULTS" \
  TESSERA_FAULT_UNDER=runs TESSERA_FAULT="write:9:zero" "$program" train "${flags[@]}" --steps 3 --resume good \
  --checkpoint-dir runs
faulty "write:*:short" --steps 3 --resume good --checkpoint-dir runs >"$out" 2>"$err" || fail "short writes"
faulty "read:*:short" --steps 3 --resume runs/step-00000002 --checkpoint-dir again >"$out" 2>"$err" || fail "short reads"
for file in config.json model.safetensors optimizer.safetensors trainer.json manifest.json; do
  same runs/step-00000003/$file again/step-00000003/$file
done

echo "== a slow disk: others wait for it longer than for a peer, and say what it was"
faulty "sync:2:slow" --steps 3 --resume good --checkpoint-dir runs --deadline 5 >"$out" 2>"$err" ||
  fail "the deadline of collectives ended a save"
status=0
faulty "sync:2:slow" --steps 3 --resume good --checkpoint-dir runs --disk-deadline 3 >"$out" 2>"$err" ||
  status=$?
[ $status -ne 0 ] || fail "no limit for a slow disk"
contains "$err" 'saving to --checkpoint-dir runs \(--disk-deadline\) took longer than 3 s: is its disk slow'
tessera train "${flags[@]}" --steps 3 --resume runs
slow_eval() {  # FLAG...: the first read under runs takes 6 s
  env LD_PRELOAD="$TESSERA_FAULTS" TESSERA_FAULT_UNDER=runs TESSERA_FAULT=read:1:slow "$program" eval --model \
    runs/step-00000003 --data text.txt --seq-len 16 --precision fp32 --threads 1 --comm threads:2 --windows 4 "$@"
}
slow_eval --deadline 2 >"$out" 2>"$err" || fail "the deadline of collectives ended an evaluation's reading"
status=0
slow_eval --disk-deadline 2 >"$out" 2>"$err" || status=$?
[ $status -ne 0 ] || fail "no limit for a slow disk that is read"
contains "$err" 'reading .* \(--disk-deadline\) took longer than 2 s: is its disk slow'

echo "== a file system without locks: the second run is refused while the first lives"
cp -r good runs_without
without=(env LD_PRELOAD="$TESSERA_FAULTS" TESSERA_FAULT_UNDER=runs_without TESSERA_FAULT="lock:*:ENOLCK" "$program" train
         "${flags[@]}" --checkpoint-dir runs_without --resume auto)
start_run "${without[@]}" --steps 1000000 --log-every 1000000
expect_error "checkpoint-dir runs_without: another run writes there: process $run on " "${without[@]}" --steps 3
kill -KILL $run
wait $run 2>/dev/null || true
timeout "$limit" "${without[@]}" --steps 3 >"$out" 2>"$err" || fail "the lock of a killed run stays"
contains "$err" "run.lock was left by process $run on .* its lock is taken over"
run=

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Four foreign policies do what the built-in ones do, to the bit; so do policies that take others as arguments.
# usage: policies.sh PROGRAM
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*"; exit 1; }
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
for _ in $(seq 200); do echo "the rank holds a shard of every weight"; done >text.txt
flags=(--data text.txt --model tiny --seq-len 16 --batch-size 8 --grad-accum 2 --threads 1)
steps() { python3 -c "
import json, sys
for record in map(lambda line: json.loads(line, parse_float=str), open(sys.argv[1])):
    if 'event' not in record:
        print(record['step'], record['loss'], record['grad_norm'])" "$1"; }

echo "== foreign policies train, resume, plan and print their schedule as those that they imitate"
for which in foreign imitated; do
  "$program" $which "${flags[@]}" --ranks 2 --steps 6 --metrics $which.jsonl --checkpoint-dir $which \
    --checkpoint-every 3 >$which.out
  "$program" $which "${flags[@]}" --ranks 2 --steps 6 --metrics $which-again.jsonl --resume $which/step-00000003 \
    --checkpoint-dir $which-again >$which.out
  "$program" $which "${flags[@]}" --ranks 2 --dry-run >$which.plan
  "$program" $which "${flags[@]}" --ranks 2 --print-schedule >$which.schedule
  steps $which.jsonl >$which.steps
  [ "$(wc -l <$which.steps)" -eq 6 ] || fail "$which took $(wc -l <$which.steps) steps"
  steps $which-again.jsonl >$which-again.steps
  same <(tail -3 $which.steps) $which-again.steps
  same $which/step-00000006/model.safetensors $which-again/step-00000006/model.safetensors
done
same foreign.steps imitated.steps
same foreign/step-00000006/model.safetensors imitated/step-00000006/model.safetensors
same foreign/step-00000006/optimizer.safetensors imitated/step-00000006/optimizer.safetensors
same foreign.schedule imitated.schedule
same <(grep peak foreign.plan) <(grep peak imitated.plan)
grep -q '"stack":"mine::Sharding mine::Ranks mine::Precision mine::Tiles"' foreign.jsonl || fail "the start record"
grep -q '"stack":"fsdp2 threads:2 bf16 tokens:9"' imitated.jsonl || fail "the start record of the imitated stack"

echo "== policies with policies as their arguments train and resume"
for run in "wrapped 2 fsdp2:layout=flat:offload=optimizer threads:2 bf16:wire=bf16 off" \
  "hybrid 4 hybrid:2:zero3 threads:4 bf16 tokens:9"; do
  read -r which ranks stack <<<"$run"
  "$program" "$which" "${flags[@]}" --ranks "$ranks" --steps 6 --metrics "$which.jsonl" --checkpoint-dir "$which" \
    --checkpoint-every 3 >"$which.out"
  "$program" "$which" "${flags[@]}" --ranks "$ranks" --steps 6 --metrics "$which-again.jsonl" \
    --resume "$which/step-00000003" >"$which.out"
  grep -q "\"stack\":\"$stack\"" "$which.jsonl" || fail "$(head -1 "$which.jsonl")"
  same <(steps "$which.jsonl" | tail -3) <(steps "$which-again.jsonl")
  python3 - <<PY || fail "$which does not follow the plain stack"
import json
losses = [[r["loss"] for r in map(json.loads, open(name)) if "event" not in r] for name in ("$which.jsonl", "imitated.jsonl")]
assert all(abs(a - b) < 2e-2 * b for a, b in zip(*losses)) and losses[0][-1] < losses[0][0], losses
PY
done

echo "== what types settle is no flag"
"$program" foreign --help >help
for flag in sharding precision tiling comm; do
  ! grep -q -- "--$flag " help || fail "--help has --$flag"
  status=0
  "$program" imitated "${flags[@]}" --$flag fsdp2 2>err || status=$?
  [ $status -eq 2 ] && grep -q -- "--$flag is fixed by this program: " err || fail "$(cat err)"
done
for ranks in 0 -1 2000; do
  status=0
  "$program" imitated "${flags[@]}" --ranks=$ranks 2>err || status=$?
  [ $status -eq 2 ] && grep -q -- "--ranks $ranks must be at least 1 and at most 1024" err || fail "$(cat err)"
done
grep -q -- '--ranks' help || fail "--help lacks --ranks"
echo "== done"

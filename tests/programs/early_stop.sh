#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --patience: a run ends where its held-out loss falls no more, its best step stays, and a resumed run ends at the same step.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(--data text.txt --data-format bytes --model tiny --seq-len 32 --batch-size 4 --precision fp32 --lr 1e-2 --lr-schedule constant --seed 1
  --validation-fraction 0.2 --validation-every 3 --patience 2 --steps 300 --threads 1)

tessera train "${flags[@]}" --checkpoint-dir all --checkpoint-every 3 --metrics all.jsonl
contains "$out" 'ended, since 2 held-out losses in a row were no lower than that of step [0-9]+, [0-9.]+'
best=$(grep -o 'that of step [0-9]*' "$out" | grep -o '[0-9]*$')
last=$(summary all.jsonl steps)
[ "$last" -eq $((best + 6)) ] || fail "the best is step $best, and the run ended at $last"
[ -d "$(printf 'all/step-%08d' "$last")" ] || fail "the last step was not saved"
python3 - "$best" <<'PY'
import json, sys
losses = {r["step"]: r["validation_loss"] for r in map(json.loads, open("all.jsonl")) if r.get("event") == "validation"}
assert min(losses, key=losses.get) == int(sys.argv[1]), losses
PY

echo "== the best stays, whatever --keep says"
tessera train "${flags[@]}" --checkpoint-dir few --keep 1 --checkpoint-every 3 --comm threads:2
[ "$(ls -d few/step-* | wc -l)" -le 2 ] || fail "--keep 1 left more than the newest and the best"
grep -q "that of step" "$out" || fail "two ranks did not end"
[ -d "$(printf 'few/step-%08d' "$(grep -o 'that of step [0-9]*' "$out" | grep -o '[0-9]*$')")" ] || fail "the best was removed"

echo "== resumed between the best and the end"
cp -r all again
rm -r "$(printf 'again/step-%08d' "$last")"
tessera train "${flags[@]}" --checkpoint-dir again --resume auto
contains "$out" "held-out losses in a row were no lower than that of step $best,"
[ -d "$(printf 'again/step-%08d' "$last")" ] || fail "the resumed run ended at another step"
tessera train "${flags[@]}" --checkpoint-dir again --resume auto
contains "$out" "no lower than that of step $best,"

expect_error '--patience counts held-out losses' "$program" train --data text.txt --model tiny --patience 3

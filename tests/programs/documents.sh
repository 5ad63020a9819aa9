#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --document-separator: another loss, the same memory; and one that occurs nowhere is refused.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 4000 text.txt
flags=(--data text.txt --model tiny --seq-len 96 --steps 3 --batch-size 4 --comm threads:2 --seed 1)

# run NAME FLAG...: its losses are in NAME.losses, its peak of tensor memory in NAME.peak.
run() {
  local name=$1
  shift
  tessera train "${flags[@]}" "$@" --metrics "$name.jsonl" --checkpoint-dir "$name"
  python3 - "$name" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1] + ".jsonl")]
open(sys.argv[1] + ".losses", "w").write("\n".join(str(line["loss"]) for line in lines if "step" in line and "loss" in line))
open(sys.argv[1] + ".peak", "w").write(str(lines[-1]["peak_bytes"]))
PY
}

for precision in fp32 bf16; do
  run whole --precision $precision
  run lines --precision $precision --document-separator 10
  run words --precision $precision --document-separator 32
  same whole.peak lines.peak
  same whole.peak words.peak
  for other in lines words; do ! cmp -s whole.losses $other.losses || fail "$other: the losses of whole windows"; done
  rm -r whole* lines* words*
done

echo "== windows of two documents are windows of one each"
python3 -c 'print("\n".join(("%d the rank holds a shard" % i).ljust(31) for i in range(16)))' >even.txt  # 32 bytes each
printf x >>even.txt
all=(--data even.txt --model tiny --precision fp32 --validation-fraction 0 --steps 2 --comm threads:2 --seed 1)
tessera train "${all[@]}" --seq-len 64 --batch-size 8 --document-separator 10 --metrics packed.jsonl
tessera train "${all[@]}" --seq-len 32 --batch-size 16 --metrics alone.jsonl
python3 <<'PY'
import json
def steps(name):
    return [line for line in map(json.loads, open(name)) if "grad_norm" in line]
packed, alone = steps("packed.jsonl"), steps("alone.jsonl")
assert len(packed) == len(alone) == 2
for a, b in zip(packed, alone):
    for name in ("loss", "grad_norm"):
        assert abs(a[name] / b[name] - 1) < 1e-5, (name, a[name], b[name])
PY

echo "== eval"
run model
tessera eval --model model/step-00000003 --data text.txt --seq-len 96 && cp "$out" whole.json
tessera eval --model model/step-00000003 --data text.txt --seq-len 96 --document-separator 10 && cp "$out" lines.json
! cmp -s whole.json lines.json || fail "eval ignores its documents"

echo "== bad"
expect_error "document-separator 256 must be a byte: 0 to 255" "$program" train "${flags[@]}" --document-separator=256
expect_error "document-separator -1 must be at least 0" "$program" train "${flags[@]}" --document-separator=-1
expect_error "document-separator 0: no byte 0 among 4000, so that documents would not be kept apart" "$program" train "${flags[@]}" \
  --document-separator 0
expect_error "document-separator 255: no byte 255" "$program" eval --model model/step-00000003 --data text.txt --document-separator 255
expect_error "document-separator index: text.txt has no index" "$program" train "${flags[@]}" --document-separator index
expect_error "document-separator 256 must be a byte" "$program" eval --model model/step-00000003 --data text.txt \
  --document-separator 256
echo "documents: as described"

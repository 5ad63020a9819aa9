#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --group: a run with groups of parameters is the run that it says, in the memory that was planned; metrics, resume and replay know them.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(train --data text.txt --model tiny --seq-len 16 --batch-size 8 --threads 1)
# run NAME FLAG...: trains and leaves NAME.jsonl and NAME/
run() {
  local name=$1
  shift
  rm -rf "$name" "$name.jsonl"
  tessera "${flags[@]}" --steps 3 --comm threads:2 --metrics "$name.jsonl" --checkpoint-dir "$name" "$@"
}
weights() { echo "$1/step-00000003/model.safetensors"; }
equal() { same "$(weights "$1")" "$(weights "$2")"; }  # RUN RUN

echo "== groups of all parameters are flags"
run plain --lr 1e-3 --weight-decay 0 --clip 0.1
run group --lr 2e-3 --clip 0 --group '* lr=0.5 clip=0.1' 'role=matrix weight-decay=0' --group 'role=table weight-decay=0'
equal group plain
same <(grep -o '"loss":[^,]*' group.jsonl) <(grep -o '"loss":[^,]*' plain.jsonl)
run frozen --freeze '*mlp*' --clip 0.1
run group --group '*mlp* frozen' --clip 0.1
equal group frozen
cmp -s "$(weights frozen)" "$(weights plain)" && fail "the runs are one"

echo "== what each step's line says"
run group --lr 1e-3 --lr-schedule constant --group '*norm* lr=0.1' 'lm_head* clip=0.25' '*mlp* weight-decay=0.5'
contains "$out" '^group +\*norm\*: lr=0\.1$'
python3 - <<'PY'
import json
lines = [json.loads(line) for line in open("group.jsonl")]
assert lines[0]["groups"] == {"*norm*": "lr=0.1", "lm_head*": "clip=0.25", "*mlp*": "weight-decay=0.5"}, lines[0]
steps = [line for line in lines if "grad_norm" in line]
assert len(steps) == 3
for step in steps:
    groups = step["groups"]
    assert list(groups) == ["*norm*", "lm_head*"], step
    assert groups["*norm*"] == {"lr": 1e-3 * 0.1} and groups["lm_head*"]["grad_norm"] > 0, step
assert all("groups" not in json.loads(line) for line in open("plain.jsonl"))
PY

echo "== a dry run knows their memory to the byte"
groups=(--group '*norm* lr=0.1' 'lm_head* clip=0.25' 'role=table lr=0.5' '*layers.0.* frozen')
for sharding in fsdp2 zero3 fsdp2:pieces=4; do
  tessera "${flags[@]}" --comm threads:2 --sharding $sharding "${groups[@]}" --dry-run
  contains "$out" '^group: \*norm\* lr=0\.1 \([0-9]+ tensors, [0-9,]+ weights\)$'
  planned=$(awk '$1 == "peak" { print $2 }' "$out")
  run "${sharding%%:*}" --sharding $sharding "${groups[@]}"
  [ "$(summary "${sharding%%:*}.jsonl" peak_bytes)" -eq "$planned" ] ||
    fail "planned $planned bytes, took $(summary "${sharding%%:*}.jsonl" peak_bytes)"
done

echo "== in pieces, a run goes on to the bit on other ranks, and is replayed"
pieces=(--sharding fsdp2:pieces=4 "${groups[@]}")
run whole "${pieces[@]}" --digests whole.digests
rm -rf parts
tessera "${flags[@]}" "${pieces[@]}" --steps 2 --comm threads:2 --lr-schedule constant --checkpoint-dir parts
tessera "${flags[@]}" "${pieces[@]}" --steps 3 --comm threads:3 --lr-schedule constant --checkpoint-dir parts --resume parts
contains "$out" '^resumed: goes on to the bit$'
run constant "${pieces[@]}" --lr-schedule constant
equal parts constant
tessera replay whole --step 2 --comm threads:1 --against whole.digests
tessera replay whole --step 2 --comm threads:1 --against whole.jsonl
contains "$out" 'gradient norm [0-9.]+, of lm_head\* [0-9.]+$'
contains "$out" 'loss and gradient norm are those of whole.jsonl'

echo "== another list is said"
tessera "${flags[@]}" --steps 4 --comm threads:2 --resume constant --group '*norm* lr=0.2' 'lm_head* clip=0.25' '*layers.0.* frozen'
contains "$out" "^resumed: --group '\*norm\*' was lr=0.1, is lr=0.2$"
contains "$out" "^resumed: --group '\* role=table' was lr=0.5, is not given$"
lacks "$out" 'resumed.*lm_head'

echo "== a file has them as a list"
cat >groups.toml <<'END'
group = ["*norm* lr=0.1", "lm_head* clip=0.25", "role=table lr=0.5", "*layers.0.* frozen"]
END
run file --sharding fsdp2:pieces=4 --lr-schedule constant --config groups.toml
equal file constant

echo "== what cannot be"
train=("$program" "${flags[@]}" --steps 3 --comm threads:2)
refused "group 'lm_haed\*' matches no parameter of the model; did you mean" "${train[@]}" --group 'lm_haed* lr=0.1'
expect_error "'rl' is not known; did you mean 'lr'" "${train[@]}" --group 'lm_head* rl=0.1'
expect_error "lr is -1; give at least 0 and at most 1000" "${train[@]}" --group 'lm_head* lr=-1'
expect_error "sets nothing; give it lr" "${train[@]}" --group 'lm_head*'
refused "groups 'lm_head\*' and '\*' give parameter 'lm_head.weight' different values: lr 0.1 and 0.2" "${train[@]}" \
  --group 'lm_head* lr=0.1' '* lr=0.2'
refused "every parameter is frozen" "${train[@]}" --group '* frozen'
refused "frozen parameters alone" "${train[@]}" --lora-rank 2 --group 'lm_head* lr=0.1'

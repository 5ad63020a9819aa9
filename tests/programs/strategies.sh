#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Strategies on two axes, choices about units and loss scaling, from the command line.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(train --data text.txt --model tiny --tied --seq-len 16 --precision fp32 --threads 1)

run() { # NAME FLAG...: trains and leaves NAME.jsonl and NAME/
  local name=$1
  shift
  rm -rf "$name" "$name.jsonl"
  tessera "${flags[@]}" --steps 4 --batch-size 8 --metrics "$name.jsonl" --checkpoint-dir "$name" "$@"
}

echo "== every strategy follows the plain one"
run plain --comm threads:4
for sharding in fsdp2:2 fsdp2:deferred fsdp2:prefetch=2 zero3:persist=64 zero3:live=100000 hybrid:2 hybrid:2:full hybrid:2:zero3 \
  hybrid:2:full:zero1; do
  run other --comm threads:4 --sharding "$sharding"
  close <(steps other.jsonl) <(steps plain.jsonl) 1e-5
done
rm -f resumed.jsonl
tessera "${flags[@]}" --steps 6 --batch-size 8 --comm threads:2 --sharding hybrid:1 --resume other --metrics resumed.jsonl
[ "$(steps resumed.jsonl | wc -l)" -eq 2 ] || fail "resumed.jsonl holds $(steps resumed.jsonl)"
tessera "${flags[@]}" --comm threads:3 --batch-size 9 --sharding hybrid:3:full --dry-run
contains "$out" '^ *peak'

echo "== a budget for gathered weights changes no bit, and may change in a run"
for budget in 1200KiB 1500KiB 1GiB; do
  run budgeted --comm threads:4 --sharding fsdp2:budget=$budget
  same <(steps budgeted.jsonl) <(steps plain.jsonl)
done
rm -f resumed.jsonl
tessera "${flags[@]}" --steps 6 --batch-size 8 --comm threads:4 --sharding zero3:budget=1500KiB --resume budgeted --metrics resumed.jsonl
[ "$(steps resumed.jsonl | wc -l)" -eq 2 ] || fail "resumed.jsonl holds $(steps resumed.jsonl)"

echo "== every layout follows the plain one"
run unclipped --comm threads:4 --clip 0
for layout in per-parameter flat owned; do
  for sharding in fsdp2 zero2; do
    run other --comm threads:4 --clip 0 --sharding $sharding --layout $layout
    close <(steps other.jsonl) <(steps unclipped.jsonl) 1e-5
  done
done
contains other.jsonl '"stack":"zero2:layout=owned threads:4'
rm -f resumed.jsonl
tessera "${flags[@]}" --steps 6 --batch-size 8 --clip 0 --comm threads:4 --layout rows --resume other --metrics resumed.jsonl
[ "$(steps resumed.jsonl | wc -l)" -eq 2 ] || fail "resumed.jsonl holds $(steps resumed.jsonl)"
tessera "${flags[@]}" --batch-size 8 --comm threads:4 --layout owned --dry-run
contains "$out" '^fsdp2:layout=owned / threads / fp32, 4 ranks, .*: bytes of rank [0-3], which takes the most$'
expect_error 'replicated cuts no tensor' "$program" "${flags[@]}" --sharding replicated --layout owned --dry-run
expect_error "did you mean 'owned'" "$program" "${flags[@]}" --layout ownd --dry-run

echo "== choices about units change no bit"
for choice in --recompute "--blocks-per-unit 2" "--merge-units-below 100000" --keep-last-block=false; do
  # shellcheck disable=SC2086  # a flag and its value
  run other --comm threads:4 $choice
  same <(steps other.jsonl) <(steps plain.jsonl)
done
tessera "${flags[@]}" --batch-size 8 --comm threads:4 --sharding hybrid:2:full --blocks-per-unit 2 --print-schedule
contains "$out" 'gather-across +block 0 and block 1'

echo "== a loss scale changes no bit, and a checkpoint keeps it"
run scaled --comm threads:4 --loss-scale dynamic
same <(steps scaled.jsonl) <(steps plain.jsonl)
grep -q '"loss_scale":65536' scaled.jsonl
largest=1267650600228229401496703205376  # 2^100
run scaled --comm threads:4 --loss-scale dynamic:$largest
same <(steps scaled.jsonl) <(steps plain.jsonl)
grep -q '"sound_steps": 4' scaled/step-00000004/trainer.json
rm -f again.jsonl
tessera "${flags[@]}" --steps 5 --batch-size 8 --comm threads:4 --loss-scale dynamic --resume scaled --metrics again.jsonl
python3 - <<'PY'
import json
scales = [[json.loads(line).get("loss_scale") for line in open(name) if '"step"' in line and '"loss"' in line]
          for name in ("scaled.jsonl", "again.jsonl")]
assert scales[0][-1] == scales[1][0] == 2**100, scales
PY
expect_error 'loss scale: .* is not a power of two between' "$program" "${flags[@]}" --loss-scale dynamic:2535301200456458802993406410752

echo "== a step whose gradients overflow changes no weight, and halves the scale"
wild=(--comm threads:4 --clip 0 --lr 300 --freeze '*layers*')  # gradients grow more than tenfold a step
run scaled "${wild[@]}" --loss-scale dynamic:$largest --checkpoint-every 1
contains "$out" 'step 3: gradients overflow at loss scale 1.26765e\+30; skipped, the scale is 6.33825e\+29 now'
contains "$out" 'step 4: gradients overflow at loss scale 6.33825e\+29; skipped, the scale is 3.16913e\+29 now'
[ "$(grep -c '"skipped":true' scaled.jsonl)" = 2 ] || fail "two steps are skipped"
same scaled/step-0000000{2,3}/model.safetensors
same scaled/step-0000000{2,4}/model.safetensors
grep -q '"scale": 3.1691.*e+29' scaled/step-00000004/trainer.json
grep -q '"skipped_steps": 2' scaled/step-00000004/trainer.json

echo "== frozen parameters keep their bytes"
run frozen --comm threads:2 --sharding hybrid:1 --freeze '*mlp*' '*norm*'
python3 - <<'PY'
import json, struct
def tensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}
frozen, plain = tensors("frozen/step-00000004/model.safetensors"), tensors("plain/step-00000004/model.safetensors")
assert frozen.keys() == plain.keys()
for name in frozen:
    if "norm" in name:
        assert frozen[name] == struct.pack("<f", 1.0) * (len(frozen[name]) // 4), name
    assert frozen[name] != plain[name], name
states = tensors("frozen/step-00000004/optimizer.safetensors")
assert states and not any("norm" in name or "mlp" in name for name in states), states.keys()
PY
tessera "${flags[@]}" --steps 5 --batch-size 8 --comm threads:2 --sharding zero3 --resume frozen --freeze '*mlp*' '*norm*'

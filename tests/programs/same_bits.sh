#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Digests of steps in pieces are the same on any number of ranks; diff names the place where something else was planted;
# replay computes a step again; a verified run is the same run.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 560 text.txt  # all of its windows but one are read in 4 steps
flags=(--data text.txt --model tiny --layers 2 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 48
       --seq-len 16 --threads 1 --batch-size 8 --steps 4 --validation-fraction 0.02 --precision fp32)
pieces=(--sharding fsdp2:pieces=4)

# train FILE FLAG...: with its digests in FILE.
train() {
  rm -f "$1"
  tessera train "${flags[@]}" --digests "$@"
}
# says STATUS PATTERN COMMAND...: what the program prints on stdout.
says() {
  local wanted=$1 pattern=$2 status=0
  shift 2
  timeout "$limit" "$program" "$@" >"$out" 2>"$err" || status=$?
  [ "$status" -eq "$wanted" ] || fail "status $status instead of $wanted: tessera $*"
  contains "$out" "$pattern"
  [ "$wanted" -eq 0 ] || contains "$err" "^tessera: (diff: .* and .* differ|replay: .* differs from that of .*); stdout shows where\$"
}
# as_it_was FOLDER: what is in it, and when it was written.
as_it_was() { find "$1" -printf '%p %s %T@ ' -type f -exec sha256sum {} + ; }

echo "== the same digests on other ranks, by another strategy, and of a run that is verified"
tessera train "${flags[@]}" "${pieces[@]}" --comm threads:2 --digests run.jsonl --checkpoint-dir runs \
  --checkpoint-every 2 --metrics metrics.jsonl
count=$(grep -vc '"event"' run.jsonl)
train other.jsonl --sharding zero3:pieces=4 --comm threads:1
says 0 "^steps 1 to 4 are the same \($count digests\)$" diff run.jsonl other.jsonl
cmp <(grep -v event run.jsonl) <(grep -v event other.jsonl)
# k and v are persistent, and q is not; rows would pack tensors.
for groups in "--sharding zero3:pieces=4:persist=512 --blocks-per-unit 2" \
              "--sharding fsdp2:pieces=4 --merge-units-below 5000 --layout rows"; do
  # shellcheck disable=SC2086
  train grouped.jsonl $groups --comm threads:2
  cmp <(grep -v event run.jsonl) <(grep -v event grouped.jsonl)
done
for ranks in 2 3; do
  train verified.jsonl "${pieces[@]}" --comm threads:$ranks --verify-every 1
  contains "$out" '^verify    every step, each rank computes one piece more, of another rank: [0-9.]+ % '
  cmp <(grep -v event run.jsonl) <(grep -v event verified.jsonl)
done

echo "== digests and verification are planned to the byte, and are no part of the run"
both=(--digests planned.jsonl --verify-every 3)
tessera train --dry-run "${flags[@]}" "${pieces[@]}" --comm threads:3 "${both[@]}"
planned=$(awk '$1 == "peak" { print $2 }' "$out")
tessera train "${flags[@]}" "${pieces[@]}" --comm threads:3 "${both[@]}" --metrics planned-metrics.jsonl
[ "$(summary planned-metrics.jsonl peak_bytes)" -eq "$planned" ] ||
  fail "planned $planned bytes, took $(summary planned-metrics.jsonl peak_bytes)"
cp -r runs resumed && rm -r resumed/step-00000004
tessera train "${flags[@]}" "${pieces[@]}" --comm threads:2 --resume resumed --digests resumed.jsonl --verify-every 3
contains "$out" '^resumed: goes on to the bit$'
lacks "$out" '^resumed: --(digests|verify-every)'

echo "== diff names the place of one row of data, one weight, another tiling"
python3 - <<'PY'
text = bytearray(open("text.txt", "rb").read())
text[16 * 20 + 3] ^= 1  # a token of window 20 alone
open("row.txt", "wb").write(text)
PY
tessera train "${flags[@]/text.txt/row.txt}" "${pieces[@]}" --comm threads:2 --digests row.jsonl
says 1 'they part in step [1-4], piece [0-3], embedding, forward$' diff run.jsonl row.jsonl
place=$(sed -n 's/.*they part in step \([0-9]*\), piece \([0-9]*\), .*/\1 \2/p' "$out")
first=$(diff <(grep -v event run.jsonl) <(grep -v event row.jsonl) | sed -n '2s/^< //p' || true)
[ "$place" = "$(sed 's/.*"step":\([0-9]*\),"piece":\([0-9]*\),.*/\1 \2/' <<<"$first")" ] || fail "$place is not $first"
contains "$out" "^for the tensors: tessera replay CHECKPOINTS --step ${place% *} --unit 'embedding' --piece ${place#* } "

for copy in as-it-is changed; do  # both without a manifest, which would tell of the change
  mkdir $copy && cp -r runs/step-00000002 $copy
  rm $copy/*/manifest.json
  sed -i 's/"format_version": 2/"format_version": 1/' $copy/*/trainer.json
done
python3 - changed/step-00000002/model.safetensors <<'PY'
import json, struct, sys
with open(sys.argv[1], "r+b") as file:
    length, = struct.unpack("<Q", file.read(8))
    begin, _ = json.loads(file.read(length))["model.layers.1.mlp.up_proj.weight"]["data_offsets"]
    file.seek(8 + length + begin + 4 * 5)
    file.write(struct.pack("<f", 1.5))
PY
for copy in as-it-is changed; do
  train $copy.jsonl "${pieces[@]}" --comm threads:2 --resume $copy/step-00000002
done
says 1 '^they part in step 3, piece 0, block 1, forward$' diff as-it-is.jsonl changed.jsonl
says 1 '^only run.jsonl has steps 1 to 2$' diff run.jsonl changed.jsonl
contains "$out" '^they part in step 3, piece 0, block 1, forward$'
train tiled.jsonl "${pieces[@]}" --comm threads:2 --tiling tokens:5
says 1 'they part in step 1, ' diff run.jsonl tiled.jsonl
contains "$out" '^stacks are fsdp2:pieces=4 threads:2 fp32 off and fsdp2:pieces=4 threads:2 fp32 tokens:5$'

echo "== files that cannot be compared, or only in part"
train pieces.jsonl --sharding fsdp2:pieces=8 --comm threads:2
says 1 '^a step has 4 pieces in run.jsonl and 8 in pieces.jsonl: gradients and weights alone are compared$' \
  diff run.jsonl pieces.jsonl
contains "$out" 'they part in step 1, [a-z 0-9]+, gradient$'
shallow=("${flags[@]}")
shallow[5]=1  # --layers
tessera train "${shallow[@]}" "${pieces[@]}" --digests layers.jsonl
expect_error 'run.jsonl and layers.jsonl are of other models: layers is 2 and 1' "$program" diff run.jsonl layers.jsonl
expect_error 'absent: cannot be read: No such file' "$program" diff run.jsonl absent
expect_error 'metrics.jsonl: holds no digests; give files that --digests wrote' "$program" diff run.jsonl metrics.jsonl
expect_error 'runs: holds no digests.jsonl' "$program" diff runs run.jsonl
expect_error 'diff: give two files of digests, or folders with tensors: tessera diff A B' "$program" diff run.jsonl
expect_error 'unknown flag --step' "$program" diff run.jsonl other.jsonl --step 3

echo "== a step computed again, on any number of ranks, from the checkpoint before it or from the beginning"
as_it_was runs >before
for ranks in 1 3; do
  rm -f again.jsonl
  says 0 "^step 3 of runs on $ranks ranks?, from runs/step-00000002: loss " replay runs --step 3 \
    --comm threads:$ranks --digests again.jsonl --against run.jsonl
  contains "$out" '^step 3 is the same '
  cmp <(grep '"step":3,' run.jsonl) <(grep -v event again.jsonl)
done
says 0 '^step 2 of runs on 2 ranks, from the beginning: loss ' replay runs --step 2 --comm threads:2 \
  --sharding zero2:pieces=4 --against metrics.jsonl
contains "$out" '^step 2: loss and gradient norm are those of metrics.jsonl$'
says 1 '^they part in step 3, piece 0, block 1, forward$' replay changed --step 3 --against run.jsonl
mv text.txt moved.txt
says 0 '^step 4 is the same ' replay runs --step 4 --data moved.txt --against run.jsonl
expect_error 'text.txt: no such file' "$program" replay runs --step 4
mv moved.txt text.txt
same before <(as_it_was runs)

echo "== its tensors, and their largest difference"
says 0 '^tensors   a: ' replay runs --step 3 --comm threads:3 --tensors a --unit 'block 1' --piece 0
says 0 '^tensors   b: ' replay changed --step 3 --tensors b --unit 'block 1'
[ "$(echo a/*)" = 'a/digests.jsonl a/parameters.safetensors a/piece-00000.safetensors' ] || fail "a holds $(ls a)"
[ "$(ls b | wc -l)" -eq 6 ] || fail "b holds $(ls b)"
says 1 '^they part in step 3, piece 0, block 1, forward$' diff a b
contains "$out" '^the largest difference is [0-9.e-]+, at \[[0-9]+, [0-9]+\] of forward of block 1: '
says 0 '^step 3 of changed' replay changed --step 3 --tensors whole
[ "$(ls whole | wc -l)" -eq 6 ] || fail "whole holds $(ls whole)"
python3 - whole/parameters.safetensors changed/step-00000002/model.safetensors <<'PY'
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    length, = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + length])
stepped, weights = (tensors(path) for path in sys.argv[1:3])
names = {name: entry["shape"] for name, entry in weights.items() if name != "__metadata__"}
for kind in ("gradient of ", "weights of "):
    found = {name[len(kind):]: entry["shape"] for name, entry in stepped.items() if name.startswith(kind)}
    assert found == names, (kind, found, names)
assert set(stepped["__metadata__"]) == set(names)
PY

echo "== tensors that cannot be written: one sentence, and no folder"
text 8000 long.txt
long=("${flags[@]}")
long[1]=long.txt long[17]=256  # --data, --seq-len
tessera train "${long[@]}" "${pieces[@]}" --comm threads:2 --checkpoint-dir long --checkpoint-every 2
for unit in '--unit=block 0' ''; do  # a stream, in the middle of the pass; and the parameters before it
  expect_error 'File too large' bash -c 'ulimit -f 100 && exec "$@"' bash "$program" replay long --step 3 \
    --comm threads:2 --tensors c ${unit:+"$unit"}
done

echo "== what replay refuses"
no() { refused "$1" "$program" replay runs "${@:2}"; }
no 'step 5: the run has steps 1 to 4' --step 5
no 'unit says which tensors are written' --step 3 --unit 'block 0'
no "unit block is no unit of this model; did you mean 'block 0'" --step 3 --tensors c --unit block
no 'piece 4: a step has pieces 0 to 3' --step 3 --tensors c --piece 4
no 'tensors whole: is not empty' --step 3 --tensors whole
no 'the run cut a step into 4 pieces .*; give a strategy with as many' --step 3 --sharding zero3:pieces=8
no 'the run cut a step into 4 pieces' --step 3 --sharding zero3
no 'unknown flag --threads' --step 3 --threads 2
no "the run's data was 1 files, 560 bytes.*; give the run's data by --data" --step 3 --data row.txt
no 'against resumed.jsonl: has no step 1' --step 1 --against resumed.jsonl
no 'none: cannot be read: No such file' --step 3 --against none --tensors c
no "digests runs/step-00000002/config.json is in the run's folder, runs, which replay leaves as it is" --step 3 \
  --digests runs/step-00000002/config.json
no "tensors runs/step-00000007 is in the run's folder" --step 3 --tensors runs/step-00000007
no "digests text.txt is in the run's data" --step 3 --digests text.txt
no 'digests pieces.jsonl: a run of 4 pieces a step, behind one of 8; give each run a file' --step 3 --tensors c \
  --digests pieces.jsonl
[ ! -e c ] || fail "a replay that was refused left $(ls c)"
no 'unknown flag --stpe; did you mean --step' --stpe 3
expect_error 'runs/step-00000002 is one checkpoint; give the folder that holds it' "$program" replay runs/step-00000002 --step 3
expect_error 'step is missing' "$program" replay runs
expect_error 'replay: give the folder of the run.s checkpoints: tessera replay' "$program" replay --step 3

same before <(as_it_was runs)

echo "== a run that began the order of its data anew between two checkpoints"
cp -r runs anew && rm -r anew/step-00000004
tessera train "${flags[@]}" "${pieces[@]}" --comm threads:2 --resume anew --resume-anyway --seed 7 --checkpoint-dir anew
expect_error "replay: between its steps 2 and 4 the run's --seed changed from [0-9]+ to 7, so that" "$program" replay anew \
  --step 3

echo "== a run whose steps are not cut into pieces takes its own ranks and strategy"
tessera train "${flags[@]}" --sharding zero3 --comm threads:2 --digests whole.jsonl --checkpoint-dir uncut --checkpoint-every 2
says 0 '^step 3 is the same ' replay uncut --step 3 --against whole.jsonl
contains "$out" '^step 3 of uncut on 2 ranks, '
expect_error 'its bits are those of 2 ranks, and here are 3; take as many .--comm threads:2' "$program" replay uncut \
  --step 3 --comm threads:3
expect_error 'not cut into pieces, so that replay takes its ranks and its strategy, zero3' "$program" replay uncut \
  --step 3 --sharding fsdp2
expect_error 'verify-every compares pieces of a step, and .* cuts it into none; take fsdp2:pieces=V' "$program" train \
  "${flags[@]}" --verify-every 1
expect_error 'verify-every -1 must be at least 0' "$program" train "${flags[@]}" "${pieces[@]}" --verify-every=-1
expect_error 'cuda-graphs replays one step, and --verify-every makes steps differ' "$program" train "${flags[@]}" \
  "${pieces[@]}" --verify-every 1 --cuda-graphs
expect_error 'digests no/where: cannot be written: No such file' "$program" train "${flags[@]}" --digests no/where
expect_error 'digests pieces.jsonl: a run of 4 pieces a step, behind one of 8; give each run a file' "$program" train \
  "${flags[@]}" "${pieces[@]}" --digests pieces.jsonl --comm threads:2
expect_error 'metrics and --digests both write one.jsonl' "$program" train "${flags[@]}" --digests one.jsonl --metrics one.jsonl

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that share each sequence train what ranks with whole ones do: losses to 1e-6 and weights to 1e-5 after ten steps, for any
# number of them, strategy, heads, tiling, recomputation, accumulation and documents.
#
# usage: sequence.sh PROGRAM    TESSERA_SWEEP=sample: a few of them
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
text 12000 text.txt
flags=(train --data text.txt --model tiny --layers 2 --hidden 24 --heads 12 --head-dim 4 --intermediate 32 --seq-len 17
       --batch-size 48 --threads 1 --steps 10 --precision fp32 --log-every 100)
whole=1
[ "${TESSERA_SWEEP:-whole}" = whole ] || whole=
runs=0

# run NAME FLAG...: trains, and leaves NAME.jsonl and NAME/
run() {
  local name=$1
  shift
  rm -rf "$name" "$name.jsonl"
  tessera "${flags[@]}" --metrics "$name.jsonl" --checkpoint-dir "$name" "$@"
}
# follows RUN RUN: losses of all steps, and each tensor of the weights as a whole.
follows() {
  close <(steps "$1.jsonl" | cut -d ' ' -f 1-2) <(steps "$2.jsonl" | cut -d ' ' -f 1-2) 1e-6
  python3 -c "
import array, json, struct, sys
def tensors(folder):
    data = open(folder + '/step-00000010/model.safetensors', 'rb').read()
    length, = struct.unpack('<Q', data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    header.pop('__metadata__', None)
    return {name: array.array('f', body[slice(*at['data_offsets'])]) for name, at in header.items()}
found, expected = tensors(sys.argv[1]), tensors(sys.argv[2])
assert found.keys() == expected.keys()
for name, values in expected.items():
    norm = sum(y * y for y in values) ** 0.5
    apart = sum((x - y) ** 2 for x, y in zip(found[name], values)) ** 0.5
    assert apart <= 1e-5 * norm, (name, apart / norm)" "$1" "$2" || fail "the weights of $1 and $2 are not close"
}
# grid K RANKS "KV HEADS..." "STRATEGY..." "HOW" "ACCUMULATION AND DOCUMENTS...": all of them.
grid() {
  local sharing=$1 ranks=$2 kv_heads strategies data kv strategy how
  read -ra kv_heads <<<"$3"
  read -ra strategies <<<"$4"
  read -ra data <<<"$6"
  for kv in "${kv_heads[@]}"; do
    run expected --comm threads:"$ranks" --kv-heads "$kv" "${data[@]}"
    for strategy in "${strategies[@]}"; do
      while IFS= read -r how; do
        # shellcheck disable=SC2086
        run found --comm threads:"$ranks" --kv-heads "$kv" "${data[@]}" --sharding "$strategy" \
          --sequence "ulysses:$sharing" $how
        follows found expected
        runs=$((runs + 1))
        [ ! -t 1 ] || printf '\r%d runs' $runs
      done <<<"$5"
    done
  done
}

documents='--document-separator 46'
if [ -n "$whole" ]; then
  every=$'--tiling off\n--tiling tiles:3 --recompute\n--tiling off --recompute\n--tiling tiles:3'
  for data in '--grad-accum 1' '--grad-accum 2' "--grad-accum 1 $documents" "--grad-accum 2 $documents"; do
    for sharing in 2 3 4; do
      grid $sharing $((sharing * 2)) '1 2 3 4 6 12' "fsdp2 zero3 hybrid:$sharing replicated" "$every" "$data"
    done
    grid 2 4 '1 3 12' 'zero1 zero2 fsdp2:2 fsdp2:no-reshard hybrid:2:full' "$every" "$data"
  done
else
  grid 3 6 '2' 'zero3 hybrid:3' '--tiling tiles:3 --recompute' "--grad-accum 2 $documents"
fi
echo "shared sequences: $runs runs follow those of whole ones"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --dry-run: a table that adds up to what a run then takes, to the byte; at once and without memory, for any model.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt

# table FILE: checks that the kinds add up, prints the peak.
table() { awk '$2 ~ /^[0-9]+$/ && $1 != "peak" { sum += $2; kinds++ } $1 == "peak" { peak = $2 }
               END { if (kinds != 6 || sum != peak || !peak) exit 1; printf "%.0f\n", peak }' "$1" ||
  fail "the table of $1"; }

for stack in "fsdp2 fp32 off threads:2" "fsdp2 bf16 tiles:3 threads:2" "zero3 fp32 tokens:7 threads:2" \
  "zero3 bf16 off threads:3" "replicated fp32 off threads:2" "replicated bf16 tokens:100 threads:1" \
  "fsdp2 bf16 budget:60KiB threads:2" "zero3 fp32 budget:250KiB threads:2"; do
  read -r sharding precision tiling comm <<<"$stack"
  for more in "--grad-accum 1" "--grad-accum 2 --tied --vocab 300"; do
    echo "== $stack $more"
    # shellcheck disable=SC2206
    flags=(--model tiny --seq-len 33 --batch-size 12 --steps 2 --threads 1 --sharding "$sharding"
           --precision "$precision" --tiling "$tiling" --comm "$comm" $more)
    tessera train --dry-run "${flags[@]}"
    planned=$(table "$out")
    rm -f metrics.jsonl
    tessera train --data text.txt --metrics metrics.jsonl "${flags[@]}"
    [ "$(summary metrics.jsonl peak_bytes)" -eq "$planned" ] ||
      fail "planned $planned bytes, took $(summary metrics.jsonl peak_bytes)"
  done
done

echo "== pieces: as many sequences on any number of ranks, and rounds of which the last may not be full"
for stack in "fsdp2:pieces=6 off 4" "zero3:pieces=6 tokens:7 3" "zero2:pieces=6 off 1"; do
  read -r sharding tiling ranks <<<"$stack"
  flags=(--model tiny --seq-len 33 --batch-size 12 --steps 2 --threads 1 --sharding "$sharding" --tiling "$tiling" --comm "threads:$ranks")
  tessera train --dry-run "${flags[@]}"
  contains "$out" " 2 x 33 tokens a micro-batch"
  contains "$out" "^6 pieces on $ranks ranks?: $(((6 + ranks - 1) / ranks)) rounds"
  planned=$(table "$out")
  rm -f metrics.jsonl
  tessera train --data text.txt --metrics metrics.jsonl "${flags[@]}"
  contains "$out" "^batch     6 pieces on $ranks ranks?: "
  contains metrics.jsonl '"pieces":6'
  [ "$(summary metrics.jsonl peak_bytes)" -eq "$planned" ] ||
    fail "planned $planned bytes, took $(summary metrics.jsonl peak_bytes)"
done
contains "$out" '^batch     6 pieces on 1 rank: 6 rounds$'
tessera train --print-schedule "${flags[@]}"
[ "$(grep -c 'loss  *head' "$out")" -eq 6 ] || fail "$(cat "$out")"

runtime=$((256 << 20))  # bytes that the process of a rank takes besides tensors

echo "== budget:auto takes what the memory leaves, and the run stays within it"
auto=(--model tiny --layers 3 --seq-len 400 --batch-size 2 --steps 1 --threads 1 --comm threads:2)
tessera train --dry-run "${auto[@]}"
untiled=$(table "$out")
tessera train --dry-run "${auto[@]}" --tiling tiles:400
least=$(table "$out")
for memory in $((untiled + 5)) $(((untiled + least) / 2)); do
  tessera train --dry-run "${auto[@]}" --tiling budget:auto --memory $((memory + runtime))
  contains "$out" '^--tiling budget:auto is budget:[0-9]*: what .* a rank leave$'
  contains "$out" '^tiling: MLP of a block, [0-9]* tiles? of .* tokens.* kept; [0-9]* bytes; [0-9]* FLOPs recomputed$'
  contains "$out" '^tiling: head, [0-9]* tile'
  budget=$(sed -n 's/.*auto is \(budget:[0-9]*\).*/\1/p' "$out")
  planned=$(table "$out")
  ((planned <= memory && planned <= untiled && planned >= least)) || fail "$memory bytes gave a plan of $planned"
  rm -f metrics.jsonl
  tessera train --data text.txt --metrics metrics.jsonl "${auto[@]}" --tiling budget:auto --memory $((memory + runtime))
  contains "$out" "auto is $budget:"
  contains metrics.jsonl "$budget"
  [ "$(summary metrics.jsonl peak_bytes)" -eq "$planned" ] || fail "took $(summary metrics.jsonl peak_bytes)"
done
tessera train --dry-run "${auto[@]}" --tiling budget:auto
[ "$(table "$out")" -eq "$untiled" ] || fail "a small model is tiled where memory is ample"

echo "== budget=auto behind --sharding takes what the rest of a step leaves, and the run stays within it"
weights=(--model tiny --layers 3 --seq-len 16 --batch-size 4 --grad-accum 2 --steps 2 --threads 1 --comm threads:2)
tessera train --dry-run "${weights[@]}"
least=$(table "$out")
gathered=$(sed -n 's/^ *gathered *\([0-9]*\) .*/\1/p' "$out")
for memory in "$least" $((least + gathered / 2)) $((least + 3 * gathered)); do
  tessera train --dry-run "${weights[@]}" --sharding fsdp2:budget=auto --memory $((memory + runtime))
  contains "$out" "^--sharding budget=auto is fsdp2:budget=$((memory - least + gathered)): what .* a rank leave\$"
  contains "$out" '^residency: groups held for the step [0-9], .*, the least within the budget$'
  planned=$(table "$out")
  ((planned <= memory && planned >= least)) || fail "$memory bytes gave a plan of $planned"
  rm -f metrics.jsonl
  tessera train --data text.txt --metrics metrics.jsonl "${weights[@]}" --sharding fsdp2:budget=auto --memory $((memory + runtime))
  contains metrics.jsonl "fsdp2:budget=$((memory - least + gathered)) "
  [ "$(summary metrics.jsonl peak_bytes)" -eq "$planned" ] || fail "took $(summary metrics.jsonl peak_bytes)"
done
contains "$out" 'fsdp2:budget='

echo "== a large model on many ranks takes no memory"
large=(train --dry-run --hidden 4096 --layers 32 --heads 32 --kv-heads 8 --intermediate 14336 --vocab 128256
       --seq-len 8192 --batch-size 64)
peaks=()
for ranks in 1 8 64; do
  (ulimit -v 2000000; timeout 20 "$program" "${large[@]}" --ranks $ranks >"$out" 2>"$err") || fail "$ranks ranks"
  peaks+=("$(table "$out")")
  contains "$out" " $ranks ranks?,"
done
((peaks[0] > peaks[1] && peaks[1] > peaks[2])) || fail "peaks do not fall: ${peaks[*]}"
expect_error 'cannot be shared by 7 ranks' "$program" "${large[@]}" --ranks 7
[ "$(listing)" = "$(printf '.\n./metrics.jsonl\n./text.txt')" ] || fail "left files: $(listing)"

echo "== planning takes no longer for more sequences"
tessera train --dry-run --model tiny --seq-len 16 --batch-size 1048576 --threads 1
tessera train --dry-run --model tiny --seq-len 2048 --batch-size 100000 --threads 1 --tiling tokens:1024
contains "$out" '^ *peak '

echo "== the schedule of a step, in order"
tessera train --print-schedule --model tiny --layers 1 --seq-len 16 --comm threads:2 --sharding fsdp2
sed 's/, slot.*//' "$out" | awk '{ print $3, $4, $5 }' | sed 's/ *$//' >schedule
for task in 'gather embedding' 'loss head' 'backward embedding' 'close-gradient embedding'; do
  contains schedule "^$task$"
done
[ "$(grep -c '^gather' schedule)" -ge 3 ] || fail "$(cat schedule)"
[ "$(grep -c '^reduce' schedule)" -eq 3 ] || fail "$(cat schedule)"
tessera train --print-schedule --model tiny --layers 1 --seq-len 16 --comm threads:2 --sharding replicated
lacks "$out" 'gather'

echo "== inputs in host memory: the least share that fits is named, and the run takes the bytes of its plan"
inputs=(--model tiny --layers 5 --seq-len 200 --batch-size 2 --steps 2 --threads 1 --comm threads:2)
tessera train --dry-run "${inputs[@]}" --recompute
kept=$(table "$out")
tessera train --dry-run "${inputs[@]}" --recompute --offload inputs
least=$(table "$out")
contains "$out" '^beside it, in host memory: [0-9]+ bytes '
host=$(sed -n 's/^beside it, in host memory: \([0-9]*\) .*/\1/p' "$out")
flags=("${inputs[@]}" --recompute --offload inputs)
tessera train --dry-run "${flags[@]}" --memory $((least + host + runtime))
contains "$out" '^memory: this step fits into .* per rank; it needs .*, 256.00 MiB of them besides tensors$'
ends_with 2 '^tessera: --memory: this step does not fit: a rank needs .*; tessera plan --fit --cluster NAME searches for flags that fit$' \
  "$program" train --dry-run "${flags[@]}" --memory $((least + host + runtime - 1))
contains "$out" '^  peak +'
contains "$out" '^memory: this step does not fit into .* per rank; it needs .*; the whole run takes '
lacks "$out" ' with .*--offload'  # the host has one memory
if "$program" stacks | grep -q -- '--comm nccl'; then
  echo "== a device with memory of its own: the least share that fits is named"
  on_gpus=("${inputs[@]/threads:2/nccl}" --ranks 2)
  gpu() { tessera train --dry-run "${on_gpus[@]}" "$@"; table "$out"; }
  kept=$(gpu --recompute)
  memory=$((($(gpu --recompute --offload inputs) + kept) / 2 + 1060000000))
  ends_with 2 'does not fit' "$program" train --dry-run "${on_gpus[@]}" --memory "$memory"
  share=$(sed -n 's/.*--recompute --offload \(inputs[:0-9.]*\) (.* of host memory).*/\1/p' "$out")
  tessera train --dry-run "${on_gpus[@]}" --memory "$memory" --recompute --offload "$share"
fi
flags[-1]=inputs:0.5
tessera train --dry-run "${flags[@]}"
planned=$(table "$out")
tessera train --data text.txt --metrics inputs.jsonl --trace inputs.trace "${flags[@]}"
[ "$(summary inputs.jsonl peak_bytes)" -eq "$planned" ] || fail "took $(summary inputs.jsonl peak_bytes)"
contains inputs.trace '"name":"fetch-input'
tessera train --print-schedule "${flags[@]}"
contains "$out" '^micro-batch 0  send-input      block 0, slot 0$'
expect_error 'keep their input alone; add --recompute' "$program" train --data text.txt "${inputs[@]}" --offload inputs

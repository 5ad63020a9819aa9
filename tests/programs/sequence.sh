#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --sequence: ranks that share each sequence train what ranks with whole ones do, in the memory that was planned.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(train --data text.txt --model tiny --heads 4 --kv-heads 2 --seq-len 17 --batch-size 8 --threads 1 --precision fp32
       --validation-fraction 0.05)
# run NAME FLAG...: trains and leaves NAME.jsonl and NAME/
run() {
  local name=$1
  shift
  rm -rf "$name" "$name.jsonl"
  tessera "${flags[@]}" --steps 4 --metrics "$name.jsonl" --checkpoint-dir "$name" "$@"
}
losses() { steps "$1.jsonl" | cut -d ' ' -f 1-3; }  # RUN
# follows RUN RUN: losses and norms of steps, and the held-out one, to 1e-6.
follows() {
  close <(losses "$1") <(losses "$2") 1e-6
  close <(summary "$1.jsonl" validation_loss) <(summary "$2.jsonl" validation_loss) 1e-6
}

echo "== the losses of whole sequences"
run whole --comm threads:2
run shared --comm threads:2 --sequence ulysses:2
follows shared whole
contains shared.jsonl '"ranks_per_sequence":2'
contains shared.jsonl '"sequence":\{"all_to_all":'
lacks whole.jsonl 'all_to_all'
run groups --comm threads:4 --sequence ulysses:2:parts=2 --sharding hybrid:2:zero3 --recompute --grad-accum 2
follows groups whole
run adapters --comm threads:2 --lora-rank 2 --lora-dropout 0.2
run shared --comm threads:2 --lora-rank 2 --lora-dropout 0.2 --sequence ulysses:2
follows shared adapters

echo "== a dry run knows their memory to the byte"
for more in '' '--recompute --offload inputs' '--recompute --offload inputs:0.5 --tiling tiles:3'; do
  # shellcheck disable=SC2086
  tessera "${flags[@]}" --comm threads:2 --sequence ulysses:2 --dry-run --layers 4 $more
  planned=$(awk '$1 == "peak" { print $2 }' "$out")
  # shellcheck disable=SC2086
  run planned --comm threads:2 --sequence ulysses:2 --layers 4 $more
  [ "$(summary planned.jsonl peak_bytes)" -eq "$planned" ] ||
    fail "planned $planned bytes, took $(summary planned.jsonl peak_bytes)"
done

echo "== in pieces, the bits are those of any number of groups; a run goes on with another K"
run one --comm threads:2 --sequence ulysses:2 --sharding fsdp2:pieces=4 --digests one.digests
run two --comm threads:4 --sequence ulysses:2 --sharding fsdp2:pieces=4 --digests two.digests
[ "$(steps one.jsonl | wc -l)" -eq 4 ] && [ "$(grep -vc event one.digests)" -gt 20 ] || fail "too little is compared"
same <(steps one.jsonl) <(steps two.jsonl)
same <(grep -v event one.digests) <(grep -v event two.digests)
tessera "${flags[@]}" --steps 5 --comm threads:2 --checkpoint-dir on --resume whole --sequence ulysses:2
contains "$out" 'resumed: --sequence was whole, is ulysses:2'

echo "== five million tokens on 8 ranks of 80 GiB, one million on 8 of 40 GiB, by plan"
long=(train --dry-run --model small --vocab 128256 --hidden 4096 --intermediate 14336 --layers 32 --heads 32 --kv-heads 8
      --head-dim 128 --precision bf16 --comm threads:8 --threads 1 --batch-size 1 --sequence ulysses:8 --recompute
      --tiling budget:1GiB)
tessera "${long[@]}" --seq-len 5242880 --offload inputs
[ "$(awk '$1 == "peak" { print $2 }' "$out")" -le $((80 << 30)) ] || fail "more than 80 GiB"
contains "$out" 'in host memory: 166[0-9]{9} bytes'
if "$program" stacks | grep -q -- '--comm nccl'; then  # whose ranks have a memory of their own
  ends_with 2 'this step does not fit: a rank needs .*; tessera plan --fit --cluster NAME searches' \
    "$program" "${long[@]}" --seq-len 1048576 --memory 44GiB --comm nccl --ranks 8
  contains "$out" 'would take 3[0-9.]+ GiB with --offload inputs:0\.[0-9]+ \([0-9.]+ GiB of host memory\)'
fi

echo "== refusals"
train=("$program" train --data text.txt --model tiny --seq-len 17)
expect_error '6 heads of attention cannot be divided among 4 ranks .*; of 4 ranks 1 or 2 can share one' \
  "${train[@]}" --heads 6 --kv-heads 2 --comm threads:4 --batch-size 4 --sequence ulysses:4
expect_error 'parts are of ranks that share a sequence; give ulysses:K with K above 1, or leave parts out' \
  "${train[@]}" --comm threads:2 --batch-size 4 --sequence ulysses:1:parts=4
for parts in 4 2147483647; do
  expect_error "the 2 heads of each rank cannot be cut into $parts parts; give 1 or 2" \
    "${train[@]}" --heads 4 --kv-heads 2 --comm threads:2 --batch-size 4 --sequence ulysses:2:parts=$parts
done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every instruction set that this processor has: bf16 trains under each, with losses that are close, and the same to the bit under all strategies.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 20000 text.txt
mapfile -t has < <(instruction_sets)
flags=(train --model tiny --seq-len 64 --steps 50 --batch-size 4 --lr 1e-3 --seed 1 --data text.txt --precision bf16)
for isa in "${has[@]}"; do
  echo "== $isa"
  export TESSERA_ISA=$isa
  for run in fsdp2 zero3 replicated; do
    tessera "${flags[@]}" --comm threads:2 --threads 1 --sharding $run --metrics "$isa.$run.jsonl" --checkpoint-dir "$isa.$run"
    steps "$isa.$run.jsonl" | cut -d' ' -f1,2 >"$isa.$run.losses"
    contains "$out" "^stack .*, 2 ranks x 1 thread, $isa(, bf16 by way of float)?( .slow|$)"
    [ $run = fsdp2 ] || same "$isa.fsdp2.losses" "$isa.$run.losses"
  done
  falls "$isa.fsdp2.jsonl"
  close "$isa.fsdp2.losses" baseline.fsdp2.losses 1e-2
  grep -Eq "\"instruction_set\":\"$isa(, bf16 by way of float)?\"" "$isa.fsdp2.jsonl" || fail "the metrics do not say $isa"
  tessera "${flags[@]}" --dry-run --comm threads:2 --threads 1
  planned=$(awk '$1 == "peak" { print $2 }' "$out")
  [ "$(summary "$isa.fsdp2.jsonl" peak_bytes)" -eq "$planned" ] || fail "planned $planned bytes"
done
unset TESSERA_ISA

echo "== bf16 by way of float where it is asked for, and a resume on another processor"
TESSERA_BF16_MATMUL=float tessera "${flags[@]}" --comm threads:2 --threads 1 --metrics float.jsonl
steps float.jsonl | cut -d' ' -f1,2 >float.losses
close float.losses baseline.fsdp2.losses 1e-2
if [ "${has[-1]}" = avx512_bf16 ] && grep -q AuthenticAMD /proc/cpuinfo; then
  cmp -s float.losses avx512_bf16.fsdp2.losses && fail "TESSERA_BF16_MATMUL changes no bit"
  grep -q '"instruction_set":"avx512_bf16, bf16 by way of float"' float.jsonl || fail "the metrics do not say how bf16 is multiplied"
  TESSERA_BF16_MATMUL=float tessera "${flags[@]/50/51}" --comm threads:2 --threads 1 --resume avx512_bf16.fsdp2
  contains "$out" "resumed: the instruction set was avx512_bf16, is avx512_bf16, bf16 by way of float"
fi
if [ "${#has[@]}" -gt 1 ]; then
  TESSERA_ISA=${has[-1]} tessera "${flags[@]/50/51}" --comm threads:2 --threads 1 --resume baseline.fsdp2
  contains "$out" "resumed: the instruction set was baseline, is ${has[-1]}"
fi

echo "== a lesser set of oneDNN's alone"
DNNL_MAX_CPU_ISA=AVX2 tessera "${flags[@]}" --comm threads:2 --threads 1 --metrics library.jsonl
steps library.jsonl | cut -d' ' -f1,2 >library.losses
close library.losses baseline.fsdp2.losses 1e-2

echo "== bad"
bad=("$program" "${flags[@]}")
TESSERA_ISA=sse expect_error "TESSERA_ISA is 'sse'; baseline, avx2, avx512 and avx512_bf16 exist" "${bad[@]}"
TESSERA_BF16_MATMUL=fast expect_error "TESSERA_BF16_MATMUL is 'fast'; native and float exist" "${bad[@]}"
TESSERA_BF16_MATMUL=fast expect_error "TESSERA_BF16_MATMUL is 'fast'; native and float exist" "$program" train --model tiny --data text.txt --precision fp32
TESSERA_ISA=baseline TESSERA_BF16_MATMUL=native expect_error 'oneDNN has no bf16 matmul for baseline, or for what DNNL_MAX_CPU_ISA leaves .it needs AVX-512.; leave it out' "${bad[@]}"
if [ "${has[-1]}" != avx512_bf16 ]; then
  TESSERA_ISA=avx512_bf16 expect_error 'TESSERA_ISA is avx512_bf16, which this processor lacks; it has' "${bad[@]}"
fi
echo "processors: as described"

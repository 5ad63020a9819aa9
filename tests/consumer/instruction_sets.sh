#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A trainer of bf16 that links an installed library runs under every instruction set of this processor, as a machine without the others would
# run it: oneDNN is limited as well.
# usage: instruction_sets.sh PROGRAM
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 4000 text.txt
declare -A library=([baseline]=SSE41 [avx2]=AVX2 [avx512]=AVX512_CORE [avx512_bf16]=AVX512_CORE_BF16)
for isa in $(instruction_sets); do
  TESSERA_ISA=$isa DNNL_MAX_CPU_ISA=${library[$isa]} tessera --data text.txt --model tiny --seq-len 32 --batch-size 4 --steps 20 --lr 3e-3 \
    --threads 1 --metrics "$isa.jsonl"
  grep -q "\"instruction_set\":\"$isa" "$isa.jsonl" || fail "the metrics do not say $isa"
  falls "$isa.jsonl"
  steps "$isa.jsonl" | cut -d' ' -f1,2 >"$isa.losses"
  close "$isa.losses" baseline.losses 1e-2
done

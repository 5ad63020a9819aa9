#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Digests over MPI are those over threads; replay under mpirun, which writes tensors together, and diff of what it wrote.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 560 text.txt
flags=(train --data text.txt --model tiny --layers 2 --seq-len 16 --threads 1 --batch-size 8 --steps 4 --precision fp32)
job() { timeout "$limit" mpirun --oversubscribe -np "$1" "$program" "${@:2}" >"$out" 2>"$err" || fail "status $?: $*"; }

tessera "${flags[@]}" --sharding fsdp2:pieces=4 --comm threads:2 --digests run.jsonl --checkpoint-dir runs --checkpoint-every 2
for windows in true false; do
  rm -f mpi.jsonl
  job 3 "${flags[@]}" --sharding zero3:pieces=4 --digests mpi.jsonl --verify-every 2 --shared-windows=$windows
  cmp <(grep -v event run.jsonl) <(grep -v event mpi.jsonl)
done
job 3 replay runs --step 3 --against run.jsonl --tensors a
contains "$out" '^step 3 of runs on 3 ranks, from runs/step-00000002: '
contains "$out" '^step 3 is the same '
tessera replay runs --step 3 --tensors b
tessera diff a b
for file in a/*.safetensors; do same "$file" "b/${file#a/}"; done
[ "$(ls a/*.safetensors | wc -l)" -eq 5 ] || fail "a holds $(ls a)"

# What all ranks would say is said once.
status=0
timeout "$limit" mpirun --oversubscribe -np 3 "$program" replay absent --step 3 >"$out" 2>"$err" || status=$?
[ "$status" -eq 2 ] || fail "status $status instead of 2"
[ "$(grep -c 'absent: no such folder' "$err")" -eq 1 ] || fail "said $(grep -c 'absent: no such folder' "$err") times"
cp -r runs torn && echo '{' >torn/step-00000004/trainer.json
job 3 replay torn --step 3 --against run.jsonl
[ "$(grep -c 'skipping torn/step-00000004' "$err")" -eq 1 ] || fail "said $(grep -c skipping "$err") times"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `train --fit` under mpirun: processes time ways and train with MPI initialised once, and agree on the way; errors are said once, those of one rank too.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
cp "$golden/../docs/two.toml" two.toml
flags=(train --data text.txt --model tiny --layers 2 --seq-len 32 --batch-size 8 --threads 1 --steps 3)
job() { timeout "$limit" mpirun --oversubscribe -np 2 "$program" "$@" >"$out" 2>"$err" || fail "status $?: $*"; }
once() { [ "$(grep -c -- "$1" "$err")" -eq 1 ] || fail "said $(grep -c -- "$1" "$err") times: $1"; }

for windows in true false; do
  echo "== the run is the one of the flags that it takes (--shared-windows=$windows)"
  rm -rf ./*.jsonl fit direct
  job "${flags[@]}" --fit --cluster two.toml --metrics fit.jsonl --checkpoint-dir fit --shared-windows=$windows
  [ "$(grep -c '^fit ' "$out")" -eq 3 ] && [ "$(grep -c '; taken$' "$out")" -eq 1 ] || fail "not three ways"
  for way in 1 2 3; do once "^--fit: timing $way of 3"; done
  taken=$(grep -B 1 '^             planned .*; taken$' "$out" | sed -n 's/^fit  *[0-9]*  //p')
  # shellcheck disable=SC2086
  job "${flags[@]}" $taken --metrics direct.jsonl --checkpoint-dir direct --shared-windows=$windows
  same <(steps fit.jsonl) <(steps direct.jsonl)
  for file in fit/step-*/*.safetensors; do same "$file" "direct/${file#*/}"; done
done

echo "== one process alone"
timeout "$limit" "$program" "${flags[@]}" --comm mpi --fit --cluster epyc >"$out" 2>"$err" || fail "status $?"
contains "$out" '; taken$'

echo "== errors are said once"
refused '^tessera: --fit: the run has 3 ranks, and --cluster two.toml is of 2' mpirun --oversubscribe -np 3 "$program" "${flags[@]}" \
  --fit --cluster two.toml
once 'the run has 3 ranks'
refused "different arguments: rank 0 has 'seed = 1', rank 1 has 'seed = 2'" mpirun --oversubscribe \
  -np 1 "$program" "${flags[@]}" --fit --cluster two.toml --seed 1 : -np 1 "$program" "${flags[@]}" --fit --cluster two.toml --seed 2
sed 's/^memory = .*/memory = 800_000_000_000/' two.toml >ample.toml
large=(train --fit --cluster ample.toml --data text.txt --vocab 32000 --hidden 4096 --layers 2 --heads 32 --intermediate 11008
       --seq-len 64 --batch-size 4 --threads 1)
for windows in true false; do  # one rank alone has too little
  refused '^tessera: --fit: a plan says that these ways fit, and for none of them is there memory' mpirun --oversubscribe \
    -np 1 "$program" "${large[@]}" --shared-windows=$windows : \
    -np 1 bash -c 'ulimit -v 3000000; exec "$@"' - "$program" "${large[@]}" --shared-windows=$windows
  once 'for none of them'
done

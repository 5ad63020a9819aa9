#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The counted bytes are those of docs/communication.md: U + L - 1 gathers of bf16 and two small ones, U reductions of floats.
# usage: 05_own_communicator.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
weights=$(sed -n 's/ weights$//p' "$out")
[ "$(grep -c '^world of ' "$out")" -eq 4 ] || fail "not one line for each run"
contains "$out" '^world of 1: 0 gathers brought 0 bytes, 0 reductions 0$'
for ranks in 2 3 4; do
  bytes=$(sed -nE "s/^world of $ranks: 9 gathers brought [0-9]+ bytes, 5 reductions ([0-9]+)$/\1/p" "$out")
  share=$((1000 * bytes * ranks / (4 * weights * (ranks - 1))))  # of 4 (N - 1) / N bytes a weight; rank 0 has padding
  [ "$share" -ge 1000 ] && [ "$share" -le 1010 ] || fail "$bytes bytes are $share thousandths on $ranks ranks"
done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The counted bytes are those of docs/communication.md: U + L - 1 gathers of bf16 and two small ones, U reductions of floats.
# usage: 05_own_communicator.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
contains "$out" '^1 rank: 0 gathers bring 0.000 bytes a weight, 0 reductions 0.000$'
for expected in "2 2.000" "3 2.6[678]" "4 3.000"; do
  read -r ranks bytes <<<"$expected"  # 4 (N - 1) / N, and padding
  contains "$out" "^$ranks ranks: 9 gathers bring [0-9.]+ bytes a weight, 5 reductions $bytes"
done

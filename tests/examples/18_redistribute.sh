#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every element has one owner, sums are those of three ranks, and bytes are those of the layout.
# usage: 18_redistribute.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
[ "$(grep -c '^rank [012] has elements .*; the first sum is 6$' "$out")" -eq 6 ] || fail "not six pieces with the sum 1 + 2 + 3"
contains "$out" '^whole, its last element is 106; the gather moved 108 bytes here, the reduction 44$'

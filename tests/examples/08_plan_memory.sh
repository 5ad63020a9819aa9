#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A table of plans: weights at rest fall with the ranks, and with the strategy.
# usage: 08_plan_memory.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
[ "$(wc -l <"$out")" -eq 13 ] || fail "not 12 plans"
awk '$2 == 64 { peak[$1] = $NF } END { exit !(peak["zero1"] > peak["zero2"] && peak["zero2"] > peak["zero3"] && peak["zero3"] > 0) }' \
  "$out" || fail "the peaks of 64 ranks do not fall"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A strategy by rules and by schedule is one strategy, to the bit; a broken list is refused.
# usage: 04_own_strategy.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
contains "$out" '^micro-batch 0  gather          block 1'
[ "$(sed -n 's/^by .*: *loss //p' "$out" | sort -u | wc -l)" -eq 1 ] || fail "the losses differ"
contains "$out" '^a gather left out: .*task 3, forward block 0: the weights of block 0 are not gathered'

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two processes train one model.
# usage: 11_mpi.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
timeout "$limit" mpirun --oversubscribe -np 2 "$program" >"$out" 2>"$err" || fail "status $?"
contains "$out" '^rank 1 of 2 on '
awk '$1 == "step" { loss[count++] = $4 } END { exit !(count == 4 && loss[3] < 0.5 * loss[0]) }' "$out" || fail "the loss does not fall"

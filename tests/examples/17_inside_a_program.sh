#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A host's threads, then its MPI: the loss falls, a forfeit and a failure are survived by all.
# usage: 17_inside_a_program.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
contains "$out" 'step 4: rank 1 gave its pass up, all skip it'
contains "$out" 'a rank heard: .*rank 1'
[ "$(grep -c '^  step 10  loss 0\.' "$out")" -eq 2 ] || fail "not both went on to the end"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A block of one's own trains by shared sequences as by whole ones: 4 exchanges for each of its 2 blocks.
# usage: 19_own_sequence.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
contains "$out" '^two ranks share each sequence$'
contains "$out" '^  8 exchanges a step, [0-9]+ bytes of activations$'
sed -n '/^two/q; s/^  step .* loss //p' "$out" >whole
sed -n '/^two/,$ s/^  step .* loss //p' "$out" >shared
close shared whole 1e-4
awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 4 && last < 0.7 * first) }' shared || fail "the loss does not fall"

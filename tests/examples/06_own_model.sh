#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model without tokens learns through the trainer, and draws a forecast that covers much of what happened. Its log says what the model
# reads; what it cannot do is one sentence and a status.
# usage: 06_own_model.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera saved
[ "$(grep '|' "$out" | tr -cd '@' | wc -c)" -ge 8 ] || fail "the forecast is elsewhere"
sed -n 's/^step .*  loss \([0-9.]*\) .*/\1/p' "$out" | awk 'NR == 1 { first = $1 } { last = $1; n = NR }
  END { exit !(n >= 5 && last < 0.1 * first) }' || fail "the loss does not fall"
contains "$out" '^step 60/60 .* [0-9,]+ points/s  peak '
contains "$out" '^trained 60 steps, 30720 points in '
lacks "$out" 'tok'
touch taken
expect_error '^tessera: rank 0: --checkpoint-dir taken: cannot be written: .*Not a directory$' "$program" taken

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model without tokens learns through the trainer, and draws a forecast that covers much of what happened.
# usage: 06_own_model.sh PROGRAM
set -euo pipefail
"$1" saved | tee losses
rm -r saved
[ "$(grep '|' losses | tr -cd '@' | wc -c)" -ge 8 ] || { echo "FAILED: the forecast is elsewhere"; exit 1; }
sed -n 's/^step .*  loss \([0-9.]*\) .*/\1/p' losses | awk 'NR == 1 { first = $1 } { last = $1; n = NR }
  END { exit !(n >= 5 && last < 0.1 * first) }' || { echo "FAILED: the loss does not fall"; exit 1; }

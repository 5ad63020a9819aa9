#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model without tokens learns through the trainer.
# usage: forecaster.sh PROGRAM SOURCE
set -euo pipefail
"$1" | tee losses
sed -n 's/^step .*  loss \([0-9.]*\) .*/\1/p' losses | awk 'NR == 1 { first = $1 } { last = $1; n = NR }
  END { exit !(n >= 5 && last < 0.1 * first) }' || { echo "FAILED: the loss does not fall"; exit 1; }

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A loop of one's own is short, and its loss falls.
# usage: 03_own_loop.sh PROGRAM SOURCE
set -euo pipefail
program=$1 source=$2
lines=$(sed -n '/^int main/,$p' "$source" | wc -l)
[ "$lines" -le 25 ] || { echo "FAILED: $lines lines from main"; exit 1; }
"$program" | tee losses
awk '$1 == "step" { loss[count++] = $4 }
     END { for (i = 1; i < count; ++i) if (loss[i] >= loss[i - 1]) exit 1; exit count < 4 }' losses ||
  { echo "FAILED: the loss does not fall"; exit 1; }

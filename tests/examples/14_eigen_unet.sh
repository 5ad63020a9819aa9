#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A code base of one's own: little besides the network, plans that fall with the ranks, and a loss that falls.
# usage: 14_eigen_unet.sh PROGRAM SOURCE
source=$(realpath "$2")
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
example=$(dirname "$source")
lines=$(cat "$source" "$example/units.hpp" | wc -l)
[ "$lines" -le 150 ] || fail "$lines lines besides the network"
! grep -n tessera "$example/unet.hpp" || fail "the network includes something of Tessera"
tessera
awk '$1 == "rank" { held[count++] = $6 } END { exit !(count == 3 && held[0] > held[1] && held[1] > held[2]) }' "$out" ||
  fail "the plans do not fall"
awk '$1 == "step" { loss[count++] = $4 } END { exit !(count == 4 && loss[3] < 0.4 * loss[0]) }' "$out" ||
  fail "the loss does not fall"

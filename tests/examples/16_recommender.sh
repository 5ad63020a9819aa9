#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The loss falls, and a step moves a small part of the table.
# usage: 16_recommender.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
awk '{ sub(/;/, "") } $1 == "step" { loss[$2] = $4; if ($6 * 20 > 640000) exit 1 } END { exit !(loss[0] > 0.5 && loss[200] < 0.01) }' "$out" ||
  fail "the loss does not fall, or rows are not all that is moved"
contains "$out" '; the table has 640000$'

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/train.sh, with fewer steps, as it is and on lesser processors: it names what it trains in, the held-out loss falls, and the model writes.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

script=$TESSERA_TEST_DATA/../examples/train.sh
trains() {  # NAME [VARIABLE=VALUE...]
  local run=$PWD/$1
  shift
  env "$@" TESSERA="$program" RUN="$run" STEPS=20 bash "$script" /usr/include/boost/mp11 >"$out" 2>&1 || { cat "$out"; fail "train.sh $*"; }
  [ "$(head -n 1 "$out" | cut -d' ' -f1-2)" = "trains in" ] || fail "the first line does not say what it trains in"
  contains "$out" "What the model writes after '#ifndef BOOST_'"
  awk -v loss="$(summary "$run/metrics.jsonl" validation_loss)" 'BEGIN { exit !(loss > 0 && loss < 4.2) }' ||
    fail "the held-out loss is $(summary "$run/metrics.jsonl" validation_loss); it begins at 5.5"
  [ -f "$run/checkpoints/$(cat "$run/checkpoints/latest")/config.json" ] || fail "no checkpoint"
}
trains here
trains baseline TESSERA_ISA=baseline
contains "$out" "^trains in fp32: this processor .baseline. is faster in float"
contains "$out" "fp32.*, 2 ranks x 1 thread.*, baseline"
if grep -qw avx2 /proc/cpuinfo; then
  trains avx2 TESSERA_ISA=avx2
  contains "$out" "^trains in fp32: this processor .avx2. is faster in float"
fi
echo "train.sh: as described"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian to a trained model: installs missing packages, builds the preset `first`, trains in bf16 on two ranks
# with FSDP2 and tiling, then generates text. The ranks are threads of one process.
#
# usage: examples/train.sh [PATH...]     files or folders of text; default: the C++ headers of Boost, which the build needs
# Environment variables: STEPS, the number of steps (default 1000); TESSERA, a program to use instead of building one;
# RUN, the folder for all files, without those of an earlier run (default runs/<time>).
set -euo pipefail
cd "$(dirname "$0")/.."

tessera=${TESSERA:-}
if [ -z "$tessera" ]; then
  cmake/dependencies.sh
  cmake --preset first >/dev/null
  cmake --build --preset first
  tessera=build/first/bin/tessera
fi

data=("$@")
[ ${#data[@]} -gt 0 ] || data=(/usr/include/boost)
run=${RUN:-runs/$(date +%Y%m%d-%H%M%S)}
mkdir -p "$run"
steps=${STEPS:-1000}

"$tessera" train --model small --data "${data[@]}" --comm threads:2 --sharding fsdp2 \
  --precision bf16 --tiling tokens:1024 --seq-len 256 --batch-size 16 --steps "$steps" --lr 6e-3 \
  --warmup $((steps / 20)) --log-every $((steps < 50 ? steps : 50)) \
  --checkpoint-dir "$run/checkpoints" --metrics "$run/metrics.jsonl"

checkpoint=$run/checkpoints/$(cat "$run/checkpoints/latest")
echo
echo "What the model writes after '#ifndef BOOST_':"
echo
"$tessera" generate --model "$checkpoint" --prompt '#ifndef BOOST_' --tokens 300 --temperature 0.8
echo
tail -n 1 "$run/metrics.jsonl"
echo "model    $checkpoint"
echo "metrics  $run/metrics.jsonl"

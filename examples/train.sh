#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian to a trained model: installs missing packages, builds, trains on two MPI ranks with FSDP2 and
# tiling, in the processor's faster precision, then generates text.
#
# usage: examples/train.sh [PATH...]     files or folders of text; default: the C++ headers of Boost, which the build needs
# Environment variables: STEPS, the number of steps (default 1000); TESSERA, a program to use instead of building one;
# RUN, the folder for all files, without those of an earlier run (default runs/<time>).
set -euo pipefail
cd "$(dirname "$0")/.."

tessera=${TESSERA:-}
if [ -z "$tessera" ]; then
  cmake/dependencies.sh
  cmake --preset release >/dev/null
  cmake --build --preset release --target tessera_program
  tessera=build/release/bin/tessera
fi

data=("$@")
[ ${#data[@]} -gt 0 ] || data=(/usr/include/boost)
run=${RUN:-runs/$(date +%Y%m%d-%H%M%S)}
mkdir -p "$run"
steps=${STEPS:-1000}

# Without bf16 instructions, bf16 is converted to float to multiply it, so that fp32 is faster.
set=$("$tessera" --version | sed -n 's/^ *instruction set  *//p')
precision=fp32 faster=float
[ "$set" != avx512_bf16 ] || precision=bf16 faster=bf16
echo "trains in $precision: this processor ($set) is faster in $faster"

# Containers often run as root on few cores; Open MPI must be told that both are intended.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
[ -t 1 ] || export TERM=dumb  # mpirun makes every output look like a terminal

mpirun -np 2 "$tessera" train --model small --data "${data[@]}" --comm mpi --sharding fsdp2 \
  --precision $precision --tiling tokens:1024 --seq-len 256 --batch-size 16 --steps "$steps" --lr 6e-3 \
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

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian to a trained model: installs what is missing, builds, trains on two MPI ranks with FSDP2, bf16 and
# tiles, then lets the model write.
#
# usage: examples/train.sh [PATH...]     files or folders of text; default: the C++ headers of Boost, which the build needs
# The files go to runs/<time>; --metrics, --checkpoint-dir and so on are in build/release/bin/tessera train --help.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake/dependencies.sh
cmake --preset release >/dev/null
cmake --build --preset release --target tessera_program

data=("$@")
[ ${#data[@]} -gt 0 ] || data=(/usr/include/boost)
run=runs/$(date +%Y%m%d-%H%M%S)
mkdir -p "$run"

# Containers often run as root on few cores; Open MPI asks for a yes to both.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
[ -t 1 ] || export TERM=dumb  # mpirun makes every output look like a terminal

mpirun -np 2 build/release/bin/tessera train --model small --data "${data[@]}" --comm mpi --sharding fsdp2 \
  --precision bf16 --tiling tokens:1024 --seq-len 256 --batch-size 16 --steps 1000 --lr 6e-3 --warmup 50 --log-every 50 \
  --checkpoint-dir "$run/checkpoints" --metrics "$run/metrics.jsonl"

checkpoint=$run/checkpoints/$(cat "$run/checkpoints/latest")
echo
echo "What the model writes after '#ifndef BOOST_':"
echo
build/release/bin/tessera generate --model "$checkpoint" --prompt '#ifndef BOOST_' --tokens 300 --temperature 0.8
echo
tail -n 1 "$run/metrics.jsonl"
echo "model    $checkpoint"
echo "metrics  $run/metrics.jsonl"

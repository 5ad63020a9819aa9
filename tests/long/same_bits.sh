#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps cut into pieces have the same bits on any number of ranks: losses, norms, learning rates, and the digests of every
# stream, gradient and weight; of runs that are killed, too, and go on elsewhere.
#
# usage: same_bits.sh PROGRAM    TESSERA_SWEEP=sample: a few of them; TESSERA_KILLS=N: runs that are killed (60)
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
text 3000 text.txt
flags=(--data text.txt --model tiny --layers 2 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 48
       --seq-len 16 --threads 1 --validation-fraction 0.02 --log-every 100)
whole=1
[ "${TESSERA_SWEEP:-whole}" = whole ] || whole=
RANDOM=${TESSERA_SEED:-1}

# record NAME FLAG...: trains; what must be the same is in NAME.
record() {
  local name=$1
  shift
  rm -f run.jsonl digests.jsonl
  run_with "$@" --metrics run.jsonl --digests digests.jsonl
  { steps run.jsonl; summary run.jsonl validation_loss; grep -v '"event"' digests.jsonl; } >"$name"
}
# run_with FLAG...: with `launch` before the program.
run_with() {
  local status=0
  timeout "$limit" "${launch[@]}" "$program" train "${flags[@]}" "$@" >"$out" 2>"$err" || status=$?
  [ "$status" -eq 0 ] || fail "status $status: ${launch[*]} train $*"
}
# launched COMM RANKS: sets `launch` and `comm` for them.
launched() {
  launch=() comm=(--comm threads:"$2")
  [ "$1" != threads ] || return 0
  launch=(mpirun --oversubscribe -np "$2") comm=(--comm mpi)
  [ "$1" != messages ] || comm+=(--shared-windows=false)
}
has_mpi() { "$program" train --comm mpi --dry-run "${flags[@]}" >/dev/null 2>&1 && command -v mpirun >/dev/null; }

comms=(threads)
! has_mpi || comms+=(mpi messages)
runs=0

# grid PIECES BATCH STEPS "RANKS..." FLAG...: all ranks and strategies, over all backends in turn.
grid() {
  local pieces=$1 batch=$2 count=$3 ranks
  read -ra ranks <<<"$4"
  shift 4
  launched threads "$pieces"
  record expected "$@" --steps "$count" --batch-size "$batch" --sharding fsdp2:pieces="$pieces" "${comm[@]}"
  local p strategy turn=0 backends=("${comms[@]}")
  [[ "$*" != *wire=* && "$*" != *offload* ]] || backends=(threads)  # the default build has no such stacks over MPI
  for p in "${ranks[@]}"; do
    for strategy in "${strategies[@]}"; do
      launched "${backends[$((turn++ % ${#backends[@]}))]}" "$p"
      record found "$@" --steps "$count" --batch-size "$batch" --sharding "$strategy:pieces=$pieces" "${comm[@]}"
      cmp expected found || fail "$strategy in $pieces pieces on $p ranks (${comm[*]}) is another run: $*"
      runs=$((runs + 1))
      [ ! -t 1 ] || printf '\r%d runs' $runs
    done
  done
}

strategies=(fsdp2 zero2 zero3)
if [ -n "$whole" ]; then
  for precision in fp32 bf16 bf16:wire=bf16; do
    for clip in 0 1; do
      for cut in "--tiling off" "--tiling tokens:5 --recompute"; do
        read -ra how <<<"--precision $precision --clip $clip $cut"
        grid 8 8 20 "1 2 3 4 6 8" "${how[@]}"
        grid 12 24 20 "1 2 4 5" "${how[@]}"
      done
    done
  done
  strategies=(fsdp2 zero3:persist=100)
  for named in "--precision fp32 --optimizer sgd" "--precision fp32 --optimizer muon --layout owned" \
    "--precision fp32 --lora-rank 3 --lora-dropout 0.2" "--precision fp32 --document-separator 46" \
    "--precision bf16 --offload optimizer"; do
    read -ra how <<<"$named"
    grid 8 16 20 "1 3 4 8" "${how[@]}"
  done
else
  strategies=(zero3)
  grid 4 8 3 "1 3" --precision bf16:wire=bf16
fi

# A run that is killed at a random moment on P ranks goes on on Q, and again on R, as if nothing had been.
kills=${TESSERA_KILLS:-60}
[ -n "$whole" ] || kills=${TESSERA_KILLS:-1}
how=(--precision fp32 --batch-size 8 --steps 12 --lr-schedule cosine)
launched threads 2
run_with "${how[@]}" --sharding fsdp2:pieces=8 "${comm[@]}" --metrics never.jsonl
steps never.jsonl >expected
for ((kill = 0; kill < kills; ++kill)); do
  rm -rf saved
  rm -f killed.jsonl
  for part in 1 2 3; do
    strategies=(fsdp2 zero2 zero3)
    backend=threads  # a launcher that is killed leaves its ranks to themselves: kills.sh has such
    [ $part -lt 3 ] || backend=${comms[$((RANDOM % ${#comms[@]}))]}
    launched $backend $((1 + RANDOM % 8))
    command=("${launch[@]}" "$program" train "${flags[@]}" "${how[@]}" "${comm[@]}"
             --sharding "${strategies[$((RANDOM % 3))]}:pieces=8" --checkpoint-dir saved --checkpoint-every 1 --keep 2
             --resume auto --metrics killed.jsonl)
    status=0
    if [ $part -lt 3 ]; then
      timeout -s KILL "$((RANDOM % 2)).$(printf '%03d' $((RANDOM % 1000)))" "${command[@]}" >"$out" 2>"$err" || status=$?
    else
      timeout "$limit" "${command[@]}" >"$out" 2>"$err" || fail "status $?: ${command[*]}"
    fi
  done
  steps killed.jsonl | sort -n -u >found  # steps that were made again have the same bits
  cmp expected found || fail "run $kill, which was killed twice, is another one"
done
echo "same bits: $runs runs of other ranks, strategies and backends; $kills that were killed twice and went on elsewhere"

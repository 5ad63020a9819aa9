#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that saves at every step is killed at a random moment, again and again, over threads and over MPI: the newest
# complete checkpoint loads, the next 10 losses are those of the uninterrupted run to the bit, no leftovers pile up.
#
# usage: kills.sh PROGRAM    TESSERA_SWEEP=sample: a few kills; TESSERA_KILLS=N: of each kind (100)
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(--data text.txt --model tiny --layers 1 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 48
       --seq-len 16 --precision fp32 --batch-size 4 --threads 1 --lr-schedule constant --log-every 100)
kills=${TESSERA_KILLS:-100}
[ "$TESSERA_SWEEP" = whole ] || kills=3
RANDOM=${TESSERA_SEED:-1}

processes=()
end_all() { for pid in "${processes[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done; }
trap 'end_all; rm -rf "$folder"' EXIT

command_of() {  # COMM
  if [ "$1" = mpi ]; then
    echo mpirun --oversubscribe -np 2 "$program" train "${flags[@]}" --comm mpi
  else
    echo "$program" train "${flags[@]}" --comm threads:2
  fi
}

# The processes of the launcher's job, itself last.
find_processes() {
  processes=()
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" 2>/dev/null || true) == "$program" ]] || continue
    grep -qs "^PPid:.$launcher\$" "$process/status" || continue
    processes+=("${process#/proc/}")
  done
  processes+=("$launcher")
}

kill_once() {  # COMM
  local command
  read -ra command <<<"$(command_of "$1")"
  touch begin
  "${command[@]}" --steps 1000000 --checkpoint-dir killed --checkpoint-every 1 --keep 3 --resume auto \
    >"$out" 2>"$err" &
  launcher=$!
  processes=("$launcher")
  for _ in $(seq 1500); do  # until it has saved itself
    [ -e killed/latest ] && [ killed/latest -nt begin ] && break
    kill -0 "$launcher" 2>/dev/null || fail "ended by itself"
    sleep 0.02
  done
  find_processes
  sleep "0.$(printf '%03d' $((RANDOM % 400)))"
  end_all
  wait "$launcher" 2>/dev/null || true
  for pid in "${processes[@]}"; do  # children of a killed launcher end a little later
    while grep -qs '^State:.[^ZX]' "/proc/$pid/status"; do sleep 0.01; done
  done
  processes=()
}

check() {  # COMM
  local left
  left=$(find killed -mindepth 1 -maxdepth 1 -not -name 'step-????????' | wc -l)
  # latest, the lock, a folder being written, one being removed, a fresh latest
  [ "$left" -le 5 ] || fail "leftovers pile up: $(ls -a killed)"
  # The three newest, that which was resumed from, and one that was committed just before the kill.
  [ "$(find killed -maxdepth 1 -name 'step-????????' | wc -l)" -le 5 ] || fail "too many are kept: $(ls killed)"
  local newest
  newest=$(cd killed && printf '%s\n' step-???????? | tail -n 1)
  local step=$((10#${newest#step-}))
  local command
  read -ra command <<<"$(command_of "$1")"
  rm -f again.jsonl
  timeout "$limit" "${command[@]}" --steps $((step + 10)) --resume killed --metrics again.jsonl >"$out" 2>"$err" ||
    fail "$newest does not resume"
  contains "$out" "resumed from killed/$newest:"
  same <(steps again.jsonl) <(steps "whole-$1.jsonl" $((step + 1)) | sed -n 1,10p)
  [ $step -lt $((length - 200)) ] || rm -rf killed
}

for comm in threads mpi; do
  read -ra command <<<"$(command_of $comm)"
  length=3000
  [ "$TESSERA_SWEEP" = whole ] || length=400
  timeout 600 "${command[@]}" --steps $length --metrics whole-$comm.jsonl >"$out" 2>"$err" || fail "the whole run"
  rm -rf killed
  for ((i = 0; i < kills; ++i)); do
    kill_once $comm
    check $comm
  done
  echo "$comm: $kills kills; the newest checkpoint resumed to the bit after each; left at the end: $(ls -a killed 2>/dev/null | tr '\n' ' ')"
  [ "$TESSERA_SWEEP" = whole ] || break
done

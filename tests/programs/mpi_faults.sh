#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank that is killed or stopped, and Ctrl-C: all end within 30 s and say where they waited. Whole checkpoints stay.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
ranks=()    # processes of the job that runs
launcher=
deadlines=(--deadline 5 --disk-deadline 5)  # whether the ranks compute or save when one of them is lost
end_all() {  # whatever happened, no process stays
  for pid in $launcher "${ranks[@]}"; do
    kill -CONT "$pid" 2>/dev/null || true
    kill -KILL "$pid" 2>/dev/null || true
  done
}
trap 'end_all; rm -rf "$folder"' EXIT

base=("$program" train --data text.txt --model tiny --seq-len 16 --precision fp32)
mpirun=(mpirun --oversubscribe)

# start NP FLAG...: a long run; returns when it has saved a checkpoint. Its ranks' processes are in `ranks`, by rank.
start() {
  local np=$1
  shift
  rm -rf checkpoints
  "${mpirun[@]}" -np "$np" "${base[@]}" --steps 100000000 --batch-size 12 --log-every 1000000 --checkpoint-every 10 \
    --checkpoint-dir checkpoints "$@" >"$out" 2>"$err" &
  launcher=$!
  for _ in $(seq 300); do
    [ ! -e checkpoints/latest ] || break
    kill -0 $launcher 2>/dev/null || fail "ended by itself"
    sleep 0.1
  done
  ranks=()
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" || true) == "$program" ]] || continue
    grep -q "^PPid:.$launcher\$" "$process/status" || continue
    ranks[$(tr '\0' '\n' <"$process/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')]=${process#/proc/}
  done
  [ ${#ranks[@]} -eq "$np" ] || fail "${#ranks[@]} processes instead of $np"
}

# ended: the job ends within 30 s, no process of it stays, a whole checkpoint does.
ended() {
  local begin=$SECONDS
  while kill -0 $launcher 2>/dev/null && [ $((SECONDS - begin)) -le 30 ]; do sleep 0.1; done
  ! kill -0 $launcher 2>/dev/null || fail "still runs after 30 s"
  status=0
  wait $launcher || status=$?
  launcher=
  [ "$status" -ne 0 ] || fail "status 0"
  for pid in "${ranks[@]}"; do
    gone "$pid" || fail "process $pid stays: $(cat "/proc/$pid/status")"
  done
  ranks=()
  local newest
  newest=$(cat checkpoints/latest)
  timeout "$limit" "$program" eval --model "checkpoints/$newest" --data text.txt --seq-len 16 >"$folder/loss" ||
    fail "$newest does not open"
}

echo "== SIGKILL of a rank"
start 3 "${deadlines[@]}"
kill -KILL "${ranks[1]}"
ended
contains "$err" 'rank [02]: ended by its launcher .*waited in [a-z_]+'

echo "== SIGSTOP of a rank: the others say in which collective they waited, and for whom"
start 3 "${deadlines[@]}"
kill -STOP "${ranks[2]}"
ended
contains "$err" '(^tessera: |is its disk slow, or gone\? )rank [01], [a-z_]+ of [a-z -]+.*waited 5\.0[0-9]* s for .*rank 2 \(has [a-z, ]*; host '
[ "$status" -eq 3 ] || fail "status $status"

echo "== Ctrl-C"
start 2
kill -INT $launcher
ended

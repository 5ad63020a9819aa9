#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank of three is killed (SIGKILL), stopped (SIGSTOP) or slowed (stopped, and continued before the deadline) in every
# phase of a run over MPI: the others end in time and say who was missing, where, in which collective; a slowed rank
# changes nothing. No process stays.
#
# usage: ranks.sh PROGRAM    TESSERA_SWEEP=sample: some of them; TESSERA_REPEATS=N: of each case (5)
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
repeats=${TESSERA_REPEATS:-5}
phases=(open first later validation save end)
[ "${TESSERA_SWEEP:-whole}" = whole ] || { repeats=1; phases=(end); }
deadline=10 disk_deadline=20  # the second: of ranks that wait for one which saves or opens; a slow disk is no lost rank
text 20000 text.txt
ranks=() launcher= cases=0
end_all() {
  for pid in $launcher "${ranks[@]}"; do
    kill -CONT "$pid" 2>/dev/null || true
    kill -KILL "$pid" 2>/dev/null || true
  done
}
trap 'end_all; rm -rf "$folder"' EXIT

train=("$program" train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1 --batch-size 12
       --validation-fraction 0.5 --validation-windows 0 --validation-every 4 --checkpoint-every 2 --checkpoint-dir saved
       --metrics metrics.jsonl --deadline $deadline --disk-deadline $disk_deadline)

# find_ranks: their processes, by rank; whether all three are there.
find_ranks() {
  ranks=()
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" 2>/dev/null || true) == "$program" ]] || continue
    [[ $(readlink "$process/cwd" 2>/dev/null || true) == "$PWD" ]] || continue
    ranks[$(tr '\0' '\n' <"$process/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')]=${process#/proc/}
  done 2>/dev/null
  [ ${#ranks[@]} -eq 3 ]
}
has() { [ -e metrics.jsonl ] && [ "$(grep -c "$1" metrics.jsonl)" -ge "$2" ]; }
reached() {
  case $1 in
    open) true ;;
    first) has start 1 ;;
    later) has '"loss"' 3 ;;
    validation) has '"loss"' 4 ;;
    save) [ -e saved ] ;;
    end) has summary 1 || has '"loss"' 11 ;;
  esac
}

# alone RANK: whether the run is over and the others are gone, so that its launcher alone waits for this one.
alone() {
  local rank
  for rank in "${!ranks[@]}"; do [ "$rank" -eq "$1" ] || ! kill -0 "${ranks[$rank]}" 2>/dev/null || return 1; done
  has summary 1
}

# one PHASE SIGNAL RANK
one() {
  local what="SIG$2 of rank $3, $1" status=0 begin
  rm -rf saved metrics.jsonl
  mpirun --oversubscribe -np 3 "${train[@]}" --steps 12 >"$out" 2>"$err" &
  launcher=$!
  for _ in $(seq 3000); do
    if find_ranks && reached "$1"; then break; fi
    kill -0 $launcher 2>/dev/null || break
    sleep 0.01
  done
  local victim=${ranks[$3]:-}
  if [ -n "$victim" ]; then
    if [ "$2" = SLOW ]; then
      kill -STOP "$victim" 2>/dev/null || true
      sleep 1.5
      kill -CONT "$victim" 2>/dev/null || true
    else
      kill -s "$2" "$victim" 2>/dev/null || true
    fi
  fi
  begin=$SECONDS
  while kill -0 $launcher 2>/dev/null && [ $((SECONDS - begin)) -le 90 ]; do
    # Stopped behind its last call, it keeps nobody waiting who could tell.
    [ "$2" != STOP ] || [ -z "$victim" ] || ! alone "$3" || kill -CONT "$victim" 2>/dev/null || true
    sleep 0.1
  done
  ! kill -0 $launcher 2>/dev/null || fail "$what: still runs"
  wait $launcher || status=$?
  launcher=
  for pid in "${ranks[@]}"; do
    gone "$pid" || fail "$what: process $pid stays"
  done
  ranks=()
  cases=$((cases + 1))
  if [ "$2" = SLOW ]; then [ "$status" -eq 0 ] || fail "$what: status $status"; fi
  if [ "$status" -ne 0 ]; then
    grep -Eq "rank $3 (with PID [0-9]+ )?(on node|\(has)|waited [0-9.]+ s for .*rank $3|ended by its launcher|MPI_[A-Za-z_]+, waited" "$err" ||
      fail "$what: status $status without a reason"
  else
    has summary 1 || fail "$what: status 0 before the end"
  fi
  if [ -e saved/latest ]; then
    timeout "$limit" "$program" eval --model "saved/$(cat saved/latest)" --data text.txt --seq-len 16 --precision fp32 \
      --windows 4 >/dev/null || fail "$what: $(cat saved/latest) does not open"
  fi
}

for phase in "${phases[@]}"; do
  for signal in KILL STOP SLOW; do
    for repeat in $(seq $repeats); do one "$phase" "$signal" $((repeat % 3)); done
  done
done
echo "ranks: $cases runs, each ended in time with a reason"

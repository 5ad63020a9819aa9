#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Signals over MPI: what one rank alone is told, all ranks do after the same step.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
train=("$program" train --data text.txt --model tiny --seq-len 16 --precision fp32 --threads 1 --lr-schedule constant
       --log-every 1000000 --batch-size 4 --checkpoint-dir saved)

# start: two ranks; their processes are in `ranks`.
start() {
  rm -rf saved
  start_run mpirun --oversubscribe -np 2 "${train[@]}" --steps 100000
  ranks=()
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" 2>/dev/null || true) == "$program" ]] || continue
    [[ $(readlink "$process/cwd" 2>/dev/null || true) == "$PWD" ]] || continue
    ranks+=("${process#/proc/}")
  done
  [ ${#ranks[@]} -eq 2 ] || fail "${#ranks[@]} ranks"
}

for rank in 0 1; do
  echo "== SIGUSR1 and SIGTERM to process $rank alone"
  start
  kill -s USR1 "${ranks[$rank]}"
  for _ in $(seq 300); do [ ! -e saved/latest ] || break; sleep 0.1; done
  [ -e saved/latest ] || fail "nothing was saved"
  first=$(cat saved/latest)
  kill -s TERM "${ranks[$rank]}"
  run_ends 143
  contains "$out" '^SIGTERM: ended after step [0-9]+: saved/step-'
  [ "$(cat saved/latest)" != "$first" ] || fail "did not go on after SIGUSR1"
  for process in "${ranks[@]}"; do gone "$process" || fail "process $process stays"; done
done

echo "== SIGTERM to the launcher, which hands it on"
start
kill -s TERM $run
run_ends 1  # Open MPI's own status then
[ "$(grep -c 'saves after this step; once more ends without saving; the launcher may end it sooner$' "$err")" -eq 1 ] ||
  fail "not answered once"
contains "$out" '^SIGTERM: ended after step [0-9]+: saved/step-'
last=$(cat saved/latest)
last=$((10#${last#step-}))

echo "== and the run goes on to the bit"
few=(timeout "$limit" mpirun --oversubscribe -np 2 "${train[@]}" --steps $((last + 3)))
cp -r saved before
"${few[@]}" --resume before --metrics rest.jsonl >"$out"
rm -rf saved
"${few[@]}" --metrics whole.jsonl >/dev/null
same <(steps whole.jsonl $((last + 1))) <(steps rest.jsonl)

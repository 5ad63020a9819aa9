#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every system call on checkpoints fails once: the k-th open, read, write, ... of a run that resumes and saves, for each k,
# over threads and on each rank of MPI. Whatever happens, the run ends with a sentence or as if nothing had been; the older
# checkpoints are untouched; the next run resumes, saves, and writes what a run without faults writes.
#
# usage: faults.sh PROGRAM    TESSERA_FAULTS: the library of tests/support/faults.cpp. TESSERA_SWEEP=sample: some of them
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"
limit=60

text 3000 text.txt
flags=(--data text.txt --model tiny --layers 1 --hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 48
       --seq-len 16 --precision fp32 --batch-size 4 --threads 1 --lr-schedule constant --log-every 100)
after=(--steps 3 --resume runs --checkpoint-dir runs)
mpirun=(mpirun --oversubscribe -np 2 -x LD_PRELOAD)
cases=0 refusals=0

# errors of each call that a file system may give
declare -A errors=([open]="EIO EACCES EINTR" [read]="EIO EINTR short" [write]="EIO ENOSPC EINTR short zero"
  [reserve]="ENOSPC EINTR" [sync]="EIO EINTR" [close]="EIO EINTR" [rename]="EIO" [exchange]="EINVAL EIO"
  [mkdir]="EIO ENOSPC" [lock]="ENOLCK EINTR")

launch() {  # COMM FLAG...: status in $status
  local comm=$1
  shift
  status=0
  if [ "$comm" = mpi ]; then
    timeout "$limit" "${mpirun[@]}" "$program" train "${flags[@]}" --comm mpi "$@" >"$out" 2>"$err" </dev/null || status=$?
  else
    timeout "$limit" "$program" train "${flags[@]}" --comm threads:2 "$@" >"$out" 2>"$err" </dev/null || status=$?
  fi
}

fresh() { rm -rf runs && cp -r good runs; }

try() {  # COMM RANK CALL K WHAT
  local case="$*"
  fresh
  LD_PRELOAD=$TESSERA_FAULTS TESSERA_FAULT_UNDER=runs TESSERA_FAULT_RANK=$2 TESSERA_FAULT=$3:$4:$5 \
    launch "$1" "${after[@]}"
  cases=$((cases + 1))
  if [ $status -ne 0 ]; then
    refusals=$((refusals + 1))
    [ $status -ne 124 ] && [ $status -lt 128 ] || fail "$case: status $status"
    contains "$err" '^(tessera|rank [01]): .*runs'
    lacks "$err" 'Success'
  fi
  diff -r good/step-00000001 runs/step-00000001 >"$out" && diff -r good/step-00000002 runs/step-00000002 >"$out" ||
    fail "$case: an older checkpoint changed"
  LD_PRELOAD='' launch threads "${after[@]}"
  [ $status -eq 0 ] || fail "$case: the next run has status $status"
  diff -r whole/step-00000003 runs/step-00000003 >"$out" || fail "$case: the next run wrote something else"
  [ "$(ls -a runs)" = "$(ls -a whole)" ] || fail "$case: leftovers: $(ls -a runs)"
}

sweep() {  # COMM RANK
  fresh
  rm -f counts
  LD_PRELOAD=$TESSERA_FAULTS TESSERA_FAULT_UNDER=runs TESSERA_FAULT_RANK=$2 TESSERA_FAULT_COUNT=$PWD/counts \
    launch "$1" "${after[@]}"
  [ $status -eq 0 ] || fail "status $status without any fault"
  local call count what k every
  while read -r call count; do
    what=${errors[$call]}
    [ "$TESSERA_SWEEP" = whole ] || what=${what%% *}  # the first
    for what in $what; do
      every=1 k=1
      [ "$TESSERA_SWEEP" = whole ] || { every=$count && k=$((count / 2 + 1)); }
      for (( ; k <= count; k += every)); do try "$1" "$2" "$call" "$k" "$what"; done
    done
  done <counts
  echo "$1${2:+, rank $2}: $cases cases, $refusals of them refused with a sentence; calls: $(tr '\n' ' ' <counts)"
}

LD_PRELOAD='' launch threads --steps 2 --checkpoint-dir good --checkpoint-every 1
cp -r good whole
LD_PRELOAD='' launch threads --steps 3 --resume whole --checkpoint-dir whole

if [ "$TESSERA_SWEEP" = whole ]; then
  sweep threads ""
  for rank in 0 1; do sweep mpi $rank; done
else
  sweep threads ""
  try mpi 1 write 20 EIO
  [ $refusals -gt 0 ] || fail "no fault was seen"
fi

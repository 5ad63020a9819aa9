#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks started with different arguments, errors of all ranks and of one: every process ends with status 2 and a reason.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
base=("$program" train --data text.txt --model tiny --seq-len 16 --precision fp32)
mpirun=(mpirun --oversubscribe)

# both PATTERN FLAGS FLAGS: one rank with each; status 2, one of the lines matches.
both() {
  # shellcheck disable=SC2086
  refused "$1" "${mpirun[@]}" -np 1 "${base[@]}" --steps 3 $2 : -np 1 "${base[@]}" --steps 3 $3
}

echo "== different arguments"
both "different arguments: rank 0 has 'seed = 1', rank 1 has 'seed = 2'" "--seed 1" "--seed 2"
both "rank 0 has 'sharding = \"fsdp2\"', rank 1 has 'sharding = \"zero3\"'" "--comm mpi" "--sharding zero3"
both "comm threads:1 in each of mpirun's 2 processes" "--comm mpi" "--comm threads:1"
both "unknown flag --seeed; did you mean --seed" "--seed 1" "--seeed 1"
evaluate=("$program" eval --model "$golden/llama-gqa" --data text.txt)
refused "different arguments: rank 0 has 'seq-len = 16', rank 1 has 'seq-len = 17'" \
  "${mpirun[@]}" -np 1 "${evaluate[@]}" --seq-len 16 : -np 1 "${evaluate[@]}" --seq-len 17

echo "== a launcher that started several processes, of which MPI or threads see one"
alone() { expect_error "$1" env "${@:2}"; }
slurm=(SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4)
for rank in 0 1; do
  alone 'srun started 4 processes \(PMI_SIZE, SLURM_STEP_NUM_TASKS, SLURM_NTASKS, PMI_RANK, SLURM_PROCID\), and MPI sees one: .*; start them with mpirun, or with srun --mpi=pmix' \
    "${slurm[@]}" SLURM_PROCID=$rank PMI_RANK=$rank PMI_SIZE=4 "${base[@]}" --steps 1 --comm mpi
  alone 'comm threads:1 in each of srun.s 4 processes \(SLURM_STEP_NUM_TASKS, SLURM_NTASKS, SLURM_PROCID\) would be as many runs, each alone' \
    "${slurm[@]}" SLURM_PROCID=$rank "${base[@]}" --steps 1
  alone 'comm threads:2 in each of torchrun.s 4 processes \(WORLD_SIZE\) would be as many runs, each alone' \
    WORLD_SIZE=4 RANK=$rank LOCAL_RANK=$rank "${base[@]}" --steps 1 --comm threads:2
done
for plan in --dry-run --print-schedule; do  # any process may plan
  WORLD_SIZE=4 RANK=1 LOCAL_RANK=1 tessera "${base[@]:1}" --steps 1 $plan
done
SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_JOB_NUM_NODES=1 tessera "${base[@]:1}" --steps 1  # a batch script

echo "== an error that all ranks meet is said once; one that a rank meets alone ends the others"
for bad in "--nonsense:unknown flag --nonsense; see --help" "--keep 1:--keep is for checkpoints, and none are written"; do
  # shellcheck disable=SC2086
  refused "^tessera: ${bad#*:}" "${mpirun[@]}" -np 2 "${base[@]}" ${bad%%:*}  # before the ranks know each other
  [ "$(grep -c '^tessera: ' "$err")" -eq 1 ] || fail "said more than once"
done
refused 'data: nowhere: no such file' "${mpirun[@]}" -np 3 "${base[@]}" --batch-size 6 --data nowhere
[ "$(grep -c nowhere "$err")" -eq 1 ] || fail "said more than once"
contains "$err" '^tessera: data: nowhere: no such file'
# A byte outside the vocabulary, in a window that one rank alone draws: no rank computes on, and it is said once.
{ head -c 85 text.txt; printf '\310'; tail -c +87 text.txt; } >one-byte.txt
refused 'data: .* holds byte 200, which is not below the model.s vocabulary of 128' "${mpirun[@]}" -np 2 \
  "$program" train --data one-byte.txt --model tiny --vocab 128 --seq-len 16 --precision fp32 --batch-size 2 \
  --validation-fraction 0 --steps 500 --log-every 1000
[ "$(grep -c 'holds byte' "$err")" -eq 1 ] || fail "said more than once"
refused '^tessera: rank 0: --metrics /dev/full: cannot be written' "${mpirun[@]}" -np 2 "${base[@]}" --metrics /dev/full
refused 'rank 0: .*checkpoint-dir text.txt/c: cannot be written' \
  "${mpirun[@]}" -np 2 "${base[@]}" --checkpoint-dir text.txt/c
ends_with 3 'step [2-5]: .*stopped before any weight was touched' \
  "${mpirun[@]}" -np 2 "${base[@]}" --steps 5 --lr 1000 --weight-decay 1000 --clip 0 --checkpoint-dir checkpoints
[ "$(grep -c 'stopped before' "$err")" -eq 1 ] || fail "said more than once"

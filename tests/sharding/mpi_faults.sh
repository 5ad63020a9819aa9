#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpi_faults.sh MPIEXEC TESTS_MPI: in each phase of a step one rank of three is killed or stopped, with shared windows
# and without. The others end within their deadline of 1 s and say where; no process and no shared memory stays.
set -euo pipefail
mpiexec=$1
program=$2

folder=$(mktemp -d "$PWD/faults.XXXXXX")
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "FAILED: $*"
  cat output
  exit 1
}

# processes: of the job in this folder, that still run.
processes() {
  local found=""
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/cwd" 2>/dev/null || true) == "$PWD" ]] || continue
    [[ $(readlink "$process/exe" 2>/dev/null || true) == "$program" ]] || continue
    ! grep -qs '^State:.[^ZX]' "$process/status" || found+=" ${process#/proc/}"
  done
  echo "$found"
}

# What is there besides the files of tests, of Open MPI, whose other jobs come and go, and of LLVM's OpenMP.
shared_memory() {
  find /dev/shm -maxdepth 1 ! -name 'tessera-test-*' ! -name 'vader_segment.*' ! -name '__KMP_REGISTERED_LIB_*' \
    2>/dev/null | LC_ALL=C sort
}

# ends PHASE SIGNAL WITHOUT PATTERN: a job whose rank 1 gets the signal; a line matches. WITHOUT: ranks without windows.
ends() {
  local status=0
  mkdir "$folder/$1.$2.${3:-all}"
  cd "$folder/$1.$2.${3:-all}"
  export OMPI_MCA_orte_tmpdir_base=$PWD  # two jobs that share it may fail to make it
  TESSERA_FAULT="$1 $2" TESSERA_TEST_NO_WINDOWS=$3 timeout -k 5 20 "$mpiexec" --oversubscribe -np 3 "$program" \
    --gtest_also_run_disabled_tests --gtest_catch_exceptions=0 --gtest_filter='MpiFaults.*' >output 2>&1 || status=$?
  [ "$status" -ne 0 ] || fail "status 0: $*"
  [ "$status" -ne 124 ] || fail "did not end: $*"
  grep -Eq -- "$4" output || fail "no /$4/: $*"
  [ -z "$(processes)" ] || fail "processes stay: $*: $(processes)"
}

before=$(shared_memory)
for phase in gather forward backward reduce optimizer checkpoint; do
  for without in "" "0 1 2"; do
    echo "== $phase${without:+, without windows}"
    ends $phase 9 "$without" 'signal 9|ended by its launcher' &
    killed=$!
    # Which of two waits ends first is the machine's: for what rank 1 sends, or for its taking what was sent.
    ends $phase 19 "$without" '^tessera: rank [02], .*waited 1\.[0-9]+ s for .*rank 1 \(has' &
    wait $!
    wait $killed
  done
done
[ "$before" = "$(shared_memory)" ] || fail "shared memory stays: $(diff <(echo "$before") <(shared_memory))"

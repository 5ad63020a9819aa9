#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kit's suites over every policy that ships, under every instruction set of this processor: all strategies in all layouts, precisions,
# tilings, communicators, optimizers, devices, modules, operations, and the models of the examples.
#
# usage: kit.sh PROGRAM    The test programs are in ../tests of the program's folder. TESSERA_SWEEP=sample: layouts and strategies alone, under
#                          one instruction set
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
sweep=${TESSERA_SWEEP:-whole}
tests=$(realpath "$(dirname "$program")/../tests")
declare -A library=([baseline]=SSE41 [avx2]=AVX2 [avx512]=AVX512_CORE [avx512_bf16]=AVX512_CORE_BF16)
sets=$(instruction_sets)
areas=(testing precision comm device examples)
filter='*/*Suite/*:*/CommunicatorFaults/*'
if [ "$sweep" != whole ]; then
  sets=$(tail -n 2 <<<"$sets" | head -n 1)  # the one below what the tests of every day run by
  areas=(testing)
  filter='OverAllRanks/*TrainsAsReplicatedDoes'
fi

# passes NAME COMMAND...: all tests of it pass, and there are some.
passes() {
  local name=$1 status=0
  shift
  TESSERA_ISA=$isa DNNL_MAX_CPU_ISA=${library[$isa]} timeout 3600 "$@" --gtest_brief=1 --gtest_color=no --gtest_filter="$filter" >"$out" 2>"$err" || status=$?
  [ "$status" -eq 0 ] || fail "status $status: $name under $isa"
  local count
  count=$(sed -nE 's/^\[==========\] ([0-9]+) tests? .*/\1/p' "$out" | tail -n 1)
  [ "${count:-0}" -gt 0 ] || [ "$sweep" != whole ] || fail "no test of $name ran"
  echo "$isa: $name: ${count:-0} tests"
}

for isa in $sets; do
  for area in "${areas[@]}"; do
    passes "$area" "$tests/tests_$area"
  done
  if [ "$sweep" = whole ] && [ -x "$tests/tests_mpi" ] && command -v mpirun >/dev/null; then
    for ranks in 2 3 4; do
      passes "mpi on $ranks ranks" mpirun -np $ranks "$tests/tests_mpi"
    done
  fi
done

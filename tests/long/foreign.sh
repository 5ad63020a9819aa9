#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The code base on Eigen against a loop without the library: over threads and on the asynchronous device on 1 to 4 ranks,
# over MPI on 1 to 4 processes with 1 to 3 micro-batches.
#
# usage: foreign.sh PROGRAM    The test programs are in ../tests of the program's folder; ctest runs samples, foreign and foreign_mpi_*.
set -euo pipefail
tests=$(realpath "$(dirname "$1")/../tests")
export TESSERA_SWEEP=whole
timeout 3600 "$tests/tests_foreign" --gtest_brief=1
[ -x "$tests/tests_foreign_mpi" ] || exit 0  # a build without MPI
for ranks in 1 2 3 4; do
  for without_windows in "" 1; do
    TESSERA_TEST_NO_WINDOWS=$without_windows timeout 3600 mpirun -np $ranks "$tests/tests_foreign_mpi" --gtest_brief=1
  done
done

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tessera train --comm nccl` on the doubles of CUDA and NCCL: every strategy on 1, 2, 4 and 8 processes, in both
# precisions, queued and by graphs; and a fault at every call.
#
# usage: cuda_host.sh PROGRAM    the program's path, beside which the tests were built; its samples are cuda_host_program_*
set -euo pipefail
here=$(cd "$(dirname "$0")/../cuda_host/program" && pwd)
program=$(dirname "$1")/../tests/cuda_host/tests_cuda_host_program
pytest=$(command -v pytest-3 || command -v pytest)
for part in trains ends; do "$pytest" -c "$here/../../pytest.ini" -s "$here/${part}_test.py" --program "$program"; done

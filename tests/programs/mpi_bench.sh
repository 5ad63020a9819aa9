#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `bench comm` under mpirun: each op with shared windows and without, beside MPI's own. Nothing here asserts a time.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

lines() {  # FLAG...: of the bench, as "way op library?" words
  timeout "$limit" mpirun --oversubscribe -np 3 "$program" bench comm --bytes 100000 --repeats 2 "$@" >"$out" 2>"$err" ||
    fail "bench comm $*"
  python3 -c "
import json, sys
for line in map(json.loads, open(sys.argv[1])):
    assert line['backend'] == 'mpi' and line['ranks'] == 3 and line['bytes'] == 100000, line
    assert line['ms'] > 0 and line['ratio'] > 0 and line.get('ratio_to_library', 1) > 0, line
    print(line.get('way', '-'), line['op'], 'library_ms' in line)" "$out"
}
ops() { printf '%s all_gather True\n%s reduce_scatter True\n%s all_reduce False\n%s all_to_all False\n' "$1" "$1" "$1" "$1"; }

same <(lines) <(ops windows; ops messages)
same <(lines --shared-windows=false) <(ops -)

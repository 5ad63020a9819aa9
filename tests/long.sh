#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep that is too long for every day; ctest runs a sample of each, but of aarch64, gpu_build and libtorch; it replays the inputs that fuzz keeps.
#
# usage: tests/long.sh NAME [BUILD]     NAME: tests/long/NAME_test.py or NAME.sh; BUILD: default build/release. It must have been built, but for
#                                       aarch64, fuzz and gpu_build, which build their own. numbers needs the target tessera_bench as well; libtorch tessera::sharding alone (build/sharding).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "${2:-$here/../build/release}")
script=$here/long/${1:-}_test.py
[ -f "$script" ] || script=$here/long/${1:-}.sh
if [ ! -f "$script" ]; then
  names=$(cd "$here/long" && printf '%s\n' *.sh *_test.py | sed -E 's/(\.sh|_test\.py)$//' | sort | tr '\n' ' ')
  echo "usage: tests/long.sh NAME [BUILD]; NAME is one of: $names" >&2
  exit 2
fi
run=(bash "$script")
if [[ $script = *.py ]]; then
  pytest=$(command -v pytest-3 || command -v pytest) || { echo "long.sh: no pytest; install Debian's python3-pytest" >&2; exit 1; }
  run=("$pytest" -c "$here/pytest.ini" -s "$script" --program)
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
export PYTHONDONTWRITEBYTECODE=1 TESSERA_FAULTS=${TESSERA_FAULTS:-$build/tests/libtests_faults.so} TESSERA_SWEEP=${TESSERA_SWEEP:-whole}
mkdir -p "$build/tests/long/$1"
cd "$build/tests/long/$1"
exec "${run[@]}" "$build/bin/tessera"

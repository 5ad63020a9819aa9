#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep that is too long for every day; ctest runs a sample of each, but of aarch64, gpu_build and libtorch; it replays the inputs that fuzz keeps.
#
# usage: tests/long.sh NAME [BUILD]     NAME: a script of tests/long; BUILD: default build/release. It must have been built, but for
#                                       aarch64, fuzz and gpu_build, which build their own. libtorch needs tessera::sharding alone (build/sharding).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "${2:-$here/../build/release}")
if [ $# -lt 1 ] || [ ! -f "$here/long/$1.sh" ]; then
  echo "usage: tests/long.sh NAME [BUILD]; NAME is one of: $(cd "$here/long" && echo *.sh | sed 's/\.sh//g')" >&2
  exit 2
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
export TESSERA_FAULTS=${TESSERA_FAULTS:-$build/tests/libtests_faults.so} TESSERA_SWEEP=${TESSERA_SWEEP:-whole}
mkdir -p "$build/tests/long/$1"
cd "$build/tests/long/$1"
exec bash "$here/long/$1.sh" "$build/bin/tessera"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/15_libtorch as a project of its own, of an installed tessera::sharding and libtorch: compiles without warnings, and trains as
# libtorch alone does. A minute or two.
#
# usage: libtorch.sh PROGRAM     Needs libtorch-dev, and of PROGRAM's build, by g++, only tessera::sharding. CMAKE_PREFIX_PATH names another
#                                libtorch.
set -euo pipefail
source=$(realpath "$(dirname "$0")/../..") build=$(dirname "$(dirname "$1")")
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
cmake --install "$build" --prefix prefix --component dev >installed
cmake -G Ninja -S "$source/examples/15_libtorch" -B project -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" \
  -Dtessera_ROOT="$PWD/prefix" >configured 2>&1 || { grep -o '15_libtorch: .*' configured >&2 || cat configured >&2; exit 1; }
cmake --build project
./project/15_libtorch

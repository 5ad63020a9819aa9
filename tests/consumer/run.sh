#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds an example as a user would, and runs it. From an install tree: the smallest, a program of policies that the
# library has never seen, and the conformance kit over the examples' policies. Where there is MPI, both ways: the example
# that is a project of its own.
# usage: run.sh install|subdirectory SOURCE BUILD COMPILER [COMPONENT]
set -euo pipefail
way=$1 source=$2 build=$3 compiler=$4 component=${5:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
programs="consumer=$source/tests/consumer/main.cpp"
[ "$way" = install ] &&
  programs="consumer=$source/examples/01_trainer/main.cpp;policies=$source/tests/consumer/policies.cpp;kit=$source/examples/09_test_a_policy/main.cpp"

configure() {
  cmake -G Ninja -S "$source/tests/consumer" -B "$work/build" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" -DPROGRAMS="$programs" "$@"
}

if [ "$way" = install ]; then
  diff <(awk '/^```cpp$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/testing.md") \
    <(sed -n '/^#include/,$p' "$source/examples/09_test_a_policy/main.cpp")  # what the page shows is what is compiled here
  cmake --install "$build" --prefix "$work/prefix" >"$work/installed"
  missing=(unheard-of)
  [ -n "$(find "$work/prefix" -name 'libtessera_nccl*')" ] || missing+=(nccl)
  for part in "${missing[@]}"; do
    if configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS="$part" >"$work/refused" 2>&1; then
      echo "find_package(tessera COMPONENTS $part) succeeded"
      exit 1
    fi
    grep -q "component '$part'" "$work/refused" || { cat "$work/refused"; exit 1; }
  done
  programs="consumer=$source/tests/consumer/main.cpp" configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS="$component" \
    -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON  # who does not ask for the kit needs no GoogleTest
  rm -r "$work/build"
  configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS="${component:+$component;}testing"
else
  configure -DTESSERA_SOURCE="$source"
fi
if [ "$way" = install ] || [ "$component" != mpi ]; then
  cmake --build "$work/build"
  "$work/build/consumer"
fi
if [ "$way" = install ]; then
  "$work/build/kit" --gtest_brief=1 --gtest_filter='*Tiling*:*Precision*'  # the rest runs as example_09_test_a_policy
  bash "$source/tests/consumer/policies.sh" "$work/build/policies"
fi
if [ "$component" = mpi ]; then
  given=-DCMAKE_PREFIX_PATH=$work/prefix
  [ "$way" = install ] || given=-DTESSERA_SOURCE=$source
  cmake -G Ninja -S "$source/examples/11_mpi" -B "$work/mpi" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" -DCMAKE_CXX_FLAGS_RELEASE= "$given"  # not optimised: one short run
  cmake --build "$work/mpi"
  mpirun --allow-run-as-root --oversubscribe -np 2 "$work/mpi/11_mpi"
fi

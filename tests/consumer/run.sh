#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds programs as a user would, and runs them. From an install tree: the projects that docs/get_started.md and docs/testing.md show,
# which are the smallest example and the conformance kit over the examples' policies, and a program of policies that the library has never
# seen. Where there is MPI, both ways: the example that is a project of its own.
# usage: run.sh install|subdirectory SOURCE BUILD COMPILER [COMPONENT]
set -euo pipefail
way=$1 source=$2 build=$3 compiler=$4 component=${5:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
programs="consumer=$source/tests/consumer/main.cpp"
[ "$way" = install ] && programs="policies=$source/tests/consumer/policies.cpp"

cmake_project() { cmake -G Ninja -S "$1" -B "$2" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" "${@:3}"; }
configure() { cmake_project "$source/tests/consumer" "$work/build" -DPROGRAMS="$programs" "$@"; }

if [ "$way" = install ]; then
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
  # Another oneDNN than the libraries call.
  mkdir -p "$work/other/lib" "$work/other/include/oneapi/dnnl"
  touch "$work/other/lib/libdnnl.so"
  printf '#define DNNL_VERSION_%s\n' 'MAJOR 9' 'MINOR 1' 'PATCH 0' >"$work/other/include/oneapi/dnnl/dnnl_version.h"
  echo '#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_OMP' >"$work/other/include/oneapi/dnnl/dnnl_config.h"
  rm -r "$work/build"
  if configure -DCMAKE_PREFIX_PATH="$work/prefix" -DoneDNN_ROOT="$work/other" >"$work/refused" 2>&1; then
    echo "find_package(tessera) took another oneDNN"
    exit 1
  fi
  tr -s '\n ' ' ' <"$work/refused" | grep "built with oneDNN [0-9.]*, and oneDNN 9.1.0 was found" >/dev/null || { cat "$work/refused"; exit 1; }
  rm -r "$work/build"
  programs="consumer=$source/tests/consumer/main.cpp" configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS="$component" \
    -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON  # who does not ask for the kit needs no GoogleTest
  rm -r "$work/build"
  configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS="${component:+$component;}testing"
else
  configure -DTESSERA_SOURCE="$source"
fi
if [ "$way" = install ]; then
  cp -r "$source/examples" "$work/examples"
  mkdir "$work/mine"
  cp "$source/tests/consumer/get_started/CMakeLists.txt" "$source/examples/01_trainer/main.cpp" "$work/mine"
  cp "$source/tests/consumer/kit/CMakeLists.txt" "$work/examples/09_test_a_policy"
  kit=$work/examples/09_test_a_policy
  for project in "$work/mine" "$kit"; do cmake_project "$project" "$project/build" -DCMAKE_PREFIX_PATH="$work/prefix"; done
  cmake --build "$kit/build" &  # one source each: two at a time
  kit_built=$!
  cmake --build "$work/mine/build"
  cmake --build "$work/build"
  wait $kit_built
  "$work/mine/build/mine"
  [ "$(uname -m)" != x86_64 ] || bash "$source/tests/consumer/instruction_sets.sh" "$work/mine/build/mine"
  "$kit/build/kit" --gtest_brief=1 --gtest_filter='*Tiling*:*Precision*'  # the rest runs as example_09_test_a_policy
  bash "$source/tests/consumer/policies.sh" "$work/build/policies"
elif [ "$component" != mpi ]; then
  cmake --build "$work/build"
  "$work/build/consumer"
fi
if [ "$component" = mpi ]; then
  given=-DCMAKE_PREFIX_PATH=$work/prefix
  [ "$way" = install ] || given=-DTESSERA_SOURCE=$source
  cmake_project "$source/examples/11_mpi" "$work/mpi" -DCMAKE_CXX_FLAGS_RELEASE= "$given"  # not optimised: one short run
  cmake --build "$work/mpi"
  mpirun --allow-run-as-root --oversubscribe -np 2 "$work/mpi/11_mpi"
fi

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds programs as a user would, and runs them. From an install tree: the projects that docs/get_started.md and docs/testing.md show,
# which are the smallest example and the conformance kit over the examples' policies, and a program of policies that the library has never
# seen; one of tessera::sharding alone, without any other library, and others of what stands on that; where there is MPI, the example that
# is a project of its own. As a sub-project of a parent with strict warnings and headers of our names: a program of tessera::sharding with
# checkpoints; of all below tessera::trainer and tessera::mpi, that sources find their headers, and that a program's main compiles.
# usage: run.sh install|subdirectory SOURCE BUILD COMPILER [COMPONENT]
set -euo pipefail
way=$1 source=$2 build=$3 compiler=$4 component=${5:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
cmake_project() { cmake -G Ninja -S "$1" -B "$2" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" "${@:3}"; }
configure() { cmake_project "$source/tests/consumer" "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" "$@"; }
# without PACKAGE... -- COMMAND...: with these packages hidden from CMake
without() {
  local hidden=()
  while [ "$1" != -- ]; do hidden+=("-DCMAKE_DISABLE_FIND_PACKAGE_$1=ON"); shift; done
  shift
  "$@" "${hidden[@]}"
}
others=(ISAL nlohmann_json PCRE2 utf8proc CLI11 tomlplusplus Boost MPI NCCL cuDNN CUDAToolkit GTest Python3)
but() { printf '%s\n' "${others[@]}" oneDNN | grep -Ev "^($1)$"; }  # their names, and oneDNN, without some

refused() {  # SENTENCE WHY COMMAND...: it fails, and says so
  if "${@:3}" >"$work/refused" 2>&1; then fail "$2"; fi
  tr -s '\n ' ' ' <"$work/refused" | grep -E -- "$1" >/dev/null || { cat "$work/refused"; exit 1; }
}

built() {  # FOLDER ARCHIVE OTHERS: a project's `all` builds this archive, and nothing of the others
  ninja -C "$1" -t inputs all >"$work/inputs"
  grep -F "$2" "$work/inputs" >/dev/null || fail "$2 is not built"
  ! grep -E "$3" "$work/inputs" || fail "more is built than is linked"
}

finds_headers() {  # FOLDER: every source of a project's `all` finds what it includes, and its program's main compiles
  local command
  ninja -C "$1" -t commands all | grep -E ' -c ' | sed -E 's/ -MD -MT [^ ]+ -MF [^ ]+//; s/ -o [^ ]+ -c / /' >"$work/commands"
  [ "$(grep -c '/src/' "$work/commands")" -gt 30 ] || fail "sources are missing"
  sed -E '/ -DTESSERA_CONSUMER /!s/$/ -E -o \/dev\/null/; / -DTESSERA_CONSUMER /s/$/ -fsyntax-only/' "$work/commands" |
    (cd "$1" && xargs -d '\n' -n 1 -P 2 sh -c)
}

# The library asks for its own libraries only; it goes into a shared library.
try_install() {
  # Where a library is not built, nothing is copied.
  sed 's/libtessera_sharding[.]a/libtessera_unbuilt.a/g' "$build/cmake_install.cmake" >"$work/cmake_install.cmake"
  refused "Nothing was installed: [^ ]*libtessera_unbuilt.a is not there; build all of it first" "an installation without a library" \
    cmake -DCMAKE_INSTALL_PREFIX="$work/half" -P "$work/cmake_install.cmake"
  [ ! -e "$work/half" ] || fail "an installation broke off after it had copied files"

  cmake --install "$build" --prefix "$work/prefix" >"$work/installed"
  local part missing=(unheard-of)
  [ -n "$(find "$work/prefix" -name 'libtessera_nccl*')" ] || missing+=(nccl)
  for part in "${missing[@]}"; do
    refused "component '$part'" "find_package(tessera COMPONENTS $part) succeeded" configure -DCOMPONENTS="$part"
  done
  # Another oneDNN than the libraries call.
  mkdir -p "$work/other/lib" "$work/other/include/oneapi/dnnl"
  touch "$work/other/lib/libdnnl.so"
  printf '#define DNNL_VERSION_%s\n' 'MAJOR 9' 'MINOR 1' 'PATCH 0' >"$work/other/include/oneapi/dnnl/dnnl_version.h"
  echo '#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_OMP' >"$work/other/include/oneapi/dnnl/dnnl_config.h"
  rm -rf "$work/build"
  refused "built with oneDNN [0-9.]*, and oneDNN 9.1.0 was found" "find_package(tessera) took another oneDNN" configure -DoneDNN_ROOT="$work/other"
  rm -rf "$work/build"
  without PCRE2 -- refused "component 'trainer' needs PCRE2" "a trainer without PCRE2" configure -DCOMPONENTS=trainer
  rm -r "$work/build"
  without "${others[@]}" -- configure -DPROGRAMS="consumer=$source/tests/consumer/main.cpp" -DOPTIONAL="mpi;trainer"
  cmake --build "$work/build"
  "$work/build/consumer"
  grep -E '^ +FLAGS = ' "$work/build/build.ninja" >"$work/flags"
  grep -E -- '-fopenmp|-pthread|-std=c\+\+|-O' "$work/flags" && fail "flags of ours on a consumer's code"
  local archive
  for archive in "$work"/prefix/lib/libtessera{_sharding,,_checkpoint,_model_files,_trainer}.a; do
    "$compiler" -shared -o "$work/all.so" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive || fail "$archive is not position-independent"
  done
  rm -r "$work/build"

  # tessera::sharding without any other library, two of it in one process. It calls nothing that is not there.
  without "${others[@]}" oneDNN -- refused "oneDNN was not found" "a library without oneDNN" configure
  rm -rf "$work/build"
  without "${others[@]}" oneDNN -- cmake_project "$source/tests/consumer/sharding" "$work/sharding" -DCMAKE_PREFIX_PATH="$work/prefix" -DOPTIONAL=trainer
  cmake --build "$work/sharding"
  "$work/sharding/sharded"
  ! grep -E -- '^ +FLAGS = .*(-fopenmp|-pthread|-std=c\+\+|-O)' "$work/sharding/build.ninja" || fail "flags of ours on a consumer's code"
  "$compiler" -shared -o "$work/whole.so" -Wl,--whole-archive "$work/prefix/lib/libtessera_sharding.a" -Wl,--no-whole-archive -Wl,--no-undefined \
    "$("$compiler" -print-file-name=libgomp.so)" -pthread || fail "tessera::sharding lacks something"
  # What stands on that: checkpoints by name, which link ISA-L, and the kit's suite of foreign loops.
  without $(but 'ISAL|GTest') -- cmake_project "$source/tests/consumer/on_sharding" "$work/on_sharding" -DCMAKE_PREFIX_PATH="$work/prefix"
  cmake --build "$work/on_sharding"
  "$work/on_sharding/checkpointed" "$work/steps"
  "$work/on_sharding/kit" --gtest_brief=1
  if command -v pkg-config >/dev/null; then
    local flags
    PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig pkg-config --libs tessera-checkpoint >"$work/flags"
    ! grep dnnl "$work/flags" || fail "tessera-checkpoint links oneDNN"
    PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig pkg-config --print-requires tessera-foreign_testing | tr '\n' ' ' | grep "^tessera-sharding gtest $"
    read -ra flags <<<"$(PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig pkg-config --cflags --libs tessera-sharding)"
    "$compiler" -std=c++20 -Wall -Wextra -Werror "$source/tests/consumer/main.cpp" "${flags[@]}" -o "$work/by_pkg_config"
    "$work/by_pkg_config"
  fi

  configure -DPROGRAMS="policies=$source/tests/consumer/policies.cpp" -DCOMPONENTS="trainer;${component:+$component;}testing"
  cp -r "$source/examples" "$work/examples"
  mkdir "$work/mine"
  cp "$source/tests/consumer/get_started/CMakeLists.txt" "$source/examples/01_trainer/main.cpp" "$work/mine"
  cp "$source/tests/consumer/kit/CMakeLists.txt" "$work/examples/09_test_a_policy"
  local kit=$work/examples/09_test_a_policy project
  for project in "$work/mine" "$kit"; do cmake_project "$project" "$project/build" -DCMAKE_PREFIX_PATH="$work/prefix"; done
  cmake --build "$kit/build" &  # one source each: two at a time
  local kit_built=$!
  cmake --build "$work/mine/build"
  cmake --build "$work/build"
  wait $kit_built
  "$work/mine/build/mine"
  [ "$(uname -m)" != x86_64 ] || bash "$source/tests/consumer/instruction_sets.sh" "$work/mine/build/mine"
  "$kit/build/kit" --gtest_brief=1 --gtest_filter='*Tiling*:*Precision*'  # the rest runs as example_09_test_a_policy
  bash "$source/tests/consumer/policies.sh" "$work/build/policies"
}

try_subdirectory() {
  local links=tessera::trainer main=$source/examples/01_trainer/main.cpp
  [ "$component" != mpi ] || { links+=";tessera::mpi" main=$source/examples/11_mpi/main.cpp; }
  cmake_project "$source/tests/consumer/parent" "$work/parent" -DCMAKE_CXX_FLAGS_RELEASE= -DTESSERA_SOURCE="$source" -DMAIN="$main" -DLINKS="$links"
  # Only what is linked is built: neither CUDA nor the kit nor the program.
  built "$work/parent" libtessera_trainer.a '\.cu\.o|tessera_testing|src/program'
  refused "comm/threads.hpp: No such file" "the old spelling compiled" cmake --build "$work/parent" --target old_spelling
  # To compile all of it again would show no more than this and the program with checkpoints below: 223 s instead of 84 s.
  finds_headers "$work/parent"
  # Without a library of the trainer, of which nothing is linked.
  without PCRE2 -- cmake_project "$source/tests/consumer/parent" "$work/less" -DTESSERA_SOURCE="$source" -DMAIN="$source/tests/consumer/main.cpp" \
    -DLINKS=tessera::tessera | grep "there is no tessera::trainer"
  # The library alone: as what is linked, and as what is there.
  cmake_project "$source/tests/consumer/parent" "$work/linked" -DTESSERA_SOURCE="$source" -DMAIN="$source/tests/consumer/main.cpp" -DLINKS=tessera::tessera
  built "$work/linked" libtessera.a 'src/(fsdp/checkpoint|fsdp/model_files|fsdp/testing|trainer|program)/|tessera_mpi'
  without "${others[@]}" -- cmake_project "$source/tests/consumer/parent" "$work/alone" -DTESSERA_SOURCE="$source" -DTESSERA_COMPONENTS=library \
    -DMAIN="$source/tests/consumer/main.cpp" -DLINKS=tessera::tessera
  # tessera::sharding alone, the same way.
  cmake_project "$source/tests/consumer/parent" "$work/sharding" -DTESSERA_SOURCE="$source" -DMAIN="$source/tests/consumer/main.cpp" -DLINKS=tessera::sharding
  built "$work/sharding" libtessera_sharding.a 'libtessera.a|src/fsdp/(nn|models|device/compute)/|tessera_mpi'
  without "${others[@]}" oneDNN -- cmake_project "$source/tests/consumer/parent" "$work/without" -DTESSERA_SOURCE="$source" -DMAIN="$source/tests/consumer/main.cpp" \
    -DLINKS=tessera::sharding | grep "there is no tessera::tessera"
  # And with checkpoints, which the preset brings where their libraries are.
  without $(but 'ISAL|nlohmann_json') -- cmake_project "$source/tests/consumer/parent" "$work/kept" -DTESSERA_SOURCE="$source" \
    -DMAIN="$source/tests/consumer/on_sharding/checkpointed.cpp" -DLINKS="tessera::sharding;tessera::checkpoint"
  built "$work/kept" libtessera_checkpoint.a 'libtessera.a|src/fsdp/(nn|models|model_files|device/compute)/|tessera_mpi'
  cmake --build "$work/kept"
  "$work/kept/program" "$work/steps"
  without $(but 'ISAL|nlohmann_json') -- cmake_project "$source" "$work/preset" --preset sharding >"$work/table"
  ninja -C "$work/preset" -t targets all | grep -F libtessera_checkpoint.a: >/dev/null || fail "the preset has no checkpoints"
  without "${others[@]}" oneDNN -- cmake_project "$source" "$work/preset_alone" --preset sharding | grep "there is no tessera::checkpoint"
  without "${others[@]}" oneDNN -- cmake_project "$source/tests/consumer/parent" "$work/least" -DTESSERA_SOURCE="$source" -DTESSERA_COMPONENTS=sharding \
    -DMAIN="$source/tests/consumer/main.cpp" -DLINKS=tessera::sharding
}

"try_$way"
if [ "$component" = mpi ] && [ "$way" = install ]; then
  cmake_project "$source/examples/11_mpi" "$work/mpi" -DCMAKE_CXX_FLAGS_RELEASE= -DCMAKE_PREFIX_PATH="$work/prefix"  # not optimised: one short run
  cmake --build "$work/mpi"
  mpirun --allow-run-as-root --oversubscribe -np 2 "$work/mpi/11_mpi"
fi

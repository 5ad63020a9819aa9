#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the smallest example as a user would, and runs it; from an install tree also a program of policies that the
# library has never seen, and the conformance kit over these policies.
# usage: run.sh install|subdirectory SOURCE BUILD COMPILER [COMPONENT]
set -euo pipefail
way=$1 source=$2 build=$3 compiler=$4 component=${5:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
main=$source/tests/consumer/main.cpp
[ -f "$source/examples/minimal/main.cpp" ] && main=$source/examples/minimal/main.cpp
programs="consumer=$main"
[ "$way" = install ] &&
  programs="$programs;policies=$source/tests/consumer/policies.cpp;kit=$source/tests/consumer/kit.cpp"

configure() {
  cmake -G Ninja -S "$source/tests/consumer" -B "$work/build" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" -DPROGRAMS="$programs" "$@"
}

if [ "$way" = install ]; then
  diff <(awk '/^```cpp$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/testing.md") \
    <(tail -n +3 "$source/tests/consumer/kit.cpp")  # what the page shows is what is compiled here
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
  programs="consumer=$main" configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS="$component" \
    -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON  # who does not ask for the kit needs no GoogleTest
  rm -r "$work/build"
  configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS="${component:+$component;}testing"
else
  configure -DTESSERA_SOURCE="$source"
fi
cmake --build "$work/build"
"$work/build/consumer"
if [ "$way" = install ]; then
  "$work/build/kit" --gtest_brief=1
  bash "$source/tests/consumer/policies.sh" "$work/build/policies"
fi

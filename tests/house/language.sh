#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that is compiled as C++17, or without exceptions, is told so by the first error of the header that it includes.
# usage: language.sh SOURCE COMPILER [FLAG...]
set -euo pipefail
cd "$1/include"
shift
checked=$(grep -rl core/language.hpp . --include=*.hpp)
for header in comm/{self,threads,mpi,nccl}.hpp fsdp/{sharded,fsdp}.hpp trainer/train_main.hpp; do
  grep -Fx "./$header" <<<"$checked" >/dev/null || { echo "FAILED: $header does not check the language"; exit 1; }
done
for header in $checked; do
  for flag in -std=c++17 -fno-exceptions; do
    [ $flag = -std=c++17 ] && sentence='fsdp: Tessera needs C++20' || sentence='fsdp: Tessera reports errors by exceptions'
    first=$(echo "#include <tessera/${header#./}>" | "$@" $flag -Wfatal-errors -fsyntax-only -x c++ - 2>&1 | grep -m 1 'error:' || true)
    [[ $first == *"$sentence"* ]] || { echo "FAILED: $flag with $header: $first"; exit 1; }
  done
done

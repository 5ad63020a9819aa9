#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Conan recipe as docs/packages.md has it: refused for an older C++, then created and tested without a remote. Builds the whole
# library, so it is a test only where conan is installed.
# usage: conan.sh SOURCE CONAN
set -euo pipefail
source=$1 conan=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CONAN_HOME=$work/home
"$conan" profile detect >/dev/null 2>&1

create() {
  "$conan" create "$source/packages/conan" --no-remote -c tools.build:jobs=2 -c tools.cmake.cmake_layout:test_folder="$work/test" "$@" >"$work/log" 2>&1
}
if create -s compiler.cppstd=17; then
  echo "C++17 was accepted"
  exit 1
fi
grep -q "lower than the required C++ standard (20)" "$work/log" || { cat "$work/log"; exit 1; }

create -s compiler.cppstd=20 || { tail -n 60 "$work/log"; exit 1; }
grep -E "^  peak +[0-9]" "$work/log"  # of the plan that test_package printed
"$conan" list "tessera/*" --format=json | grep '"tessera/[0-9]*\.[0-9]*\.[0-9]*"' >/dev/null

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What other systems are told, with doubles of their tools: what to install, or why CMake refuses them. $1: cmake.
set -euo pipefail
cmake=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; cat "$work/said"; exit 1; }
says() { grep -qE -- "$1" "$work/said" || fail "not said: $1"; }

# on STATUS TOOL...: dependencies.sh where nothing else is in PATH; TOOL=TEXT prints a text, TOOL= nothing.
on() {
  local wanted=$1 status=0 tool
  shift
  rm -rf "$work/bin" && mkdir "$work/bin"
  ln -s "$(command -v bash)" "$(command -v env)" "$(command -v uname)" "$(command -v grep)" "$work/bin"
  for tool in "$@"; do
    printf '#!/bin/sh\n%s\n' "${tool#*=}" >"$work/bin/${tool%%=*}"
    chmod +x "$work/bin/${tool%%=*}"
  done
  PATH=$work/bin bash "$root/cmake/dependencies.sh" >"$work/said" 2>&1 || status=$?
  [ $status -eq "$wanted" ] || fail "status $status with $*"
}

on 1 dnf=
says '^dependencies.sh: this is neither Debian nor Ubuntu; install as root: dnf install gcc-c\+\+ .*onednn-devel .*gtest-devel eigen3-devel$'
says '^then: module load mpi/openmpi-.* && cmake --preset release'
on 1 pacman=
says 'install as root: pacman -S gcc .*onednn .*libutf8proc .*gtest eigen$'
says '^then: cmake --preset release'
on 1
says "your system's packages of what Debian calls: g\+\+ .*libdnnl-dev"

debian=(apt-get='echo "apt-get $*"' dpkg='echo amd64' dpkg-query=)
on 1 "${debian[@]}" id='echo 1000'
says '^dependencies.sh: needs root to run: apt-get install g\+\+ .*libdnnl-dev'
[ "$(wc -l <"$work/said")" -eq 1 ] || fail "more than a line"
on 0 "${debian[@]}" id='echo 1000' sudo='echo "as root: $*"'
says '^Installing from Debian: g\+\+ .*libdnnl-dev'
says '^as root: apt-get update'
on 0 "${debian[@]}" id='echo 0' dpkg-query='echo installed amd64'
[ ! -s "$work/said" ] || fail "all is there, and it speaks"

# refused PATTERN NAME=VALUE...: cmake/system.cmake, in one sentence.
refused() {
  local pattern=$1
  shift
  ! "$cmake" "${@/#/-D}" -P "$root/cmake/system.cmake" >"$work/said" 2>&1 || fail "taken: $*"
  tr -s ' \n' ' ' <"$work/said" >"$work/line" && mv "$work/line" "$work/said"
  says "$pattern"
}
for system in Darwin Windows; do
  refused "Tessera runs on Linux, and this is $system: affinity masks and control groups, .* would be missing" \
    CMAKE_SYSTEM_NAME=$system CMAKE_SIZEOF_VOID_P=8
done
refused "needs 64-bit addresses" CMAKE_SYSTEM_NAME=Linux CMAKE_SIZEOF_VOID_P=4
"$cmake" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SIZEOF_VOID_P=8 -P "$root/cmake/system.cmake"
echo "systems: as described"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs from Debian what the build needs and the machine lacks; says nothing and does nothing where all is there.
#
# usage: cmake/dependencies.sh [--ci]     --ci: also what .ci/run needs (clang, its sanitizers, clang-format)
set -euo pipefail

packages=(g++ cmake ninja-build python3
  libdnnl-dev libisal-dev libopenmpi-dev openmpi-bin libboost-dev librange-v3-dev
  nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libgtest-dev)
for argument in "$@"; do
  case $argument in
    --ci) packages+=(clang libclang-rt-dev libomp-dev clang-format) ;;
    *) echo "dependencies.sh: unknown argument '$argument'; there is only --ci" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "dependencies.sh: this is not Debian, so install these by their names on your system: ${packages[*]};" \
    "then: cmake --preset release && cmake --build --preset release" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "dependencies.sh: needs root to run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing from Debian: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

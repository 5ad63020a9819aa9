#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing build dependencies on Debian or Ubuntu; does nothing and prints nothing if there are none. On Fedora
# and Arch it only prints the packages' names: those of the libraries were looked up, and nobody has built there yet.
#
# usage: cmake/dependencies.sh [--ci] [--docs] [--libraries]
#   --ci: also for .ci/run (clang, its sanitizers, clang-format, Eigen, tools for packages, and everything of --docs)
#   --docs: only for docs/build.sh
#   --libraries: only prints Debian's names of the libraries (for cmake/aarch64_sysroot.sh)
set -euo pipefail

libraries=(libdnnl-dev libisal-dev libpcre2-dev libutf8proc-dev libopenmpi-dev libboost-dev nlohmann-json3-dev
  libcli11-dev libtomlplusplus-dev librange-v3-dev libgtest-dev)
packages=(g++ cmake ninja-build python3 python3-pytest openmpi-bin libeigen3-dev "${libraries[@]}")
for argument in "$@"; do
  case $argument in
    --ci) packages+=(clang libclang-rt-dev libomp-dev clang-format dpkg-dev pkg-config doxygen mkdocs mkdocs-material) ;;
    --docs) packages=(doxygen mkdocs mkdocs-material python3) ;;
    --libraries) echo "${libraries[@]}"; exit 0 ;;
    *) echo "dependencies.sh: unknown argument '$argument'; there are --ci, --docs and --libraries" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  first=
  if command -v dnf >/dev/null; then
    names="dnf install gcc-c++ cmake ninja-build python3 python3-pytest onednn-devel isa-l-devel pcre2-devel utf8proc-devel openmpi-devel
      boost-devel json-devel cli11-devel tomlplusplus-devel range-v3-devel gtest-devel eigen3-devel"
    first="module load mpi/openmpi-$(uname -m) && "  # in every shell: Fedora keeps Open MPI out of PATH
  elif command -v pacman >/dev/null; then
    names="pacman -S gcc cmake ninja python python-pytest onednn isa-l pcre2 libutf8proc openmpi boost nlohmann-json cli11
      tomlplusplus range-v3 gtest eigen"
  else
    names="your system's packages of what Debian calls: ${packages[*]}"
  fi
  echo "dependencies.sh: this is neither Debian nor Ubuntu; install as root:" $names >&2  # unquoted: one line
  echo "then: ${first}cmake --preset release && cmake --build --preset release" >&2
  exit 1
fi

missing=()
native=$(dpkg --print-architecture)  # packages of another architecture do not count
for package in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Status} ${Architecture}\n' "$package" 2>/dev/null |
    grep -xE "installed (all|$native)" >/dev/null || missing+=("$package")
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

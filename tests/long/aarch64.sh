#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The preset aarch64: fetches Debian's arm64 packages, builds, and runs the unit tests under qemu. Some 10 minutes.
#
# usage: aarch64.sh     Needs g++-aarch64-linux-gnu and qemu-user-static; takes no program, its own are built.
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v "$tool" >/dev/null ||
    { echo "aarch64.sh: no $tool; on Debian: apt-get install g++-aarch64-linux-gnu qemu-user-static" >&2; exit 1; }
done
cmake/aarch64_sysroot.sh
cmake --preset aarch64
cmake --build --preset aarch64
ctest --preset aarch64 -j "$(nproc)"

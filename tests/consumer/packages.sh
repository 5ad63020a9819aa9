#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian's packages, unpacked into a root of their own: the program runs, and a trainer is built by pkg-config, without
# CMake. Then a project that fetches an archive of the sources.
# usage: packages.sh SOURCE BUILD COMPILER
set -euo pipefail
source=$1 build=$2 compiler=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$work" && cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip) >"$work/log" ||
  { cat "$work/log"; exit 1; }
for package in "$work"/*.deb; do
  dpkg-deb --field "$package" Package Version Depends
  dpkg-deb --extract "$package" "$work/root"
done
"$work/root/usr/bin/tessera" --version | sed -n 1p | grep -Fx "tessera $(sed -n 's/.*version_string = "\(.*\)";/\1/p' "$source/include/fsdp/version.hpp")"
[ -f "$work/root/usr/share/doc/tessera/docs/extending.md" ]

export PKG_CONFIG_PATH=$work/root/usr/lib/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs tessera)"
read -ra sharding <<<"$(pkg-config --cflags --libs tessera-sharding)"
read -ra trainer <<<"$(pkg-config --cflags --libs tessera-trainer)"
"$compiler" -std=c++20 -Wall -Wextra -Werror "$source/tests/consumer/main.cpp" "${flags[@]}" -o "$work/consumer"
"$work/consumer"
"$compiler" -std=c++20 -Wall -Wextra -Werror "$source/tests/consumer/main.cpp" "${sharding[@]}" -o "$work/sharded"
"$work/sharded"
"$compiler" -std=c++20 -O0 "$source/examples/01_trainer/main.cpp" "${trainer[@]}" -o "$work/trainer"
"$work/trainer" --dry-run --model tiny --ranks 2 | grep -E "^  peak +[0-9]"
if pkg-config --exists tessera-mpi; then pkg-config --libs tessera-mpi | grep -F -- "-ltessera_mpi"; fi

tar -C "$source" --exclude=./build --exclude=./runs --exclude=./.git -czf "$work/tessera.tar.gz" .
cmake -G Ninja -S "$source/tests/consumer/fetched" -B "$work/fetched" -DCMAKE_CXX_COMPILER="$compiler" \
  -DARCHIVE="file://$work/tessera.tar.gz"
cmake --build "$work/fetched" --target uses_tessera

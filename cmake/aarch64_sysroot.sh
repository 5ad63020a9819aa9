#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a sysroot with Debian's arm64 packages of Tessera's dependencies, to compile and run for aarch64 on another
# processor (cmake/aarch64.cmake). Uses the mirror, suite and keys of this machine's apt; installs nothing on it, and
# needs no root.
#
# usage: cmake/aarch64_sysroot.sh [DIR]     default: build/aarch64-sysroot. Does nothing if the folder is complete.
#
# Does not use `dpkg --add-architecture arm64`: many -dev packages of two architectures cannot be installed together.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-$here/../build/aarch64-sysroot}
packages=$("$here/dependencies.sh" --libraries)
complete=$root/.packages  # the list of packages; written last
if [ -f "$complete" ] && [ "$(cat "$complete")" = "$packages" ]; then exit 0; fi
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || { echo "aarch64_sysroot.sh: needs $tool, which Debian and Ubuntu have" >&2; exit 1; }
done

rm -rf "$root"
mkdir -p "$root"
root=$(cd "$root" && pwd)
apt=$root/.apt  # separate folders for apt, so that this machine's state stays unchanged
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/log"
touch "$apt/status"  # an empty status: every dependency is fetched
get() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt" -o Dir::State::status="$apt/status" \
    -o Dir::Cache="$apt/cache" -o Dir::Log="$apt/log" -o APT::Sandbox::User="$(id -un)" "$@" >>"$apt/output" 2>&1 ||
    { tail -n 20 "$apt/output" >&2; echo "aarch64_sysroot.sh: apt-get failed; $apt/output has all it said" >&2; exit 1; }
}
echo "Fetching Debian's arm64 packages into $root"
get update
# shellcheck disable=SC2086
get install -y --no-install-recommends --download-only $packages

for folder in bin lib sbin; do  # as in Debian's base-files
  mkdir -p "$root/usr/$folder"
  ln -s "usr/$folder" "$root/$folder"
done
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$root"
done
# Absolute links, such as libm.so's, would point to this machine's files.
find "$root" -type l -lname '/*' -printf '%l\0%p\0' | while IFS= read -r -d '' target && IFS= read -r -d '' link; do
  ln -sfnr "$root$target" "$link"
done
rm -rf "$apt"
echo "$packages" >"$complete"

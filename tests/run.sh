#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs the first tier of the tests (tests/tiers.txt); ends with ctest's summary.
#
# usage: tests/run.sh [--part PART] [PRESET...]
#   --part PART   also a part of the other tests: 0 to 6, or all
#   PRESET        default: release. The tests of all presets run in one ctest.
set -euo pipefail
cd "$(dirname "$0")/.."
part=
if [ "${1:-}" = --part ]; then
  part=${2:-}
  [[ $part =~ ^([0-6]|all)$ ]] || { echo "run.sh: --part '$part' is neither 0 to 6 nor all" >&2; exit 2; }
  shift 2
fi
presets=("$@")
[ ${#presets[@]} -gt 0 ] || presets=(release)

targets=(all)
parts=$(seq 0 6)
[ "$part" = all ] || parts=$part
for one in $parts; do targets+=("tests_part_$one"); done
exclude=()
others=()  # labels of the parts that do not run
for one in $(seq 0 6); do [[ $part =~ ^(all|$one)$ ]] || others+=("part$one"); done
[ ${#others[@]} -eq 0 ] || exclude=(--label-exclude "^($(IFS='|'; echo "${others[*]}"))\$")

phase() {  # NAME COMMAND...: runs it and prints how long it took; its status is the command's
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  echo "== $name: $((SECONDS - start)) s$([ "$status" -eq 0 ] || echo ", FAILED")"
  return "$status"
}

build() { cmake --preset "$1" && cmake --build --preset "$1" --target "${targets[@]}" -- -k 0; }

phase "dependencies" cmake/dependencies.sh

failed=()
mkdir -p build/tests
echo "# Written by tests/run.sh: the tests of these presets as one." >build/tests/CTestTestfile.cmake
for preset in "${presets[@]}"; do
  phase "build $preset" build "$preset" || failed+=("$preset")
  echo "subdirs(\"$PWD/build/$preset\")" >>build/tests/CTestTestfile.cmake
done
[ ${#failed[@]} -eq 0 ] || echo "== NOT BUILT COMPLETELY: ${failed[*]}; what could not be built fails below"

status=0
# One test more than cores: many wait, since their ranks are threads that hand work to each other.
ctest --test-dir build/tests --output-on-failure --no-tests=error -j "$(($(nproc) + 1))" "${exclude[@]}" || status=$?
[ ${#failed[@]} -eq 0 ] && exit "$status"
echo "== FAILED: ${failed[*]} was not built completely, whatever ctest says above" >&2
exit 1

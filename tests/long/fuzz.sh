#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every reader of untrusted input: builds the programs of tests/fuzz (preset fuzz: clang, libFuzzer, AddressSanitizer,
# UBSan), runs each for its part of an hour, and prints its executions and coverage. An input that ends a program, takes 10 s
# or 2 GB fails, and is kept beside the program: put it into tests/fuzz/corpus/<target> with the mend.
#
# usage: fuzz.sh     TESSERA_FUZZ_SECONDS=N: in all (3600); TESSERA_FUZZ_TARGETS="a b": only these. Takes no program, its
#                    own are built in build/fuzz.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
command -v clang++ >/dev/null || { echo "fuzz.sh: no clang++; run cmake/dependencies.sh --ci" >&2; exit 1; }
cd "$source"
targets=${TESSERA_FUZZ_TARGETS:-$(cd tests/fuzz && ls ./*_target.cpp | sed 's|^./||; s|_target.cpp$||')}
seconds=$((${TESSERA_FUZZ_SECONDS:-3600} / $(wc -w <<<"$targets")))
[ "$seconds" -gt 0 ] || { echo "fuzz.sh: TESSERA_FUZZ_SECONDS must be at least one for each target" >&2; exit 1; }
cmake --preset fuzz >/dev/null
# shellcheck disable=SC2086,SC2046
cmake --build --preset fuzz --target $(printf 'fuzz_%s_target ' $targets)

out=$source/build/fuzz/fuzz
mkdir -p "$out"
export TMPDIR  # files that are read; the programs end without removing them
TMPDIR=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "$out")")
trap 'rm -rf "$TMPDIR"' EXIT
failed=0
for target in $targets; do
  mkdir -p "$out/$target"  # inputs that were found; the next run begins with them
  if ! "build/fuzz/tests/fuzz_${target}_target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=50000 \
    -print_final_stats=1 -verbosity=1 -artifact_prefix="$out/$target-" "$out/$target" "tests/fuzz/corpus/$target" \
    >"$out/$target.log" 2>&1; then
    echo "fuzz.sh: $target failed: $out/$target.log" >&2
    tail -n 30 "$out/$target.log" >&2
    failed=1
  fi
  awk -v target="$target" '/ cov: / { for (i = 1; i < NF; ++i) if ($i == "cov:") edges = $(i + 1) }
    /number_of_executed_units/ { executions = $2 }
    END { printf "%-20s %10d executions, %6d edges\n", target, executions, edges }' "$out/$target.log"
done
exit $failed

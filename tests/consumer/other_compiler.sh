#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program by another compiler than the installed library's: the same sizes of what both read and write, and the same losses as the program
# by the library's compiler. Skipped (77) where the other one, or its OpenMP, is not there.
# usage: other_compiler.sh SOURCE BUILD COMPILER TRAINER    TRAINER: examples/01_trainer by COMPILER
set -euo pipefail
source=$1 build=$2 compiler=$3 trainer=$4
case $compiler in
  *clang*) other=g++ ;;
  *) other=clang++ ;;
esac
command -v "$other" >/dev/null || exit 77
export OMP_WAIT_POLICY=passive  # clang's OpenMP spins where threads outnumber cores

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
echo 'int main() { return 0; }' >probe.cpp
"$other" -fopenmp probe.cpp -o probe || exit 77
cmake --install "$build" --prefix prefix --component dev >installed
configure() {
  cmake -G Ninja -S "$source/tests/consumer" -B other -DCMAKE_CXX_COMPILER="$other" -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCOMPONENTS=trainer \
    -DPROGRAMS="trainer=$source/examples/01_trainer/main.cpp;layouts=$source/tests/consumer/layouts.cpp" \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror -I$source" >configured 2>&1
}
if [ "$other" = g++ ]; then  # its OpenMP does not have what clang's code calls
  ! configure || { echo "g++ took a library by clang++"; exit 1; }
  tr -s '\n ' ' ' <configured | grep "was built by Clang, whose OpenMP g++ does not link" || { cat configured; exit 1; }
  exit 0
fi
configure || { cat configured; exit 1; }
cmake --build other &
built=$!
"$compiler" -std=c++20 -I prefix/include -I "$source" "$source/tests/consumer/layouts.cpp" -o own_layouts
wait $built

own_layouts=$(./own_layouts | awk '{ print $(NF - 1), $NF }')  # without the types' names, which compilers write in their own ways
./other/layouts | paste - <(echo "$own_layouts") |
  awk '$(NF - 3) != $(NF - 1) || $(NF - 2) != $NF { print "another size:", $0; bad = 1 } END { exit bad || NR < 60 }'

losses() {  # PROGRAM
  "$1" --model tiny --data "$source/README.md" --steps 4 --seq-len 32 --batch-size 4 --ranks 2 --threads 2 --metrics "$2" >printed
  grep -o '"loss":[0-9.e-]*' "$2"
}
losses "$trainer" own.jsonl >own
losses ./other/trainer other.jsonl >other_losses
[ "$(wc -l <own)" -ge 4 ] && diff own other_losses

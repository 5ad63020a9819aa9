#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# export that is ended by a signal, or whose disk fails or is full: nothing of it stays, and one line says why.
# TESSERA_FAULTS is the library that makes system calls fail or stall.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

model=$golden/qwen3-window
mkdir tokenizer
echo '{}' >tokenizer/tokenizer.json
faulty=(env LD_PRELOAD="$TESSERA_FAULTS" TESSERA_FAULT_UNDER=below)
export=("$program" export "$model" below/new --shard-bytes 40000 --files-from tokenizer)

"${faulty[@]}" TESSERA_FAULT_COUNT="$folder/count" "${export[@]}" >"$out"
calls() { awk -v call="$1" '$1 == call { print $2 }' "$folder/count"; }
[ "$(calls reserve)" -ge 2 ] && [ "$(calls sync)" -ge 6 ] && [ "$(calls write)" -ge 12 ] || fail "$(cat "$folder/count")"
rm -r below

echo "== a signal, while a piece is written, a file of weights is synced or the tokenizer is written"
before=$(listing)
for stop in "INT:130:write:3" "TERM:143:write:3" "INT:130:sync:$(calls reserve)" "TERM:143:write:$(calls write)"; do
  IFS=: read -r signal status call k <<<"$stop"
  "${faulty[@]}" TESSERA_FAULT="$call:$k:slow" "${export[@]}" >"$out" 2>"$err" &
  run=$!
  for _ in $(seq 300); do [ -z "$(find below -name '*.safetensors' 2>/dev/null)" ] || break; sleep 0.02; done
  [ -n "$(find below -name '*.safetensors')" ] || fail "writes nothing"
  sleep 0.3  # into the slow call, which the signal cuts short
  kill -s "$signal" $run
  run_ends "$status"
  contains "$err" "^tessera: SIG$signal: nothing of the export is kept\$"
  [ "$(wc -l <"$err")" -eq 1 ] || fail "more than one line"
  [ "$(listing)" = "$before" ] || fail "left $(listing)"
done

echo "== any call that fails"
for call in open reserve write sync close rename mkdir; do
  every=1
  [ $call != write ] || every=5  # of a tensor each
  for k in $(seq 1 $every "$(calls $call)"); do
    [ $call != close ] || [ "$k" -le $(($(calls close) - 2)) ] || continue  # of folders, which were only read
    expect_error '^tessera: below.*: Input/output error$' "${faulty[@]}" TESSERA_FAULT="$call:$k:EIO" "${export[@]}"
  done
done

echo "== reading that fails, and parts of reads and writes, which do no harm"
cp -r "$model" from-here
reading=(env LD_PRELOAD="$TESSERA_FAULTS" TESSERA_FAULT_UNDER=from-here)
for fault in open:2:EACCES read:2:EIO read:9:EIO; do
  expect_error '^tessera: from-here/[a-z.]+: cannot be (opened|read): ' "${reading[@]}" TESSERA_FAULT=$fault \
    "$program" export from-here below/new
done
tessera export from-here whole
"${faulty[@]}" TESSERA_FAULT="write:*:short" "$program" export from-here below/new >"$out" || fail "short writes"
same whole/model.safetensors below/new/model.safetensors
rm -r below
"${reading[@]}" TESSERA_FAULT="read:*:short" "$program" export from-here below/new >"$out" || fail "short reads"
same whole/model.safetensors below/new/model.safetensors
rm -r below

echo "== a full disk says what to do"
advice='; nothing of the export is kept. Make room, or choose another folder$'
expect_error "is the disk full\?\): No space left on device$advice" "${faulty[@]}" TESSERA_FAULT=reserve:2:ENOSPC "${export[@]}"
expect_error "written: No space left on device$advice" "${faulty[@]}" TESSERA_FAULT=write:5:ENOSPC "${export[@]}"
expect_error "written: Disk quota exceeded$advice" "${faulty[@]}" TESSERA_FAULT="write:$(calls write):EDQUOT" "${export[@]}"
whole=("$program" export "$model" new)
expect_error 'File too large; nothing of the export is kept. --shard-bytes N makes smaller files$' bash -c 'ulimit -f 20; exec "$@"' - "${whole[@]}"
bash -c 'ulimit -f 20; exec "$@"' - "${whole[@]}" --shard-bytes 9000 >"$out" || fail "small files are too large"
if mkdir disk && mount -t tmpfs -o size=256k tessera_test disk 2>/dev/null; then
  trap 'umount "$folder/cwd/disk"; rm -rf "$folder"' EXIT
  head -c 150000 /dev/zero >disk/other
  head -c 90000 /dev/zero >tokenizer/merges.txt
  expect_error "disk/a/new.tmp-[0-9]+/merges.txt: cannot be written: No space left on device$advice" \
    "$program" export "$model" disk/a/new --files-from tokenizer --dtype bf16
  head -c 230000 /dev/zero >disk/other
  expect_error 'disk/a/new: takes [0-9]+ bytes and its disk has [0-9]+ left: No space left on device. Make room, or ' \
    "$program" export "$model" disk/a/new
else
  echo "skipped: a full disk (mounting one is not permitted here)"
fi

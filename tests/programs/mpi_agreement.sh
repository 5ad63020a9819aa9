#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that see other files, weights, checkpoints or another program: one sentence with both values, status 2, before
# anything is trained, evaluated or written. Folders of ranks stand for disks of hosts.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
mkdir a b
cp text.txt a && cp text.txt b
flags=(--data text.txt --seq-len 16 --precision fp32 --threads 1)
train=(train "${flags[@]}" --model tiny --batch-size 4 --lr-schedule constant)

# apart COMMAND...: rank 0 in folder a, rank 1 in folder b.
apart() { timeout "$limit" mpirun --oversubscribe -np 1 -wdir a "$program" "$@" : -np 1 -wdir b "$program" "$@"; }
# differ PATTERN COMMAND...: both are refused, in one line of ours.
differ() {
  local status=0 before
  before=$(listing)
  apart "${@:2}" >"$out" 2>"$err" || status=$?
  [ "$status" -eq 2 ] || fail "status $status instead of 2: ${*:2}"
  contains "$err" "$1"
  [ "$(grep -cE "$1" "$err")" -eq 1 ] || fail "said more than once"
  [ "$before" = "$(listing)" ] || fail "left files behind: $(diff <(echo "$before") <(listing))"
}

echo "== data of the same size"
printf 'X' | dd of=b/text.txt bs=1 seek=2000 conv=notrunc status=none
data="do not see the same: rank 0 has 'data = 1 files, 3000 bytes, digest [0-9a-f]+', rank 1 has 'data = "
differ "$data" "${train[@]}" --steps 2 --checkpoint-dir saved
differ "$data" eval --model "$golden/llama-gqa" "${flags[@]}"
rm b/text.txt
differ 'rank 1: data: text.txt: no such file' "${train[@]}" --steps 2
cp text.txt b

echo "== a folder of checkpoints that hosts do not share, or that one of them cannot write"
shared='is not the folder that rank 0 writes, or cannot be written from here: run.lock'
differ "rank 1: --checkpoint-dir saved: $shared: No such file or directory; give a folder that all hosts share" \
  "${train[@]}" --steps 2 --checkpoint-dir saved
if unshare -m true 2>/dev/null; then
  mkdir c
  refused "rank 1: --checkpoint-dir c: $shared: Read-only file system" mpirun --oversubscribe \
    -np 1 "$program" "${train[@]}" --steps 2 --checkpoint-dir c : \
    -np 1 unshare -m bash -c 'mount --bind c c && mount -o remount,bind,ro c && exec "$@"' - \
    "$program" "${train[@]}" --steps 2 --checkpoint-dir c
else
  echo "skipped: a host of its own view (unshare is not permitted here)"
fi

echo "== models"
cp -r "$golden/llama-gqa" a/model && cp -r "$golden/llama-gqa" b/model
python3 -c "
with open('b/model/model.safetensors', 'r+b') as file:
    file.seek(-1, 2)
    byte = file.read(1)[0]
    file.seek(-1, 2)
    file.write(bytes([byte ^ 1]))"
weights="rank 0 has 'model/model.safetensors = [0-9]+ bytes, digest [0-9a-f]+', rank 1 has"
differ "$weights" eval --model model "${flags[@]}"
differ "$weights" train "${flags[@]}" --model model --steps 1 --batch-size 4
sed -i 's/"rms_norm_eps": *[0-9.e-]*/"rms_norm_eps": 0.0099/' b/model/config.json
differ "rank 0 has ' *\"rms_norm_eps\": .*rank 1 has ' *\"rms_norm_eps\": 0.0099,'" eval --model model "${flags[@]}"

echo "== checkpoints: nobody falls back alone"
timeout "$limit" mpirun --oversubscribe -np 2 -wdir a "$program" "${train[@]}" --steps 4 --checkpoint-every 2 \
  --checkpoint-dir saved >"$out" 2>"$err" || fail "status $?"
cp -r a/saved b
resume=("${train[@]}" --steps 6 --resume saved)
truncate -s 100 b/saved/step-00000004/optimizer.safetensors
differ 'rank 1: saved/step-00000004/optimizer.safetensors' "${resume[@]}"
rm -r b/saved
differ 'rank 1: saved/step-00000004: no such' "${resume[@]}"
timeout "$limit" mpirun --oversubscribe -np 2 -wdir b "$program" "${train[@]}" --steps 4 --checkpoint-every 2 \
  --checkpoint-dir saved --lr 0.002 >"$out" 2>"$err" || fail "status $?"
differ "rank 0 has 'saved/step-00000004/.* = [0-9]+ bytes, digest [0-9a-f]+', rank 1 has" "${resume[@]}"
rm -r b/saved && cp -r a/saved b
rm -r a/saved/step-00000004  # what rank 0 finds is what all take
apart "${resume[@]}" --metrics metrics.jsonl >"$out" 2>"$err" || fail "status $?"
contains "$out" '^resumed from saved/step-00000002: step 2,'

echo "== programs"
python3 -c "
import subprocess, sys
note = subprocess.run(['readelf', '-n', sys.argv[1]], capture_output=True, text=True).stdout
build = bytes.fromhex(note.split('Build ID: ')[1].split()[0])
program = open(sys.argv[1], 'rb').read()
assert program.count(build) == 1
open('other', 'wb').write(program.replace(build, bytes(reversed(build))))" "$program"
chmod +x other
refused "different arguments: rank 0 has 'build = .*rank 1 has 'build = " mpirun --oversubscribe \
  -np 1 "$program" "${train[@]}" --steps 1 : -np 1 ./other "${train[@]}" --steps 1

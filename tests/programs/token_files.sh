#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Token files: the same tokens give the same losses to the bit, as text, with llm.c's headers and without any.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 4000 text.txt
python3 - <<'PY'
import array, struct
text = open("text.txt", "rb").read()
u16, u32 = array.array("H", list(text)).tobytes(), array.array("I", list(text)).tobytes()
def header(magic, version): return struct.pack("<3i", magic, version, len(text)) + bytes(1024 - 12)
open("u16.raw", "wb").write(u16)
open("u32.raw", "wb").write(u32)
open("gpt2.bin", "wb").write(header(20240520, 1) + u16)
open("llama3.bin", "wb").write(header(20240801, 7) + u32)
open("spaces.raw", "wb").write(b" " * 4000 + bytes(range(1, 9)))
open("u16.npy", "wb").write(b"\x93NUMPY\1\0\x76\0" + b"{'descr': '<u2', 'fortran_order': False, 'shape': (4000,), }".ljust(117) + b"\n" + u16)
open("cut.bin", "wb").write((header(20240520, 1) + u16)[:-3])
PY
flags=(--model tiny --seq-len 64 --steps 3 --batch-size 4 --comm threads:2 --precision fp32 --seed 1 --document-separator 10)

# run NAME FLAG...: its losses are in NAME.losses.
run() {
  local name=$1
  shift
  tessera train "${flags[@]}" "$@" --metrics "$name.jsonl" --checkpoint-dir "$name"
  steps "$name.jsonl" 1 >"$name.losses"
}

run whole --data text.txt
run gpt2 --data gpt2.bin
contains "$out" '^data .* 4000 tokens of 16 bits in 1 file'
run llama3 --data llama3.bin
run u16 --data u16.raw --data-format u16
run u32 --data u32.raw --data-format u32
for name in gpt2 llama3 u16 u32; do same whole.losses $name.losses; done

echo "== eval, and other data on resuming"
tessera eval --model whole/step-00000003 --data text.txt --seq-len 64 && cp "$out" text.json
tessera eval --model whole/step-00000003 --data u16.raw --data-format u16 --seq-len 64 && cp "$out" u16.json
same text.json u16.json
expect_error 'the data was .* bytes.* is .* tokens of 16 bits' "$program" train "${flags[@]}" --data gpt2.bin --resume whole/step-00000003

echo "== Megatron's files, and two sources by weight: the same windows after a resume on any number of ranks"
python3 - <<'PY'
import struct
text = open("text.txt", "rb").read()
lengths = [1000, 0, 3000]
places = [0, 2000, 2000]
with open("mega.idx", "wb") as file:
    file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 3, 4) + struct.pack("<3i", *lengths) + struct.pack("<3q", *places))
    file.write(struct.pack("<4q", 0, 1, 2, 3))
open("mega.bin", "wb").write(open("u16.raw", "rb").read())
PY
run mega --data mega
same whole.losses mega.losses
head -c 1500 text.txt >short.txt
mixed=(--model tiny --seq-len 64 --precision fp32 --seed 1 --batch-size 12 --data mega.idx:0.75 short.txt:0.25 --steps 6)
mix() {
  local name=$1
  shift
  tessera train "${mixed[@]}" "$@" --metrics "$name.jsonl"
  steps "$name.jsonl" 4 >"$name.losses"
}
mix mixed --comm threads:2 --checkpoint-dir mixed --checkpoint-every 3
contains "$out" '^data .*weight 0.75: 4000 tokens of 16 bits in 1 file, the index lists 3 documents, whose borders attention crosses .*; weight 0.25: 1.46 KiB in 1 file'
mix resumed2 --comm threads:2 --resume mixed/step-00000003
same mixed.losses resumed2.losses
for ranks in 1 3; do
  mix "resumed$ranks" --comm "threads:$ranks" --grad-accum 2 --resume mixed/step-00000003
  close mixed.losses "resumed$ranks.losses" 1e-3
done
expect_error 'the data was weight 0.75.* is weight 0.5' "$program" train "${mixed[@]:0:8}" --steps 6 --batch-size 12 --data mega.idx:0.5 short.txt:0.5 --resume mixed/step-00000003
expect_error 'short.txt has no weight, and others have one' "$program" train --model tiny --data mega.idx:0.5 short.txt
expect_error 'eval: --data has weights' "$program" eval --model mixed/step-00000003 --data mega.idx:1 --precision fp32

echo "== bad"
bad=("$program" train "${flags[@]}")
expect_error 'cut.bin says that it holds 4000 tokens, which make 9024 bytes, and has 9021' "${bad[@]}" --data cut.bin
expect_error 'begins with llm.c.s header, and --data-format u32' "${bad[@]}" --data gpt2.bin --data-format u32
expect_error 'there is no text in u16.raw \(left out: binary 1 \(u16.raw\)\); if that holds tokens alone, train on it with --data-format u16 or u32' \
  "${bad[@]}" --data u16.raw
expect_error 'u16.npy is an array of NumPy \(dtype <u2, shape \(4000,\)\), and --data-format u16 is of files that hold tokens alone' \
  "${bad[@]}" --data u16.npy --data-format u16
expect_error 'u32.raw holds integers of 32 bits .* say --data-format u32' "${bad[@]}" --data u32.raw --data-format u16
expect_error 'u16.npy is an array of NumPy .* which is not read' "$program" eval --model whole/step-00000003 --data u16.npy --seq-len 64
expect_error 'give one kind alone' "${bad[@]}" --data text.txt gpt2.bin
expect_error '--end-token is for text that a tokenizer reads, and --data-format is u16; leave one of them out' "${bad[@]}" --data u16.raw \
  --data-format u16 --end-token none
expect_error 'data-format u8 is not known' "${bad[@]}" --data u16.raw --data-format u8
expect_error 'holds token 8224, which is not below' "${bad[@]}" --data spaces.raw --data-format u16
echo "token files: as described"

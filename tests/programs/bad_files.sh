#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files that are no files, hold what nobody wrote, or may not be read: one short line each, status 2, no waiting.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"
limit=20

text 600 text.txt
train=("$program" train --data text.txt --seq-len 16 --precision fp32 --model tiny --steps 1)
short_line() { [ "$(wc -c <"$err")" -lt 1000 ] || fail "an error of $(wc -c <"$err") bytes"; }

echo "== --config"
mkdir folder
mkfifo pipe
truncate -s 2M large.toml
expect_error '--config folder: not a regular file but a folder' "${train[@]}" --config folder
expect_error '--config /dev/zero: not a regular file' "${train[@]}" --config /dev/zero
expect_error '--config pipe: not a regular file' "${train[@]}" --config pipe
expect_error '--config large.toml: 2097152 bytes; at most 1048576' "${train[@]}" --config large.toml
python3 -c "print('steps = ' + '1' * 500000)" >number.toml
expect_error '--config number.toml: ' "${train[@]}" --config number.toml
short_line

echo "== config.json"
cp -r "$golden/llama-odd" model && chmod -R u+w model
eval=("$program" eval --model model --data text.txt --seq-len 16 --precision fp32)
changed() { python3 -c "
import sys
text = open('$golden/llama-odd/config.json').read()
open('model/config.json', 'wb').write(eval(sys.argv[1])(text).encode())" "$1"; }
changed 'lambda text: text + "\0trailing"'
expect_error 'config.json: not valid JSON at byte [0-9]+ .a NUL byte' "${eval[@]}"
changed 'lambda text: text.replace("\"hidden_size\": ", "\"hidden_size\": " + "1" * 500000)'
expect_error 'config.json: ' "${eval[@]}"
short_line
changed 'lambda text: "{\"" + "k" * 60000 + "\": 1, \"" + "k" * 60000 + "\": 1}"'
expect_error 'config.json: the key "k+\.\.\. \(60000 bytes\)" stands twice' "${eval[@]}"
short_line
rm model/config.json && mkfifo model/config.json
expect_error 'config.json: not a regular file' "${eval[@]}"

echo "== not permitted, and links that end nowhere"
ln -s loop loop
expect_error 'data: loop: cannot be read: Too many levels' "$program" train --precision fp32 --seq-len 16 --data loop
rm model/config.json && ln -s config.json model/config.json
expect_error 'config.json: cannot be opened: Too many levels' "${eval[@]}"
if [ "$(id -u)" -ne 0 ]; then
  mkdir -m 555 locked
  expect_error 'checkpoint-dir locked/c: cannot be written: .*Permission denied' "${train[@]}" --checkpoint-dir locked/c
else  # root may do all but write into /proc
  expect_error 'checkpoint-dir /proc/c: cannot be ' "${train[@]}" --checkpoint-dir /proc/c
  lacks "$err" Success
fi

echo "== weights that are not finite"
cp -r "$golden/llama-gqa" broken && chmod -R u+w broken
python3 -c "
import struct
with open('broken/model.safetensors', 'r+b') as file:
    file.seek(-4, 2)
    file.write(struct.pack('<f', float('nan')))"
refused 'broken/model.safetensors: lm_head.weight.8191. is nan; no run can use it' "$program" generate --model broken --prompt a \
  --tokens 3 --temperature 0 --precision fp32

echo "== nothing of a file or a flag reaches the terminal as it is, and no message is long"
printable() {
  ! LC_ALL=C grep -q '[^ -~]' "$err" || fail "$(od -c "$err" | head)"
  [ "$(wc -c <"$err")" -lt "${1:-1000}" ] || fail "an error of $(wc -c <"$err") bytes"
}
escape=$'\e[31m' turned=$'\u202e'
expect_error '--model .x1b.31m.u202e is neither' "${train[@]/tiny/$escape$turned}"
printable
expect_error 'flag --.x1b.31m' "${train[@]}" "--$escape"
printable
expect_error "TESSERA_ISA is 'x+\.\.\. .5000 bytes.'" env TESSERA_ISA="$(printf 'x%.0s' {1..5000})" "$program" --version
printable
python3 -c "
import json
json.dump({'model': {'type': '\x1b[31m\x07' + 'ä' * 10000}}, open('tokenizer.json', 'w'))"
expect_error 'the model ".x1b.31m.x07' "$program" tokenize text.txt --tokenizer tokenizer.json --out new
short_line
python3 -c "import sys; open(sys.argv[1], 'w').write('text')" "folder/$escape"
timeout "$limit" "$program" inspect folder >"$err" && fail "status 0"
contains "$err" '^file +.x1b.31m, 4 B$'
printable
timeout "$limit" "${train[@]}" --metrics "$escape.jsonl" >"$out"
printf '\e[31m\n' >>"$escape.jsonl"
timeout "$limit" "$program" plot "$escape.jsonl" --out "$turned.svg" >"$out" 2>"$err" || fail "status $?"
contains "$out" '^.u202e.svg$'
printable
! grep -q $'\e' "$turned.svg" || fail "a control character in XML"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Text and JSONL by a tokenizer.json: made into token files, kept beside checkpoints or for one run, with the same losses to the bit; a
# checkpoint that carries its tokenizer reads and writes text.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

mkdir tok
cp "$golden/../text/tokenizers/smollm.json" tok/tokenizer.json
echo '{"eos_token": {"content": "<|endoftext|>", "special": true}}' >tok/tokenizer_config.json
text 30000 text.txt
python3 - <<'PY'
import json
text = open("text.txt").read()
with open("bodies.jsonl", "w") as file:
    for at in range(0, len(text), 1000):
        file.write(json.dumps({"id": at, "body": text[at:at + 1000]}) + "\n\n")
PY

echo '{"model":{"type":"Unigram"}}' >unigram.json

echo "== tokenize: token files, gone on with where they were interrupted, left alone when they are complete"
tessera tokenize text.txt --tokenizer tok --out tokens
contains "$out" '^tokens    [0-9,]+ of 1 document in 1 file of tokens$'
contains "$out" '^text      29.30 KiB'
tessera tokenize text.txt --tokenizer tok --out tokens
contains "$out" 'they were complete'
tessera tokenize bodies.jsonl --text-field body --tokenizer tok --out lines --shard-tokens 1000
contains "$out" ' of 30 documents in [0-9]+ files of lines$'
expect_error 'tokens holds the tokens of other texts' "$program" tokenize bodies.jsonl --text-field body --tokenizer tok --out tokens
expect_error 'bodies.jsonl line 1: has no "text"; name the field' "$program" tokenize bodies.jsonl --tokenizer tok --out new
expect_error 'the end token "<s>" is none of ' "$program" tokenize text.txt --tokenizer tok --out new --end-token '<s>'
expect_error 'give texts, their tokenizer' "$program" tokenize text.txt --out new
expect_error 'nothing: no such file' "$program" tokenize nothing --tokenizer tok --out new
expect_error 'the model "Unigram" is not supported' "$program" tokenize text.txt --tokenizer unigram.json --out new

echo "== JSON records, hidden names and encodings, on every route"
printf '[{"text":"a cat"},{"text":"a dog"}]' >array.json
printf '{"text":"a cat"}\n{"text":"a dog"}\n' >lines.json
for name in array lines; do
  tessera tokenize $name.json --tokenizer tok --out json-$name
  contains "$out" ' of 2 documents in 1 file'
done
same json-array/tokens_000000.bin json-lines/tokens_000000.bin
mkdir -p folder/.git folder/wide
echo secret >folder/.git/config
head -c 3000 text.txt >folder/a.txt
printf '\xff and the rest\n' >>folder/a.txt
printf 'x\0y' >folder/b.bin
tessera tokenize folder --tokenizer tok --out of-folder
contains "$out" '^left out: hidden 1 \(folder/.git\), binary 1 \(folder/b.bin\)$'
contains "$out" '^U\+FFFD    1 bytes are not Unicode text'
small=(--model tiny --vocab 1200 --seq-len 16 --steps 1 --batch-size 1 --precision fp32 --seed 1)
tessera train "${small[@]}" --data folder --tokenizer tok --token-cache cache-folder
contains "$err" '^tessera: folder: left out: hidden 1 \(folder/.git\), binary 1 \(folder/b.bin\)$'
contains "$out" '^data .* bits in 1 file, left out: not text, when the tokens were made 1, 1 bytes that are not Unicode text were read as U\+FFFD'
tessera train "${small[@]}" --data folder --tokenizer tok --token-cache cache-folder
contains "$out" 'made 1, 1 bytes that are not Unicode text were read as U\+FFFD'
tessera train "${small[@]}" --data folder --checkpoint-dir bytes
contains "$out" '^data .* in 1 file, left out: hidden 1 \(folder/.git\), binary 1 \(folder/b.bin\)'
tessera eval --model bytes/step-00000001 --data folder --data-format bytes --seq-len 16 --precision fp32
contains "$err" '^tessera: data: left out: hidden 1 \(folder/.git\), binary 1 \(folder/b.bin\)$'
expect_error 'lines.json holds records of JSON, whose texts a tokenizer reads' "$program" train "${small[@]}" --data lines.json
printf '\xd1\xb5\xc1\xb7\xca\xfd\n' >gbk.txt
expect_error 'gbk.txt is not UTF-8: [0-9]+ of its 7 bytes are not, the first at byte 2; convert it' "$program" tokenize gbk.txt --tokenizer tok --out new
expect_error 'gbk.txt is not UTF-8' env TMPDIR="$PWD" "$program" train "${small[@]}" --data gbk.txt --tokenizer tok
printf '\xff\xfea\0b\0' >folder/wide/utf16.txt
expect_error 'utf16.txt begins with the byte order mark of UTF-16' env TMPDIR="$PWD" "$program" train "${small[@]}" --data folder --tokenizer tok

echo "== train: token files, a cache in --checkpoint-dir, one of its own, and a temporary one"
flags=(--model tiny --vocab 1200 --seq-len 64 --steps 3 --batch-size 4 --precision fp32 --seed 1)
run() {
  local name=$1
  shift
  TMPDIR=$PWD tessera train "${flags[@]}" "$@" --metrics "$name.jsonl"
  steps "$name.jsonl" 1 >"$name.losses"
}
run files --data tokens
run kept --data text.txt --tokenizer tok --checkpoint-dir kept --comm threads:2
contains "$err" 'tokenizes the text with tok/tokenizer.json; each document ends with token [0-9]+ \(<.endoftext.>\)'
run again --data text.txt --tokenizer tok --token-cache kept/tokens
run mine --data text.txt --tokenizer tok/tokenizer.json --token-cache cache --comm threads:4
run temporary --data text.txt --tokenizer tok
for name in again temporary; do same files.losses $name.losses; done
TMPDIR='' TESSERA_ISA='' TESSERA_BF16_MATMUL='' tessera train "${flags[@]}" --data text.txt --tokenizer tok --metrics unset.jsonl
same files.losses <(steps unset.jsonl 1)  # empty variables count as not set
[ "$(ls kept/tokens | wc -l)" -eq 1 ] || fail "the kept tokens were made twice"
[ -z "$(ls -d tessera-tokens-* 2>/dev/null)" ] || fail "a temporary folder stays"
run lines --data lines
run fields --data bodies.jsonl --text-field body --tokenizer tok
same lines.losses fields.losses
close files.losses kept.losses 1e-4

echo "== a checkpoint reads and writes text"
model=kept/step-00000003
same tok/tokenizer.json $model/tokenizer.json
tessera eval --model $model --data text.txt --seq-len 64 --precision fp32 && cp "$out" text.json
tessera eval --model $model --data tokens --seq-len 64 --precision fp32
same text.json "$out"
tessera generate --model $model --prompt 'the rank holds' --tokens 20 --precision fp32
[ "$(head -c 14 "$out")" = 'the rank holds' ] || fail "the prompt is not where the text begins"
python3 -c "open('$out', encoding='utf-8').read()" || fail "what was generated is no UTF-8"
cp "$out" one
tessera generate --model $model --prompt 'the rank holds' --tokens 20 --precision fp32 --comm threads:2
same one "$out"

echo "== bad"
bad=("$program" train --model tiny --seq-len 64 --steps 1 --data text.txt)
expect_error 'token ids up to 1199, and the model knows 256 tokens; take the model.s own tokenizer, or a new model with --vocab 1200' "${bad[@]}" --tokenizer tok
expect_error 'tokenizer . holds no tokenizer.json' "${bad[@]}" --tokenizer .
expect_error 'leave one of them out' "${bad[@]}" --tokenizer tok --data-format bytes
cp -r $model bare && rm bare/tokenizer.json
expect_error 'text.txt is text, and bare has no tokenizer.json; name one by --tokenizer' "$program" eval --model bare --data text.txt --precision fp32
expect_error 'nothing says what text they are; give --tokenizer or --prompt-ids' "$program" generate --model bare --prompt x --precision fp32
echo "tokenizers: as described"

echo "== a signal while text becomes tokens: a sentence, and no temporary folder"
for _ in $(seq 100); do cat text.txt; done >large.txt
# ended SENTENCE COMMAND...: by SIGTERM, once tokens are made.
ended() {
  local sentence=$1
  shift
  TMPDIR=$PWD "$program" "$@" >"$out" 2>"$err" &
  run=$!
  for _ in $(seq 3000); do [ -z "$(find . -name run.lock)" ] || break; sleep 0.01; done
  kill -s TERM $run
  run_ends 143
  [ "$(cat "$err")" = "tessera: SIGTERM: $sentence" ] || fail "$(cat "$err")"
  [ -z "$(find . -name 'tessera-tokens-*' -o -name '*.part' -o -name run.lock)" ] || fail "$(find .)"
}
ended "ended while tokenizing large.txt" train "${flags[@]}" --data large.txt --tokenizer tok --comm threads:2
ended 'tokenization is incomplete; run `tessera tokenize` again, it resumes' tokenize large.txt --tokenizer tok --out large

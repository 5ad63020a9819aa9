#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning on answers as `transformers` does it, and a chat with the result: what `generate` writes for the same texts.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

cp -r "$golden/../text/chat" model
cp "$golden/../text/tokenizers/qwen.json" model/tokenizer.json
echo '{"eos_token": "<|endoftext|>"}' >model/tokenizer_config.json
flags=(--model model --data model/chats.jsonl --data-format chat --precision fp32 --validation-fraction 0 --lr-schedule constant --threads 1)

echo "== losses of transformers' loop, whatever cuts a step"
same_as_transformers() {
  rm -f metrics.jsonl
  tessera train "${flags[@]}" --steps 8 --lr 1e-3 "$@" --metrics metrics.jsonl
  steps metrics.jsonl 1 | cut -d ' ' -f 2 >losses
  close losses model/losses.txt 1e-6
}
same_as_transformers --seq-len 360 --batch-size 8
same_as_transformers --seq-len 360 --batch-size 8 --grad-accum 8 --tiling tokens:100
same_as_transformers --seq-len 360 --batch-size 8 --grad-accum 2 --comm threads:2 --sharding hybrid:1
same_as_transformers --seq-len 300 --batch-size 9 --grad-accum 3 --comm threads:3 --sharding zero3

echo "== a chat, greedy: what generate writes"
tessera train "${flags[@]}" --seq-len 300 --batch-size 9 --steps 150 --lr 1e-2 --checkpoint-dir tuned
tuned=(--model tuned/step-00000150 --temperature 0 --tokens 60 --precision fp32 --threads 1)
[ -s tuned/step-00000150/chat_template.jinja ] || fail "the checkpoint lacks the template"
chat() {
  local lines=$1
  shift
  printf "$lines" >lines
  tessera chat "${tuned[@]/step-00000150/}" "$@" <lines  # takes the newest checkpoint
}
asked() { printf '<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n' "$1"; }
# written PROMPT: what generate writes behind it, in the file `written`.
written() {
  tessera generate "${tuned[@]}" --stop-ids 1,2 --prompt "$1"
  python3 -c "
import sys
text = open(sys.argv[1]).read()
assert text.startswith(sys.argv[2]), text
sys.stdout.write(text[len(sys.argv[2]):])" "$out" "$1" >written
}
one='What is 3 + 4?' two='What is 50 + 6?'
long=$(python3 -c "print('What is ' + ' + '.join(map(str, range(60))) + '?')")
chat "$one\n"
cp "$out" first
written "$(asked "$one")
"
same first written
written "$(asked "$one")
$(cat first)<|im_end|>
$(asked "$two")
"
cat first written >both
chat "$one\n$two\n"
same both "$out"
chat "$one\n\n$two\n/quit\n$one\n" --comm threads:2 --sharding zero3
same both "$out"
chat "$one\n/reset\n$one\n"
cat first first >twice
same twice "$out"

echo "== a long line is read in one pass, a longer one in a pass and steps"
written "$(asked "$long")
"
cp written of_long
chat "$long\n"
sed -i 's/ \.\.\.$//' "$out"  # behind an answer of the most tokens
same of_long "$out"
cat first >expected
written "$(asked "$one")
$(cat first)<|im_end|>
$(asked "$long")
"
cat written >>expected
chat "$one\n$long\n"
sed -i 's/ \.\.\.$//' "$out"
same expected "$out"

echo "== what generation_config.json sets: how tokens are drawn, and where an answer ends"
says() { echo "$1" >tuned/step-00000150/generation_config.json; }
says '{"bos_token_id": 0, "eos_token_id": [2, 0], "do_sample": true, "temperature": 0.7, "top_k": 1, "transformers_version": "4.51.0", "x": null}'
chat "$one\n"
contains "$err" '^tessera: by generation_config.json: top-k 1, stop-ids 2,0$'
same first "$out"
says '{"eos_token_id": null}'
chat "$one\n"
same first "$out"
lacks "$err" 'by generation_config'
for wrong in '{"temperature": -3};says temperature -3: --temperature -3 must be at least 0' '{"eos_token_id": ["x"]};must be a token.s id' '{"top_p": 7};--top-p 7' \
  '{"eos_token_id": [0, 99999]};"eos_token_id" names token 99999, and the model.s vocabulary has'; do
  says "${wrong%%;*}"
  expect_error "tuned/step-00000150/generation_config.json.*${wrong##*;}" "$program" chat --model tuned/step-00000150 --precision fp32
done
rm tuned/step-00000150/generation_config.json

echo "== limits and refusals"
chat "$one\n$long\n$one\n" --context 100
contains "$err" 'the conversation has [0-9]+ tokens, and --context is 100; /reset begins another'
chat "$one\n" --chat-template plain --system 'Be kind.'
expect_error 'nowhere.jinja: no such file' "$program" chat "${tuned[@]}" --chat-template nowhere.jinja
expect_error 'has no tokenizer.json; name one by --tokenizer' "$program" chat --model "$golden/llama-gqa"
expect_error '--model is missing' "$program" chat

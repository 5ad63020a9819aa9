#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Conversations: the same losses on any number of ranks and micro-batches, tiled, cached and resumed; what is no conversation is named.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

mkdir tok
cp "$golden/../text/tokenizers/qwen.json" tok/tokenizer.json
echo '{"eos_token": {"content": "<|endoftext|>"}}' >tok/tokenizer_config.json
python3 - <<'PY'
import json
with open("chats.jsonl", "w") as file:
    for i in range(120):
        turns = [{"role": "user", "content": f"What is {i} and {j}?"} if j % 2 == 0 else
                 {"role": "assistant", "content": "It is " + " and ".join(str(i + k) for k in range(i % 5 + 1)) + "."}
                 for j in range(2 + 2 * (i % 3))]
        file.write(json.dumps({"messages": turns}) + "\n")
with open("completions.jsonl", "w") as file:
    for i in range(120):
        file.write(json.dumps({"prompt": f"{i} + 1 =", "completion": f" {i + 1}"}) + "\n")
PY

flags=(--model tiny --vocab 2000 --seq-len 256 --steps 4 --batch-size 6 --precision fp32 --seed 1 --threads 1 --data-format chat --tokenizer tok
  --validation-fraction 0.1)
run() {
  local name=$1
  shift
  TMPDIR=$PWD tessera train "${flags[@]}" "$@" --metrics "$name.jsonl"
  steps "$name.jsonl" 1 >"$name.losses"
}

bad() {
  local text=$1
  shift
  expect_error "$text" env TMPDIR="$PWD" "$program" train "${flags[@]}" "$@"
}

echo "== the same losses, whatever cuts a step"
run one --data chats.jsonl --chat-template chatml
contains "$out" '120 conversations in [0-9]+ windows, [0-9]+ % filled'
contains "$err" 'tokenized the conversations with tok/tokenizer.json and the template chatml'
run two --data chats.jsonl --chat-template chatml --comm threads:2
run three --data chats.jsonl --chat-template chatml --comm threads:3 --sharding zero3
run accumulated --data chats.jsonl --chat-template chatml --grad-accum 6
run both --data chats.jsonl --chat-template chatml --comm threads:2 --grad-accum 3 --tiling tokens:96
for name in two three accumulated both; do close one.losses $name.losses 1e-5; done

echo "== a cache, and a resumed run"
run kept --data chats.jsonl --chat-template chatml --checkpoint-dir kept --checkpoint-every 2
same one.losses kept.losses
[ "$(ls kept/tokens | wc -l)" -eq 1 ] || fail "no cache beside the checkpoints"
[ -z "$(ls -d tessera-tokens-* 2>/dev/null)" ] || fail "a temporary folder stays"
cp -r kept before
rm -r before/step-00000004
run rest --data chats.jsonl --chat-template chatml --checkpoint-dir before --resume auto
tail -2 one.losses >last.losses
same last.losses rest.losses
run prompts --data completions.jsonl --chat-template plain --token-cache cache
expect_error 'was trained on 38 windows of 256 tokens' "$program" train "${flags[@]}" --data completions.jsonl --chat-template plain --token-cache cache \
  --checkpoint-dir before --resume before
tessera eval --model kept/step-00000004 --data chats.jsonl --data-format chat --seq-len 256 --chat-template chatml
contains "$out" '"loss": *[0-9.]+'

echo "== a template of one's own"
echo "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}" >tok/chat_template.jinja
run own --data chats.jsonl
contains "$err" 'and tok/chat_template.jinja'

echo "== parts that the template does not write, in one line a run, cached or not; the last answer alone"
echo "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content if loop.last or m.role == 'user' else m.content | upper }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}" >rewrites.jinja
python3 -c "
for i in range(20):
    print('{\"source\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"%d?\"}, {\"role\": \"tool\", \"content\": \"lost\"}, {\"role\": \"assistant\", \"content\": \"it is %d\"}, '
          '{\"role\": \"user\", \"content\": \"and?\"}, {\"role\": \"assistant\", \"content\": \"fin\"}]}' % (i, i))" >parts.jsonl
bad 'rewrites.jinja writes message 3 otherwise once others follow it, .*; learn the last answer alone by --learn last, mark earlier answers by "weight": 0, or give another --chat-template, such as qwen3 or chatml' \
  --data parts.jsonl --chat-template rewrites.jinja
for _ in first cached; do
  run last --data parts.jsonl --chat-template rewrites.jinja --learn last --comm threads:2 --token-cache last
  [ "$(grep -c 'tessera: warning: a part is absent from the text of 20 of 20 conversations; the first: parts.jsonl line 1: rewrites.jinja does not write the text of message 2$' "$err")" -eq 1 ] || fail "the lost part is not one line"
  [ "$(grep -c 'tessera: not read: source in 20 records$' "$err")" -eq 1 ] || fail "the unread key is not one line"
done

echo "== marks of messages, end tokens, and tokens that the tokenizer does not have"
cp -r tok bare && rm bare/chat_template.jinja && echo '{}' >bare/tokenizer_config.json
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},
  {"role": "assistant", "content": "d"}]}' | tr -d '\n' >marked.jsonl
sed 's/, "weight": 0//' marked.jsonl >unmarked.jsonl
eval_loss() { tessera eval --model kept/step-00000004 --data-format chat --seq-len 64 "$@" && cat "$out"; }
eval_loss --data marked.jsonl --chat-template chatml >marked
eval_loss --data unmarked.jsonl --chat-template chatml >unmarked
! cmp -s marked unmarked || fail "a mark changes nothing"
sed 's/"weight": 0/"weight": 0.5/' marked.jsonl >half.jsonl
bare=("${flags[@]/#tok/bare}")
bad 'half.jsonl line 1: message 2 has "weight" of 0.5' --data half.jsonl --chat-template chatml --comm threads:2
expect_error 'completions.jsonl line 1: bare/tokenizer.json: neither tokenizer_config.json nor special_tokens_map.json beside it names an eos_token' \
  env TMPDIR="$PWD" "$program" train "${bare[@]}" --data completions.jsonl --chat-template chatml
TMPDIR=$PWD tessera train "${bare[@]}" --data completions.jsonl --chat-template plain --end-token '<|endoftext|>' --metrics named.jsonl
steps named.jsonl 1 >named.losses
same prompts.losses named.losses
lacks "$err" 'warning'
echo '{"eos_token": "<|endoftext|>"}' >bare/special_tokens_map.json
TMPDIR=$PWD tessera train "${bare[@]}" --data completions.jsonl --chat-template plain --metrics map.jsonl --checkpoint-dir mapped
steps map.jsonl 1 >map.losses
same prompts.losses map.losses
same bare/special_tokens_map.json mapped/step-00000004/special_tokens_map.json
echo '{{ bos_token }}{{ messages[-1].content }}{% if false %}{{ eos_token }}{% endif %}' >bos.jinja
TMPDIR=$PWD tessera eval --model kept/step-00000004 --data-format chat --seq-len 128 --data unmarked.jsonl --chat-template chatml \
  --tokenizer "$golden/../text/tokenizers/smollm.json"
contains "$err" '^tessera: warning: the template chatml writes <\|im_end\|>, <\|im_start\|>, which is no token of .*smollm.json: each becomes several'
printf 'a\n' >line
timeout "$limit" "$program" chat --model kept/step-00000004 --chat-template bos.jinja --tokens 1 <line >"$out" 2>"$err"
contains "$err" '^tessera: warning: bos.jinja uses bos_token, which nothing beside kept/step-00000004/tokenizer.json names: it writes nothing there'
lacks "$err" 'eos_token'
refused 'in none of 108 conversations does an answer begin within the first 5 tokens; raise --seq-len$' env TMPDIR="$PWD" "$program" train \
  "${flags[@]/#256/4}" --data chats.jsonl --chat-template chatml --on-long cut

echo "== what cannot be is named, and nothing stays"
echo '{"messages": [{"role": "user", "content": "a"}]}' >silent.jsonl
(cat chats.jsonl && echo '{"messages": [{"role": "assistant", "content": "a"}]}') >order.jsonl
bad 'silent.jsonl line 1: holds no answer' --data silent.jsonl --chat-template chatml
bad 'order.jsonl line 121: the template chatml: line [0-9]+: the template refuses the conversation: the role assistant answers nothing' \
  --data order.jsonl --chat-template chatml --comm threads:2
expect_error 'chats.jsonl line [0-9]+: is [0-9]+ tokens long, and a sequence holds 17; raise --seq-len, or say --on-long drop or cut' \
  env TMPDIR="$PWD" "$program" train "${flags[@]/#256/16}" --data chats.jsonl --chat-template chatml --token-cache kept/tokens
bad 'silent.jsonl line 1: holds no answer' --data silent.jsonl --chat-template chatml --checkpoint-dir new/folder
bad 'tok/none.jinja: no such file' --data chats.jsonl --chat-template tok/none.jinja
echo '{{ messages | frobnicate }}' >bad.jinja
bad "bad.jinja: line 1: the filter 'frobnicate' is not known" --data chats.jsonl --chat-template bad.jinja
bad '--data has weights, which conversations do not know' --data chats.jsonl:0.5 completions.jsonl:0.5
auto=("${flags[@]/#chat/auto}")
expect_error '--on-long is for conversations' "$program" train "${auto[@]}" --data chats.jsonl --on-long drop
expect_error 'name the field of the text by --text-field, or train on conversations by --data-format chat' \
  env TMPDIR="$PWD" "$program" train "${auto[@]}" --data chats.jsonl --end-token none
bad '--text-field is for text, and --data-format is chat' --data chats.jsonl --text-field body
[ -z "$(ls -d tessera-tokens-* 2>/dev/null)" ] || fail "a temporary folder stays"

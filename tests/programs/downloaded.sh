#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Downloaded models of each family, as the hub's cache holds them: all that one does with them, as they come.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

python3 "$golden/../support/downloaded.py" hub
# Of one answer, without a system message: mistral's template moves that, qwen3's takes thoughts out of earlier answers.
for i in 1 2 3 4 5 6; do
  echo "{\"messages\": [{\"role\": \"user\", \"content\": \"What is $i + 4?\"}, {\"role\": \"assistant\", \"content\": \"It is $((i + 4)).\"}]}"
done >chats.jsonl
echo 'What is 3 + 4?' >line
text=(--data chats.jsonl --data-format chat --seq-len 160 --on-long drop)
small=(--precision fp32 --threads 1)
train() { tessera train "${text[@]}" "${small[@]}" --batch-size 2 --validation-fraction 0 --steps 2 "$@"; }
# loss_of FILE MODEL...: writes it there.
loss_of() {
  tessera eval "${text[@]}" "${small[@]}" --model "${@:2}"
  python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['loss'])" "$out" >"$1"
}
# by_folder FLAGS: the last command drew tokens as generation_config.json says, and warned of nothing.
by_folder() {
  contains "$err" "^tessera: by generation_config.json: $1\$"
  lacks "$err" warning
}
sound() {
  tessera inspect "$1"
  [ ! -s "$err" ] || fail "inspect of $1 says more"
  contains "$out" '^problems  none$'
}
# chats FOLDER FLAGS...: two answers, drawn as the folder says.
chats() {
  cat line line | timeout "$limit" "$program" chat --model "$1" "${small[@]}" --tokens 5 "${@:2}" >"$out" 2>"$err" || fail "chat with $1"
  [ "$(wc -l <"$out")" -ge 2 ] || fail "no answers"
  by_folder "$says"
}

# family NAME SAYS FILES: `says`, what generation_config.json sets; files: those that a checkpoint takes along.
family() {
  local name=$1 model=hub/$1/snapshots/main
  says=$2
  echo "== $name"
  sound "$model"
  contains "$out" '^weights   [0-9]+ tensors in 2 files, [0-9]+ elements of BF16$'
  contains "$out" '^tokenizer [0-9]+ tokens, with a chat template$'
  contains "$out" "^sampling  $says, by generation_config.json\$"
  loss_of loss "$model"
  lacks "$err" warning
  tessera generate --model "$model" --prompt 'What is' --tokens 3 "${small[@]}"
  by_folder "$says"
  chats "$model"

  train --model "$model" --checkpoint-dir "$name-tuned"
  lacks "$err" warning
  local tuned=$name-tuned/step-00000002
  for file in generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json $3; do cmp "$model/$file" "$tuned/$file"; done
  sound "$tuned"
  chats "$tuned"

  train --model "$model" --lora-rank 2 --lr 1e-2 --checkpoint-dir "$name-adapted"
  tessera export "$name-adapted" "$name-adapters"
  sound "$name-adapters"
  tessera export "$model" "$name-merged" --adapter "$name-adapters" --merge --shard-bytes 100000
  sound "$name-merged"
  loss_of of_adapters "$model" --adapter "$name-adapters"
  loss_of of_merged "$name-merged"
  ! cmp -s loss of_adapters || fail "the adapters change nothing"
  close of_merged of_adapters 1e-6
  chats "$model" --adapter "$name-adapters"
  cp "$out" said
  chats "$name-merged"
  same "$out" said
}

family llama2 'temperature 0.6, top-p 0.9, stop-ids 2' tokenizer.model
family llama3 'temperature 0.6, top-p 0.9, stop-ids 1,1202' ''
family llama3.1 'temperature 0.6, top-p 0.9, stop-ids 1,1204,1202' chat_template.jinja
family mistral 'stop-ids 2' tokenizer.model
family qwen2 'temperature 0.7, top-k 20, top-p 0.8, repetition-penalty 1.1, stop-ids 2,0' 'vocab.json merges.txt'
family qwen3 'temperature 0.6, top-k 20, top-p 0.95, stop-ids 2,0' 'vocab.json merges.txt chat_template.jinja'

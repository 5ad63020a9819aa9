#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fine-tunes a model on conversations with LoRA on two ranks, merges the adapters into the weights, and chats with it.
#
# usage: examples/finetune.sh                     makes questions about Boost's headers and a small Qwen3, trained on
#                                                 those headers for a minute; takes 3 minutes after the build
#        examples/finetune.sh FOLDER JSONL        takes the folder of your model, as downloaded, and your conversations
# All files go to runs/<time>. docs/conversations.md describes the lines of JSONL, docs/adapters.md LoRA.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 0 ] || [ $# -eq 2 ] || { sed -n '5,8p' "$0" >&2; exit 2; }

cmake/dependencies.sh
cmake --preset first >/dev/null
cmake --build --preset first
tessera=build/first/bin/tessera
run=runs/$(date +%Y%m%d-%H%M%S)
mkdir -p "$run"

# questions FOLDER: prints a line of JSONL for each header in it, which asks for the header's library.
questions() {
  (cd "$(dirname "$1")" && find "$(basename "$1")" -name '*.hpp') | LC_ALL=C sort | awk -F / '
    { library = $2; sub(/\.hpp$/, "", library)
      printf "{\"messages\": [{\"role\": \"user\", \"content\": \"Which library is %s of?\"}, ", $0
      printf "{\"role\": \"assistant\", \"content\": \"It is of %s.\"}]}\n", library }'
}

if [ $# -eq 2 ]; then
  model=$1 all=$2 seq_len=1024 steps=300
else
  model=$run/base all=$run/questions.jsonl seq_len=128 steps=800
  questions /usr/include/boost >"$all"
  mkdir "$run/config"
  cp tests/text/tokenizers/qwen.json "$run/config/tokenizer.json"
  echo '{"eos_token": "<|endoftext|>"}' >"$run/config/tokenizer_config.json"
  cat >"$run/config/config.json" <<'END'
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu", "hidden_size": 192, "num_hidden_layers": 4,
 "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 512, "vocab_size": 1216,
 "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": false, "tie_word_embeddings": true}
END
  echo "== a small Qwen3, trained on headers for a minute"
  $tessera train --model "$run/config" --data /usr/include/boost/{algorithm,asio,container,geometry,mpl,spirit} --comm threads:2 \
    --sharding fsdp2 --seq-len 256 --batch-size 16 --steps 300 --lr 4e-3 --warmup 30 --log-every 50 --checkpoint-dir "$run/pretrained"
  $tessera export "$run/pretrained" "$model" --dtype bf16
fi

# Every tenth conversation is held out.
awk -v run="$run" '{ print > (run (NR % 10 ? "/train.jsonl" : "/held_out.jsonl")) }' "$all"
template=(--chat-template auto)
[ $# -eq 2 ] || template=(--chat-template chatml)
conversations=(--data-format chat "${template[@]}" --on-long drop --seq-len $seq_len)
loss_of() {
  $tessera eval "${conversations[@]}" --data "$run/held_out.jsonl" --batch-size 4 "$@" | sed -E 's/.*"loss":([0-9.e+-]+).*/\1/'
}

echo "== LoRA on two ranks: $(wc -l <"$run/train.jsonl") conversations, $(wc -l <"$run/held_out.jsonl") held out"
before=$(loss_of --model "$model")
$tessera train --model "$model" --lora-rank 32 --lora-alpha 64 "${conversations[@]}" --data "$run/train.jsonl" --validation-fraction 0 \
  --comm threads:2 --sharding fsdp2 --precision bf16 --batch-size 8 --steps $steps --lr 3e-3 --warmup 20 --log-every 100 \
  --checkpoint-dir "$run/tuned" --keep 1 --metrics "$run/metrics.jsonl"
$tessera export "$run/tuned" "$run/adapters"
$tessera export "$run/tuned" "$run/merged" --merge --dtype bf16
after=$(loss_of --model "$run/merged")
echo
echo "held-out loss of the answers: $before before, $after after"
echo "adapters  $run/adapters     for PEFT, or with --model $model --adapter $run/adapters"
echo "merged    $run/merged     for transformers, or: $tessera chat --model $run/merged ${template[*]}"
[ $# -eq 0 ] || exit 0

question=$(sed -nE '1s/.*"user", "content": "([^"]*)".*/\1/p' "$run/train.jsonl")
echo
echo "> $question"
echo "$question" | $tessera chat --model "$run/merged" "${template[@]}" --temperature 0 --tokens 40
awk -v a="$before" -v b="$after" 'BEGIN { exit !(b <= 0.8 * a) }' || { echo "the held-out loss did not fall by 20 %" >&2; exit 1; }

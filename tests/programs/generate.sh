#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# generate: the prompt, then so many tokens, the same for a seed and for any number of ranks.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

from=(--model "$golden/llama-gqa" --prompt 'a prompt' --tokens 40 --precision fp32 --threads 1)
write() { tessera generate "${from[@]}" "$@"; }

write --seed 3 && cp "$out" one
[ "$(stat -c %s one)" -eq $((8 + 40 + 1)) ] || fail "$(stat -c %s one) bytes"
[ "$(head -c 8 one)" = 'a prompt' ] || fail "the prompt is not where the text begins"
write --seed 3 && same one "$out"
write --seed 3 --comm threads:2 && same one "$out"
write --seed 3 --comm threads:2 --sharding replicated && same one "$out"
write --seed 4
! cmp -s one "$out" || fail "another seed gave the same text"

write --temperature 0 --seed 3 && cp "$out" likeliest
write --temperature 0 --seed 4 && same likeliest "$out"
tessera generate --model "$golden/llama-odd" --prompt x --tokens 0 --precision bf16
[ "$(stat -c %s "$out")" -eq 2 ] || fail "0 tokens are not 0 bytes"
# A long prompt.
tessera generate --model "$golden/llama-odd" --prompt "$(head -c 300 /dev/zero | tr '\0' x)" --tokens 5 --precision bf16
[ "$(stat -c %s "$out")" -eq 306 ] || fail "a long prompt"

echo "== a batch of ids: the likeliest token after beginnings of the golden windows, each of another length"
beginnings() { python3 -c "
import json, struct, sys
text = open(sys.argv[1] + '/text.bin', 'rb').read()
file = open(sys.argv[1] + '/expected.safetensors', 'rb').read()
size = struct.unpack('<Q', file[:8])[0]
entry = json.loads(file[8:8 + size])['logits']
windows, length, vocabulary = entry['shape']
logits = struct.unpack_from('<%d%s' % (windows * length * vocabulary, {'F32': 'f', 'F64': 'd'}[entry['dtype']]), file,
                            8 + size + entry['data_offsets'][0])
for window in range(windows):
    used = 1 + window * 5 % length
    row = logits[(window * length + used - 1) * vocabulary:][:vocabulary]
    tokens = list(text[window * length:window * length + used])
    print(*tokens, sep=',', end=';')
    print(*tokens, row.index(max(row)), sep=',')" "$1"; }
for model in mistral-window qwen2-yarn qwen3-window llama-llama3 llama-odd; do
  beginnings "$golden/$model" >pairs
  prompts=()
  for prompt in $(cut -d';' -f1 pairs); do prompts+=(--prompt-ids "$prompt"); done
  cut -d';' -f2 pairs >wanted
  for ranks in 1 3; do
    tessera generate --model "$golden/$model" "${prompts[@]}" --tokens 1 --temperature 0 --precision fp32 --comm "threads:$ranks"
    same wanted "$out"
  done
done

echo "== the tokens of transformers (tests/golden/make_tokens.py), one after another"
for model in mistral-window qwen2-yarn qwen3-window llama-llama3; do
  for penalty in 1.0 1.5; do
    grep "^$penalty;" "$golden/$model/tokens.txt" >lines
    cut -d';' -f3 lines >wanted
    mapfile -t prompts < <(cut -d';' -f2 lines)
    for ranks in 1 2 3 4; do
      [ "$penalty" = 1.0 ] || [ "$ranks" -eq 2 ] || continue
      last=(generate --model "$golden/$model" --prompt-ids "${prompts[@]}" --tokens 24 --temperature 0
        --repetition-penalty "$penalty" --precision fp32 --comm "threads:$ranks" --threads 1)
      tessera "${last[@]}"
      same wanted "$out"
      tessera "${last[@]}" --no-cache && same wanted "$out"
    done
  done
done

echo "== several tokens: of a batch as alone, as token by token, and alike on any number of ranks"
ids=(generate --model "$golden/qwen3-window" --precision fp32 --threads 1)
greedy=("${ids[@]}" --temperature 0)
for prompt in 5,6,7,8,9 100 1,2; do
  tessera "${greedy[@]}" --prompt-ids "$prompt" --tokens 12
  cat "$out"
done >alone
[ "$(tr ',' '\n' <alone | wc -l)" -eq $((3 * 12 + 8)) ] || fail "not 12 tokens each"
tessera "${greedy[@]}" --prompt-ids 5,6,7,8,9 100 --prompt-ids 1,2 --tokens 12 --comm threads:2 && same alone "$out"
grown=100
for _ in 1 2 3; do tessera "${greedy[@]}" --prompt-ids "$grown" --tokens 1 && grown=$(cat "$out"); done
[ "$grown" = "$(sed -n 2p alone | cut -d, -f1-4)" ] || fail "token by token: $grown"

tessera "${ids[@]}" --prompt-ids 5,6 7 --tokens 30 --temperature 3 --seed 1 && cp "$out" drawn
! cmp -s <(sed -n 1p drawn | cut -d, -f3-) <(sed -n 2p drawn | cut -d, -f2-) || fail "sequences draw alike"
for ranks in 2 4; do
  tessera "${ids[@]}" --prompt-ids 5,6 7 --tokens 30 --temperature 3 --seed 1 --comm "threads:$ranks" && same drawn "$out"
done
for filter in '--top-k 1' '--top-p 0' '--min-p 1'; do  # each leaves the likeliest
  tessera "${ids[@]}" --prompt-ids 100 --tokens 12 --temperature 3 $filter && same <(sed -n 2p alone) "$out"
done
tessera "${greedy[@]}" --prompt-ids 100 --tokens 12 --repetition-penalty 1000
python3 -c "
tokens = open('$out').read().split(',')
assert len({int(token) for token in tokens}) == 13, tokens"  # of logits above and below 0, none twice

echo "== a sequence ends behind a stop token"
third=$(sed -n 2p alone | cut -d, -f4)
first=$(sed -n 2p alone | cut -d, -f2-4 | tr , '\n' | grep -n "^$third$" | sed -n 1p | cut -d: -f1)  # it may come before
tessera "${greedy[@]}" --prompt-ids 100 --tokens 12 --stop-ids "$third"
[ "$(cat "$out")" = "$(sed -n 2p alone | cut -d, -f"1-$((1 + first))")" ] || fail "--stop-ids $third: $(cat "$out")"

echo "== generation_config.json says what flags do not"
cp -r "$golden/qwen3-window" configured
says() { echo "$1" >configured/generation_config.json; }
at=(generate --model configured --prompt-ids 100 --precision fp32 --threads 1 --tokens 12)
says "{\"do_sample\": false, \"eos_token_id\": [999, $third], \"top_p\": null, \"max_length\": 20}" 2>/dev/null
expect_error '^tessera: configured/generation_config.json: "eos_token_id" names token 999, and the model.s vocabulary has 128 tokens; correct it, or give --stop-ids$' "$program" "${at[@]}"
tessera "${at[@]}" --stop-ids 3  # the file's are not asked
says "{\"do_sample\": false, \"eos_token_id\": [0, $third]}"
tessera "${at[@]}"
[ "$(cat "$out")" = "$(sed -n 2p alone | cut -d, -f"1-$((1 + first))")" ] || fail "eos_token_id $third: $(cat "$out")"
contains "$err" "^tessera: by generation_config.json: temperature 0, stop-ids 0,$third$"
says '{"temperature": 3, "top_k": 1, "min_p": 0.5, "repetition_penalty": 1.0, "eos_token_id": 2}'
tessera "${at[@]}" --stop-ids 3 && same <(sed -n 2p alone) "$out"
contains "$err" 'generation_config.json: temperature 3, top-k 1, min-p 0.5, repetition-penalty 1$'
for wrong in '[]' '{' '{"top_k": "a"}' '{"eos_token_id": ["x"]}' '{"eos_token_id": -1}' '{"top_p": 7}' '{"do_sample": 1}'; do
  says "$wrong"
  expect_error 'configured/generation_config.json' "$program" "${at[@]}"
done

echo "== no longer than the model's positions"
tessera "${ids[@]}" --prompt-ids 1,2,3 --tokens 62  # of 64, the last of which nothing follows
[ "$(tr ',' '\n' <"$out" | wc -l)" -eq 65 ] || fail "not 65 tokens"
expect_error 'more than the 64 positions' "$program" "${ids[@]}" --prompt-ids 1,2,3 --tokens 63

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --sample-prompt: what `generate` writes from the checkpoint of the same step, on any number of ranks; the run stays the same to the bit.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 6000 text.txt
prompt='the rank '
data=(--data text.txt --data-format bytes --model tiny --seq-len 48 --precision fp32 --lr 1e-2 --lr-schedule constant --seed 1
  --validation-every 40 --checkpoint-every 40 --threads 1 --steps 120)
flags=("${data[@]}" --batch-size 4 --validation-fraction 0.1)
samples=(--sample-prompt "$prompt" --sample-tokens 30)

# sampled METRICS STEP: prompt and text of a step's sample.
sampled() { python3 -c "
import json, sys
found = [r for r in map(json.loads, open(sys.argv[1])) if r.get('event') == 'sample' and r['step'] == int(sys.argv[2])]
assert len(found) == 1, found
print(found[0]['prompt'] + found[0]['text'])" "$1" "$2"; }
# as_generated FOLDER METRICS ARG...: the samples of steps 40, 80 and 120 are what generate writes from their checkpoints.
as_generated() {
  local folder=$1 metrics=$2 step
  shift 2
  for step in 40 80 120; do
    tessera generate --model "$folder/step-$(printf %08d "$step")" --temperature 0 --precision fp32 --threads 1 "$@"
    sampled "$metrics" "$step" >sample
    same sample "$out"
  done
}
validations() { grep '"event":"validation"' "$1"; }

for ranks in 1 2; do
  for sharding in fsdp2 zero3; do
    echo "== $ranks ranks, $sharding"
    name=$sharding-$ranks
    stack=(--comm "threads:$ranks" --sharding "$sharding")
    tessera train "${flags[@]}" "${stack[@]}" --checkpoint-dir "$name-without" --metrics "$name-without.jsonl"
    lacks "$name-without.jsonl" '"event":"sample"'
    tessera train "${flags[@]}" "${stack[@]}" "${samples[@]}" --checkpoint-dir "$name" --metrics "$name.jsonl"
    contains "$out" "^step 40  sample: $prompt"
    contains "$out" "^step 120  sample: $prompt"
    as_generated "$name" "$name.jsonl" --prompt "$prompt" --tokens 30
    for each in "$name-without" "$name"; do
      steps "$each.jsonl" >"$each.steps"
      validations "$each.jsonl" >"$each.validations"
    done
    same "$name-without.steps" "$name.steps"
    same "$name-without.validations" "$name.validations"
    same "$name-without/step-00000120/model.safetensors" "$name/step-00000120/model.safetensors"
  done
done

sampled fsdp2-1.jsonl 120 >last
[ "$(tail -c +10 last | fold -w 1 | sort -u | wc -l)" -ge 6 ] || fail "the last sample says too little to compare: $(cat last)"

echo "== micro-batches of two sequences in tiles, recomputed, whole blocks in a unit"
other=(--grad-accum 2 --tiling tokens:16 --recompute --blocks-per-unit 2 --comm threads:2)
tessera train "${data[@]}" --batch-size 8 --validation-fraction 0.1 "${other[@]}" "${samples[@]}" --checkpoint-dir tiled --metrics tiled.jsonl
as_generated tiled tiled.jsonl --prompt "$prompt" --tokens 30

echo "== resumed: the same steps, and no word of a flag that changes nothing"
tessera train "${flags[@]}" --sample-prompt x --sample-tokens 5 --resume fsdp2-1-without/step-00000040 --checkpoint-dir rest --metrics rest.jsonl --comm threads:1
lacks "$out" 'resumed: --sample'
steps rest.jsonl >rest.steps
steps fsdp2-1.jsonl 41 >last.steps
same last.steps rest.steps

echo "== nothing is held out: samples all the same"
tessera train "${data[@]}" --batch-size 4 --validation-fraction 0 "${samples[@]}" --checkpoint-dir none --metrics none.jsonl
for step in 40 80 120; do sampled none.jsonl $step >/dev/null; done

echo "== text by a tokenizer, up to the end of a document"
mkdir tok
cp "$golden/../text/tokenizers/qwen.json" tok/tokenizer.json
echo '{"eos_token": "<|endoftext|>"}' >tok/tokenizer_config.json
python3 -c "
import json
for i in range(300): print(json.dumps({'text': 'one two three'}))" >documents.jsonl
tessera train --data documents.jsonl --tokenizer tok --model tiny --vocab 2000 --seq-len 32 --batch-size 4 --precision fp32 --lr 1e-2 --lr-schedule constant --seed 1 --threads 1 \
  --steps 200 --sample-prompt one --sample-tokens 20 --metrics ends.jsonl
sampled ends.jsonl 200 >ends
echo 'one two three' >wanted
same wanted ends

echo "== conversations: what chat answers"
cp -r "$golden/../text/chat" model
cp tok/* model
question='What is 3 + 4?'
tessera train --model model --data model/chats.jsonl --data-format chat --precision fp32 --validation-fraction 0 --lr-schedule constant --threads 1 \
  --seq-len 300 --batch-size 10 --steps 60 --lr 1e-2 --checkpoint-dir tuned --sample-prompt "$question" --sample-tokens 40 --metrics chat.jsonl --comm threads:2
sampled chat.jsonl 60 >answer
echo "$question" >lines
tessera chat --model tuned/step-00000060 --temperature 0 --tokens 40 --precision fp32 --threads 1 <lines
sed -i 's/ \.\.\.$//' "$out"  # behind an answer of the most tokens
(printf %s "$question"; cat "$out") >wanted
same wanted answer

echo "== the dry run"
tessera train "${flags[@]}" "${samples[@]}" --dry-run

echo "== refused"
refuse() {
  local pattern=$1
  shift
  expect_error "$pattern" "$program" train "${flags[@]}" --checkpoint-dir never "$@"
}
refuse '--sample-tokens is the length of samples, and none are written' --sample-tokens 5
refuse '--sample-tokens 64 leave no room for a prompt in --seq-len 48' --sample-prompt x
refuse '--sample-prompt has 19 tokens, and --seq-len 48 leaves 18 beside --sample-tokens 30; take a shorter prompt' --sample-prompt 0123456789012345678 --sample-tokens 30
refuse '--sample-prompt has 19 tokens' --sample-prompt 0123456789012345678 --sample-tokens 30 --comm threads:2
refuse '--sample-prompt is read as bytes, and the model knows 300 tokens' "${samples[@]}" --vocab 300

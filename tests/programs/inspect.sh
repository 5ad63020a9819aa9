#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inspect: what it tells of a model's folder, a checkpoint and a directory of checkpoints, and everything wrong with them.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

model=$golden/qwen3-window
tessera train --data "$model/text.bin" --seq-len 17 --precision fp32 --threads 1 --batch-size 6 --validation-fraction 0 \
  --model "$model" --steps 3 --checkpoint-dir saved --checkpoint-every 1
tessera export saved/step-00000003 shards --dtype bf16 --shard-bytes 9000

inspected() { tessera inspect "$1"; [ ! -s "$err" ] || fail "says more"; }
# unsound FOLDER PATTERN...: ends with status 2; each pattern is that of a problem, and there are no others.
unsound() {
  ends_with 2 "^tessera: inspect: $1 has problems; stdout lists them\$" "$program" inspect "$1"
  [ "$(grep -c '^problem   ' "$out")" -eq $(($# - 1)) ] || fail "not $(($# - 1)) problems"
  lacks "$out" '^problems  none$'
  for pattern in "${@:2}"; do contains "$out" "^problem   .*$pattern"; done
}
flip() { python3 - "$1" "$2" <<'PY'
import sys
with open(sys.argv[1], 'r+b') as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0] ^ 16
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte]))
PY
}

echo "== a checkpoint, and a model in shards"
inspected saved/step-00000003
for line in '^file      optimizer.safetensors, ' '^model     qwen3: .*sliding_window 5, full_layers 1, untied head, RoPE default$' \
  '^trained   3 steps, 306 tokens$' '^problems  none$' '^training  .* on each of 8 ranks'; do contains "$out" "$line"; done
inspected shards
contains "$out" '^weights   [0-9]+ tensors in [0-9]+ files, [0-9]+ elements of BF16$'

echo "== a directory of checkpoints"
inspected saved
contains "$out" '^folder    saved, 3 checkpoints$'
same <(sed -n '2,7p' "$out") <(for step in 3 2 1; do
  echo "step      saved/step-0000000$step"
  echo "trained   $step steps, $((102 * step)) tokens"
done)
contains "$out" '^problems  none$'
for command in "eval --data $model/text.bin --seq-len 17" "generate --prompt-ids 1 --tokens 2 --temperature 0"; do  # take its newest
  # shellcheck disable=SC2086
  tessera $command --precision fp32 --model saved/step-00000003
  mv "$out" newest
  # shellcheck disable=SC2086
  tessera $command --precision fp32 --model saved
  contains "$err" '^tessera: --model saved: uses saved/step-00000003, its newest checkpoint$'
  same newest "$out"
done
expect_error 'model.safetensors: is a file; give the folder that holds it' "$program" generate --prompt-ids 1 \
  --tokens 2 --model saved/step-00000003/model.safetensors
inspected saved
contains "$out" '^ +tessera inspect saved/step-00000003 tells of its model and what it takes to train$'
cp -r saved mixed
flip mixed/step-00000002/optimizer.safetensors 70000
rm mixed/step-00000001/model.safetensors
unsound mixed 'mixed/step-00000002/optimizer.safetensors: bytes 65536 to [0-9]+ are not those that were written' \
  'mixed/step-00000001/model.safetensors: cannot be opened: No such file'
same <(grep -A1 '^step' "$out" | cut -d: -f1) <(cat <<'LINES'
step      mixed/step-00000003
trained   3 steps, 306 tokens
step      mixed/step-00000002
problem   mixed/step-00000002/optimizer.safetensors
step      mixed/step-00000001
problem   mixed/step-00000001/model.safetensors
LINES
)
rm -r mixed/step-00000003
unsound mixed 'step-00000002/optimizer' 'step-00000001/model'
contains "$err" 'warning: mixed/latest names step-00000003; the newest checkpoint there is step-00000002'

echo "== data that is not what was written"
for damage in model.safetensors:20000 model.safetensors:30 optimizer.safetensors:100000 trainer.json:20 config.json:20; do
  rm -rf bad
  cp -r saved/step-00000003 bad
  flip "bad/${damage%:*}" "${damage#*:}"
  timeout "$limit" "$program" inspect bad >"$out" 2>"$err" && fail "$damage is sound"
  contains "$out" "^problem   bad/${damage%:*}: bytes [0-9]+ to [0-9]+ are not those that were written"
done
for file in optimizer.safetensors trainer.json; do
  rm -rf bad
  cp -r saved/step-00000003 bad
  truncate -s -1 bad/$file
  unsound bad "bad/$file: [0-9]+ bytes where manifest.json tells of [0-9]+; it was cut short"
done
rm -rf bad
cp -r saved/step-00000003 bad
flip bad/manifest.json 200
unsound bad 'bad/manifest.json: is not what was written: its own checksum differs'

echo "== shards that are missing or cut short, a config of another family, nothing"
cp -r shards wrong
rm wrong/model-00002-*
sed -i 's/"qwen3"/"gemma3"/' wrong/config.json
unsound wrong '"model_type" is "gemma3"' 'of which 1 is missing: model-00002-'
rm -r wrong
cp -r shards wrong
truncate -s -1 wrong/model-00003-*
unsound wrong 'wrong/model-00003-of-[0-9]+.safetensors: its tensors take .*; it was cut short'
truncate -s 25000001 wrong/model.safetensors.index.json
unsound wrong 'wrong/model.safetensors.index.json: 25000001 bytes; at most 25000000 are read'
mkdir empty
unsound empty 'empty/config.json: no such file'
lacks "$out" '^weights   none'  # there is no model to start
expect_error 'nowhere: no such folder' "$program" inspect nowhere
expect_error 'nowhere: no such folder' "$program" eval --model nowhere --data "$model/text.bin"

expect_error '^tessera: shards/config.json: is a file; give the folder that holds it$' "$program" inspect shards/config.json

echo "== values that are not finite, unless --quick"
# spoil FILE TENSOR INDEX VALUE: writes a float there.
spoil() { python3 - "$@" <<'PY'
import json, struct, sys
with open(sys.argv[1], 'r+b') as file:
    length, = struct.unpack('<Q', file.read(8))
    begin = json.loads(file.read(length))[sys.argv[2]]['data_offsets'][0]
    file.seek(8 + length + begin + 4 * int(sys.argv[3]))
    file.write(struct.pack('<f', float(sys.argv[4])))
PY
}
rm -rf bad
mkdir -p bad steps/step-00000003
cp saved/step-00000003/{config.json,model.safetensors} bad
spoil bad/model.safetensors model.norm.weight 5 nan
spoil bad/model.safetensors lm_head.weight 77 -inf
values=('model.safetensors: model.norm.weight\[5\] is nan; no run can use it' 'model.safetensors: lm_head.weight\[77\] is -inf; no run')
unsound bad "${values[@]}"
tessera inspect bad --quick
contains "$out" '^values    not read, since --quick$'
contains "$out" '^problems  none$'
cp saved/step-00000003/{trainer.json,optimizer.safetensors} bad
spoil bad/optimizer.safetensors model.norm.weight.exp_avg 1 inf
values+=('optimizer.safetensors: model.norm.weight.exp_avg\[1\] is inf' 'its manifest.json: no such file')
unsound bad "${values[@]}"
cp bad/* steps/step-00000003
unsound steps "${values[@]}"

rm -r bad && mkdir bad
cp saved/step-00000003/{config.json,model.safetensors} bad
python3 - bad/model.safetensors <<'PY'
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
length, = struct.unpack('<Q', data[:8])
header = json.loads(data[8:8 + length])
end = max(entry['data_offsets'][1] for name, entry in header.items() if name != '__metadata__')
header['model.layers.0.self_attn.rotary_emb.inv_freq'] = {'dtype': 'F32', 'shape': [1], 'data_offsets': [end, end + 4]}
text = json.dumps(header).encode()
text += b' ' * (-len(text) % 8)
open(sys.argv[1], 'wb').write(struct.pack('<Q', len(text)) + text + data[8 + length:] + struct.pack('<f', float('nan')))
PY
tessera inspect bad  # frequencies that old files hold are not read
contains "$out" '^problems  none$'

echo "== the tokenizer, and files that runs would take along"
inspected shards
contains "$out" '^tokenizer none: text takes --tokenizer, or is read as bytes if the vocabulary is small$'
cp -r shards wrong2
touch wrong2/tokenizer.model
unsound wrong2 'wrong2: holds tokenizer.model but no tokenizer.json, which is read; save it with the fast tokenizer'
cp "$golden/../text/tokenizers/qwen.json" wrong2/tokenizer.json
ln -s nowhere wrong2/merges.txt
unsound wrong2 'wrong2/tokenizer.json has token ids up to 1201, and the model knows 128' 'wrong2/merges.txt: cannot be opened: it is a broken symbolic link to nowhere; if it was downloaded, download the folder again$'
rm wrong2/merges.txt
echo '{' >wrong2/tokenizer.json
echo '{"eos_token_id": 128}' >wrong2/generation_config.json
unsound wrong2 'wrong2/tokenizer.json: not valid JSON' 'wrong2/generation_config.json: "eos_token_id" names token 128, and the model.s vocabulary has 128'
echo '{"temperature": -1}' >wrong2/generation_config.json
unsound wrong2 'wrong2/tokenizer.json: not valid JSON' 'wrong2/generation_config.json says temperature -1: --temperature -1 must be at least 0'

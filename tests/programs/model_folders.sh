#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Folders of Hugging Face's form: weights in shards behind links, folders without weights, and what is wrong with them.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

# shards FOLDER FILES OUT: a model folder whose weights are cut into so many files, with an index.
shards() { python3 - "$@" <<'PY'
import json, pathlib, struct, sys
folder, count, out = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
out.mkdir()
(out / 'config.json').write_text((folder / 'config.json').read_text())
data = (folder / 'model.safetensors').read_bytes()
length, = struct.unpack('<Q', data[:8])
header, body = json.loads(data[8:8 + length]), data[8 + length:]
header.pop('__metadata__', None)
names, index = sorted(header), {}
for i in range(count):
    entries, blob = {}, b''
    for name in names[i::count]:
        begin, end = header[name]['data_offsets']
        entries[name] = {**header[name], 'data_offsets': [len(blob), len(blob) + end - begin]}
        blob += body[begin:end]
        index[name] = f'model-{i + 1:05d}-of-{count:05d}.safetensors'
    text = json.dumps(entries).encode()
    (out / f'model-{i + 1:05d}-of-{count:05d}.safetensors').write_bytes(struct.pack('<Q', len(text)) + text + blob)
(out / 'model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': index}))
PY
}
flags=(--data "$golden/qwen3-window/text.bin" --seq-len 17 --precision fp32 --threads 1)
train() { tessera train "${flags[@]}" --batch-size 6 --validation-fraction 0 --lr 1e-3 --lr-schedule constant "$@"; }

echo "== shards, behind the links of the hub's cache"
train --model "$golden/qwen3-window" --steps 3 --metrics whole.jsonl --comm threads:2
shards "$golden/qwen3-window" 3 blobs
mkdir snapshot
for file in blobs/*; do ln -s "../$file" snapshot/; done
train --model snapshot --steps 3 --metrics shards.jsonl --comm threads:2
same <(steps whole.jsonl) <(steps shards.jsonl)

echo "== a fresh start of --resume auto takes the folder's weights"
train --model snapshot --steps 3 --metrics auto.jsonl --comm threads:2 --checkpoint-dir saved --resume auto
contains "$out" '^--resume auto: saved holds no checkpoint; a fresh start$'
same <(steps whole.jsonl) <(steps auto.jsonl)
tessera eval "${flags[@]}" --model saved/step-00000003

echo "== random weights"
train --model snapshot --from-scratch --steps 1 --metrics scratch.jsonl
contains "$out" '^weights   random, since --from-scratch leaves those of snapshot$'
mkdir bare
cp blobs/config.json bare
train --model bare --steps 1 --metrics bare.jsonl
contains "$out" '^weights   random, since bare holds none$'
same <(steps scratch.jsonl) <(steps bare.jsonl)
[ "$(steps bare.jsonl)" != "$(sed -n 1p <<<"$(steps whole.jsonl)")" ] || fail "random weights are those of the folder"
expect_error 'bare: holds neither model.safetensors nor model.safetensors.index.json' "$program" eval "${flags[@]}" --model bare
expect_error '--from-scratch starts anew, and --resume saved goes on; leave one of them out' "$program" train "${flags[@]}" \
  --model snapshot --from-scratch --resume saved

echo "== what is wrong is named, and nothing hangs"
bad() { expect_error "$1" "$program" train "${flags[@]}" --model bad --comm threads:3 --batch-size 6 --steps 1; }
cp -rL snapshot bad
rm bad/model-00002-of-00003.safetensors
bad 'bad/model.safetensors.index.json: names 3 files, of which 1 is missing: model-00002-of-00003.safetensors'
cp bad/model-00001-of-00003.safetensors bad/model-00002-of-00003.safetensors
bad 'model-00002-of-00003.safetensors, which does not hold it'
sed -i 's#"model-00002-of#"../model-00002-of#' bad/model.safetensors.index.json
bad 'an index may name files of its own folder alone'
for change in 's/"qwen3"/"gemma3"/;"model_type" is "gemma3"; llama, mistral, qwen2 and qwen3 are supported' \
  's/"silu"/"gelu"/;"hidden_act" is "gelu"' 's/"head_dim": 8/"head_dim": 10/;has shape .* where the model has' \
  's/"rope_type": "default"/"rope_type": "longrope"/;the RoPE type "longrope" is not known'; do
  rm -rf bad
  cp -rL snapshot bad
  sed -i "${change%%;*}" bad/config.json
  bad "${change#*;}"
done

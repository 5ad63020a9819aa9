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
beside='^tessera: --model bare holds no weights, and adapters would be trained beside random ones; give a folder with weights, or --from-scratch$'
for how in "--lora-rank 2" "--lora-rank 2 --comm threads:2 --checkpoint-dir new --resume auto"; do
  refused "$beside" "$program" train "${flags[@]}" --batch-size 6 --model bare --steps 1 $how
done
tessera train "${flags[@]}" --model bare --lora-rank 2 --dry-run
contains "$err" '^tessera: --model bare holds no weights, and this plan needs its config.json alone; training adapters needs them, or --from-scratch$'
contains "$out" '^trains [0-9,]+ of [0-9,]+ parameters$'
train --model bare --lora-rank 2 --from-scratch --steps 1 --checkpoint-dir adapted
contains "$out" '^model .* parameters \([0-9]+ trained\)'
rm -r adapted/step-00000001/model.safetensors
expect_error 'adapted/step-00000001: holds optimizer.safetensors but no model.safetensors' "$program" train "${flags[@]}" --batch-size 6 \
  --model adapted/step-00000001 --steps 1

echo "== weights in a form that is not read: no command takes the folder for one without weights"
# unread SENTENCE: of the folder `unread`, by every command; --from-scratch alone takes it.
unread() {
  expect_error "^tessera: unread: $1.* takes --from-scratch" "$program" train "${flags[@]}" --batch-size 6 --steps 1 --model unread
  for command in "train --batch-size 6 --steps 1" "train --batch-size 6 --steps 1 --lora-rank 2 --comm threads:2" "train --dry-run" \
    "train --dry-run --lora-rank 2" eval; do
    expect_error "^tessera: unread: $1" "$program" $command "${flags[@]}" --model unread
  done
  expect_error "^tessera: unread: $1" "$program" generate --model unread --prompt-ids 1 --tokens 1 --precision fp32
  expect_error "^tessera: unread: $1" "$program" export unread new
  expect_end 2 '^tessera: inspect: unread has problems' "$program" inspect unread
  contains "$out" "^problem   unread: $1"
  lacks "$out" '^(problems  none|weights   none)'
  train --model unread --from-scratch --steps 1 --metrics "unread$((++unread)).jsonl"
  same <(steps scratch.jsonl) <(steps "unread$unread.jsonl")
}
unread=0
cp -rL snapshot unread
rm unread/model.safetensors.index.json
unread 'holds model-00001-of-00003.safetensors but no model.safetensors.index.json, which says what is in the shards; download that, too'
rm unread/model-0*
printf 'PK\3\4' >unread/pytorch_model.bin
unread 'holds pytorch_model.bin, a form of weights that is not read; download model.safetensors, or convert it'
rm unread/pytorch_model.bin
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' >unread/model.safetensors
expect_error 'unread/model.safetensors: is a Git LFS pointer.*by `git lfs pull`' "$program" eval "${flags[@]}" --model unread
cp unread/model.safetensors unread/config.json
expect_error 'unread/config.json: is a Git LFS pointer' "$program" eval "${flags[@]}" --model unread

echo "== a tied head that is not the embedding: no command drops it"
# head FACTOR: the folder `tied`, whose head is the embedding times that, and config.json ties both.
head() { rm -rf tied && python3 - "$golden/llama-gqa" tied "$1" <<'PY'
import array, json, pathlib, struct, sys
folder, out, factor = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
data = (folder / 'model.safetensors').read_bytes()
length, = struct.unpack('<Q', data[:8])
header = json.loads(data[8:8 + length])
(begin, end), (at, to) = ((8 + length + offset for offset in header[name]['data_offsets']) for name in ('model.embed_tokens.weight', 'lm_head.weight'))
head = array.array('f', (factor * value for value in array.array('f', data[begin:end]))).tobytes()
out.mkdir()
(out / 'model.safetensors').write_bytes(data[:at] + head + data[to:])
(out / 'config.json').write_text(json.dumps(json.loads((folder / 'config.json').read_text()) | {'tie_word_embeddings': True}))
PY
}
head 1
tessera eval "${flags[@]}" --model tied
[ ! -s "$err" ] || fail "says more of an equal copy"
cp "$out" of_tied
tessera inspect tied
contains "$out" '^problems  none$'
head 1.5
differs='^tessera: tied/model.safetensors: lm_head.weight\[0\] is [-0-9.e]+ and model.embed_tokens.weight\[0\] is [-0-9.e]+; the config ties them, .*Set "tie_word'
for command in "train --batch-size 6 --steps 1" "train --dry-run" eval; do refused "$differs" "$program" $command "${flags[@]}" --model tied; done
expect_error "$differs" "$program" generate --model tied --prompt-ids 1 --tokens 1 --precision fp32
expect_error "$differs" "$program" export tied new
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' tied/config.json
tessera eval "${flags[@]}" --model tied
! cmp -s "$out" of_tied || fail "the head is the embedding"

echo "== a file in place of a folder, and adapters beside a model"
for command in "eval ${flags[*]} --model tied/config.json" "train ${flags[*]} --dry-run --model tied/config.json" "export tied/config.json new"; do
  refused '^tessera: tied/config.json: is a file; give the folder that holds it$' "$program" $command
done
echo '{}' >tied/adapter_config.json
tessera eval "${flags[@]}" --model tied
contains "$err" '^tessera: warning: tied: holds adapters as well, which are not read; name them by --adapter$'

echo "== more shards than files that may be open"
shards "$golden/qwen3-window" 20 many
(ulimit -S -n 40 && train --model many --steps 1 --comm threads:3)
(ulimit -n 40 && expect_error 'cannot be opened: Too many open files; .ulimit -n. says how many one process may hold open: raise it, or take fewer' \
  "$program" eval "${flags[@]}" --model many --comm threads:3)
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

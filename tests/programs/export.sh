#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# export: what is written, to the byte, and what is refused.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

# tensors FOLDER: every tensor of its safetensors with type, shape and a digest of its bytes, sorted by name.
tensors() { python3 -c "
import glob, hashlib, json, struct, sys
lines = []
for path in glob.glob(sys.argv[1] + '/model*.safetensors'):
    data = open(path, 'rb').read()
    length, = struct.unpack('<Q', data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    assert header.pop('__metadata__', {'format': 'pt'}) == {'format': 'pt'}
    for name, t in header.items():
        begin, end = t['data_offsets']
        lines.append(f\"{name} {t['dtype']} {t['shape']} {hashlib.sha1(body[begin:end]).hexdigest()}\")
print('\n'.join(sorted(lines)))" "$1"; }

model=$golden/qwen3-window
flags=(--data "$model/text.bin" --data-format bytes --seq-len 17 --precision fp32 --threads 1)
train() { tessera train "${flags[@]}" --batch-size 6 --validation-fraction 0 --lr 1e-3 --lr-schedule constant "$@"; }

echo "== a checkpoint, exported and read again, is the same to the byte"
train --model "$model" --steps 2 --checkpoint-dir saved --comm threads:2
echo '{"eos_token_id": 7}' >generation_config.json
mkdir tokenizer
echo '{}' >tokenizer/tokenizer.json
mv generation_config.json tokenizer
tessera export saved whole --files-from tokenizer
contains "$out" '^exported saved/step-00000002 to whole: [0-9.]+ KiB of f32 in 1 file; with generation_config.json, tokenizer.json$'
same <(tensors saved/step-00000002) <(tensors whole)
cmp tokenizer/tokenizer.json whole/tokenizer.json || fail "the tokenizer is another"
contains whole/config.json '"model_type": "qwen3"'
tessera export whole again
same <(tensors whole) <(tensors again)
cmp whole/config.json again/config.json || fail "config.json is another"

echo "== checkpoints carry what the model's folder holds besides, and so do those of a run that goes on"
cp -r "$model" full
cp tokenizer/* full
echo '#version: 0.2' >full/merges.txt
ln -s nowhere full/vocab.json
train --model full --steps 1 --checkpoint-dir carried --comm threads:2
contains "$err" '^tessera: warning: full/vocab.json: cannot be opened: it is a broken symbolic link to nowhere; if it was downloaded, download the folder again; it is left out of checkpoints$'
rm -r full
echo '{"eos_token_id": 8}' >tokenizer/generation_config.json
train --model "$model" --steps 2 --checkpoint-dir carried --resume carried
tessera export carried/step-00000002 carried-on --files-from tokenizer
contains "$out" 'with generation_config.json, merges.txt, tokenizer.json$'
contains carried-on/generation_config.json '8'
contains carried/step-00000002/generation_config.json '7'
same carried-on/merges.txt carried/step-00000001/merges.txt
echo '{}  ' >carried/step-00000001/tokenizer.json
expect_error 'carried/step-00000001/tokenizer.json: 5 bytes where manifest.json tells of 3' "$program" export \
  carried/step-00000001 new
rm carried/step-00000001/tokenizer.json
expect_error 'carried/step-00000001/tokenizer.json: no such file' "$program" export carried/step-00000001 new

echo "== other types, in shards"
for dtype in bf16 f16; do
  tessera export saved/step-00000002 $dtype --dtype $dtype --shard-bytes 9000
  [ "$(find $dtype -name 'model-0000?-of-0000?.safetensors' | wc -l)" -gt 2 ] || fail "not in shards"
  contains $dtype/config.json '"torch_dtype": "(bfloat16|float16)"'
  tessera export $dtype $dtype-whole --dtype $dtype
  same <(tensors $dtype) <(tensors $dtype-whole)
  tessera export $dtype $dtype-f32
  tessera export $dtype-f32 $dtype-again --dtype $dtype
  same <(tensors $dtype) <(tensors $dtype-again)
  train --model $dtype --steps 1
  python3 - $dtype <<'PY'
import json, os, sys
index = json.load(open(sys.argv[1] + '/model.safetensors.index.json'))
bytes = os.path.getsize(sys.argv[1] + '-whole/model.safetensors')
assert 0.5 * bytes < index['metadata']['total_size'] < bytes, (index['metadata'], bytes)
assert len(set(index['weight_map'].values())) > 2
PY
done

echo "== tensors of more than a piece, 1 Mi elements, rounded as python rounds"
python3 - "$model" many <<'PY'
import array, json, pathlib, random, struct, sys
folder, out = map(pathlib.Path, sys.argv[1:])
data = (folder / 'model.safetensors').read_bytes()
length, = struct.unpack('<Q', data[:8])
header, body = json.loads(data[8:8 + length]), data[8 + length:]
header.pop('__metadata__', None)
entries, blob = {}, b''
for name, entry in header.items():
    begin, end = entry['data_offsets']
    content, shape = body[begin:end], entry['shape']
    if name in ('model.embed_tokens.weight', 'lm_head.weight'):
        shape = [50000, shape[1]]
        bytes = 4 * shape[0] * shape[1]
        words = array.array('I', random.Random(name).getrandbits(8 * bytes).to_bytes(bytes, 'little'))
        content = array.array('I', ((w & 0x8fffffff) + 0x30000000 for w in words)).tobytes()  # 2^-31 to 2^1
    entries[name] = {**entry, 'shape': shape, 'data_offsets': [len(blob), len(blob) + len(content)]}
    blob += content
out.mkdir()
text = json.dumps(entries).encode()
(out / 'model.safetensors').write_bytes(struct.pack('<Q', len(text)) + text + blob)
config = json.loads((folder / 'config.json').read_text())
(out / 'config.json').write_text(json.dumps({**config, 'vocab_size': 50000}))
PY
for dtype in f32 bf16 f16; do tessera export many many-$dtype --dtype $dtype; done
same <(tensors many) <(tensors many-f32)
python3 - <<'PY' || fail "rounded to another number"
import array, json, struct
def embedding(folder):
    data = open(folder + '/model.safetensors', 'rb').read()
    length, = struct.unpack('<Q', data[:8])
    begin, end = json.loads(data[8:8 + length])['model.embed_tokens.weight']['data_offsets']
    return data[8 + length + begin:8 + length + end]
exact = embedding('many')
assert len(exact) > 4 << 20
assert embedding('many-f16') == struct.pack(f'<{len(exact) // 4}e', *array.array('f', exact))
words = array.array('I', exact)
assert embedding('many-bf16') == array.array('H', (w + 0x7fff + (w >> 16 & 1) >> 16 for w in words)).tobytes()
PY

echo "== the folder to make: its parents are made, a slash behind its name does no harm"
tessera export "$model" made/for/it/
contains "$out" ' to made/for/it/: '
same <(tensors "$model") <(tensors made/for/it)
[ "$(find made | wc -l)" -eq 5 ] || fail "made holds $(find made)"

if command -v script >/dev/null; then
  echo "== on a terminal, how much is written, until it is"
  TERM=xterm timeout "$limit" script -qec "$program export $model terminal" /dev/null </dev/null >"$out"
  contains "$out" $'\rwriting [0-9.]+ [KMGi]+B of 65.09 KiB, [0-9]+ %'
  contains "$out" $'65.09 KiB, 100 %\r +\rexported '
else
  echo "skipped: a terminal (no script(1))"
fi

echo "== what is refused, and leaves nothing"
before=$(listing)
expect_error 'whole: is there already; give a new name, or remove it' "$program" export saved whole
for there in whole/ . ./ link; do
  [ -L link ] || { ln -s nowhere link && before=$(listing); }
  expect_error "^tessera: $there: is there already; give a new name, or remove it\$" "$program" export saved $there
done
touch file && before=$(listing)
expect_error 'file/below: cannot be created: Not a directory' "$program" export saved file/below/new
expect_error 'dtype f8 is not known' "$program" export saved new --dtype f8
expect_error 'nowhere: .*' "$program" export nowhere new
expect_error 'export: give a checkpoint and the folder to make' "$program" export saved
expect_error 'tokens: no such folder' "$program" export saved new --files-from tokens
mkdir empty && before=$(listing)
expect_error 'empty: neither a model.s folder, with config.json, nor a directory with a complete checkpoint' "$program" export empty new
[ "$before" == "$(listing)" ] || fail "something was left"
cp -r saved/step-00000002 damaged
printf 'x' | dd of=damaged/model.safetensors bs=1 seek=20000 conv=notrunc status=none
expect_error 'damaged/model.safetensors: bytes .* are not those that were written' "$program" export damaged below/new
truncate -s -1 damaged/model.safetensors
expect_error 'damaged/model.safetensors: [0-9]+ bytes where manifest.json tells of [0-9]+; it was cut short' \
  "$program" export damaged below/new
cp -r bf16 damaged-shard
truncate -s -1 damaged-shard/model-00002-*
expect_error 'damaged-shard/model-00002-of-[0-9]+.safetensors: its tensors take .* it was cut short' \
  "$program" export damaged-shard below/new
ln -s nowhere tokenizer/merges.txt
expect_error 'tokenizer/merges.txt: cannot be opened: it is a broken symbolic link' "$program" export whole below/new --files-from tokenizer
python3 - whole large <<'PY'
import json, pathlib, shutil, struct, sys
shutil.copytree(sys.argv[1], sys.argv[2])
path = pathlib.Path(sys.argv[2], 'model.safetensors')
data = bytearray(path.read_bytes())
length, = struct.unpack('<Q', data[:8])
at = 8 + length + json.loads(data[8:8 + length])['model.norm.weight']['data_offsets'][0]
data[at:at + 4] = struct.pack('<f', 1e6)
path.write_bytes(data)
PY
expect_error 'tensor "model.norm.weight" holds 1e\+06, too large for f16; take bf16 or f32' "$program" export large new --dtype f16
python3 - large <<'PY'
import json, pathlib, struct, sys
path = pathlib.Path(sys.argv[1], 'model.safetensors')
data = bytearray(path.read_bytes())
length, = struct.unpack('<Q', data[:8])
at = 8 + length + json.loads(data[8:8 + length])['model.norm.weight']['data_offsets'][0]
data[at + 8:at + 12] = struct.pack('<f', float('nan'))
path.write_bytes(data)
PY
for dtype in f32 bf16; do
  expect_error '^tessera: large/model.safetensors: model.norm.weight\[2\] is nan; no run can use it' \
    "$program" export large new --dtype $dtype --shard-bytes 9000
done
[ ! -e new ] && ! ls -d new.tmp-* 2>/dev/null || fail "something was left"

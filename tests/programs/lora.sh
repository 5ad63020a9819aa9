#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adapters: trained as PEFT trains them under every strategy, read and written as PEFT's folders, merged, and refused where
# they do not fit.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

cp -r "$golden/../text/chat" model
cp -r "$golden/../text/lora" peft
cp "$golden/../text/tokenizers/qwen.json" model/tokenizer.json
echo '{"eos_token": "<|endoftext|>"}' >model/tokenizer_config.json
answers=(--data model/chats.jsonl --data-format chat --threads 1)
flags=(--model model "${answers[@]}" --validation-fraction 0 --lr-schedule constant)
size=(--seq-len 300 --batch-size 6)
losses() { steps metrics.jsonl 1 | cut -d ' ' -f 2; }
train() {
  rm -f metrics.jsonl
  tessera train "${flags[@]}" "$@" --metrics metrics.jsonl
}
# loss_of MODEL...: over all answers.
loss_of() {
  tessera eval "${answers[@]}" --seq-len 360 --precision fp32 "$@"
  python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['loss'])" "$out"
}

echo "== losses of PEFT's loop, whatever cuts a step"
same_as_peft() {
  train --adapter peft/all --precision fp32 --steps 8 --lr 1e-2 "$@"
  losses >losses
  close losses peft/losses.txt 1e-6
}
same_as_peft --seq-len 360 --batch-size 8
same_as_peft --seq-len 360 --batch-size 8 --grad-accum 4 --tiling tokens:100 --recompute
same_as_peft --seq-len 300 --batch-size 9 --grad-accum 3 --comm threads:3 --sharding zero3 --tiling tiles:2
loss_of --model model --adapter peft/some >loss
close loss peft/some.txt 1e-6

echo "== every strategy, tiled and recomputed, with dropout: the same to the bit on as many ranks"
for precision in fp32 bf16; do
  rm -f first
  for how in "fsdp2 --tiling off" "zero3 --recompute" "fsdp2:no-reshard --tiling tiles:3" "zero1 --recompute --tiling tiles:2" "zero2" "hybrid:1" \
    "replicated --recompute"; do
    train --lora-rank 3 --lora-targets q_proj,mlp.* --lora-dropout 0.2 --precision $precision "${size[@]}" --steps 3 --lr 1e-2 \
      --comm threads:2 --sharding $how
    losses >losses
    [ -e first ] || cp losses first
    case $how in *tiles* | *recompute*) close losses first 2e-3 ;; *) same losses first ;; esac
  done
done
train --lora-rank 3 --lora-dropout 0.2 --precision fp32 "${size[@]}" --steps 3 --lr 1e-2
losses >one
for cut in "--comm threads:3" "--grad-accum 3" "--comm threads:2 --grad-accum 3 --tiling tiles:2 --recompute"; do
  train --lora-rank 3 --lora-dropout 0.2 --precision fp32 "${size[@]}" --steps 3 --lr 1e-2 $cut
  losses >losses
  close losses one 1e-5
done
train --lora-rank 3 --precision fp32 "${size[@]}" --steps 3 --lr 1e-2
losses >losses
! cmp -s losses one || fail "dropout leaves nothing out"
for rate in 0 0.2; do  # this seed's key of the noise is 0, which stands for none elsewhere
  train --lora-rank 3 --lora-dropout $rate "${size[@]}" --steps 3 --lr 1e-2 --seed 7046029254386353131
  losses >"rate_$rate"
done
! cmp -s rate_0 rate_0.2 || fail "a seed without dropout"

echo "== a step's first loss is the base's to the bit, since B begins at zero"
for precision in fp32 bf16; do
  train --precision $precision "${size[@]}" --steps 1
  losses >base
  train --lora-rank 7 --lora-rslora --precision $precision "${size[@]}" --steps 1
  losses >losses
  same losses base
done

echo "== memory: the base's shard in bf16, and the adapters' state, of sizes that need no padding"
parameters() { tessera inspect "$1" && grep -Eo '[0-9]+ parameters' "$out" | cut -d ' ' -f 1; }
text 2000 text.txt
small=(--model small --data text.txt --seq-len 32 --threads 1 --precision bf16)
tessera train "${small[@]}" --steps 1 --checkpoint-dir plain
tessera train "${small[@]}" --steps 1 --checkpoint-dir run --lora-rank 4 --comm threads:2
base=$(parameters plain/step-00000001)
adapters=$(($(parameters run/step-00000001) - base))
tessera train "${small[@]}" --lora-rank 4 --ranks 2 --dry-run
bytes_of() { grep -E "^  $1 " "$out" | tr -s ' ' | cut -d ' ' -f 3; }
[ "$(bytes_of weights)" -eq $((base * 2 / 2 + adapters * (4 + 2) / 2)) ] || fail "$base, $adapters: weights take $(bytes_of weights)"
[ "$(bytes_of optimizer)" -eq $((adapters * 8 / 2)) ] || fail "the optimizer takes $(bytes_of optimizer)"
[ "$(stat -c %s run/step-00000001/optimizer.safetensors)" -lt $((adapters * 8 + 20000)) ] || fail "states of frozen weights are saved"

echo "== with dropout too a run takes what its dry run says: blocks are the peak, where dropout takes memory"
peak() { grep -E '^  peak ' "$out" | tr -s ' ' | cut -d ' ' -f 3; }
# takes_what_is_planned WITH WITHOUT ARG...: with the flags WITH, and more than with the flags WITHOUT; in bf16 perhaps as much, since
# on some processors it is multiplied by way of float, and the scratch of that is the peak.
takes_what_is_planned() {
  local with=$1 without=$2 planned taken more=-ge
  shift 2
  [[ $* != *fp32* ]] || more=-gt
  tessera train "$@" $with --dry-run
  planned=$(peak)
  rm -f metrics.jsonl
  tessera train "$@" $with --steps "${last:-2}" --metrics metrics.jsonl
  taken=$(grep -o '"peak_bytes":[0-9]*' metrics.jsonl | tail -n 1 | cut -d : -f 2)
  [ "$taken" -eq "$planned" ] || fail "$taken bytes taken, $planned planned: $* $with"
  tessera train "$@" $without --dry-run
  [ "$planned" $more "$(peak)" ] || fail "$planned bytes, and $(peak) with '$without': $*"
}
tiny=(--model tiny --data text.txt --seq-len 64 --batch-size 4 --threads 1 --lora-rank 4)
dropout="--lora-dropout 0.1"
takes_what_is_planned "$dropout" "" "${tiny[@]}"
takes_what_is_planned "$dropout" "" "${tiny[@]}" --precision fp32 --sharding zero3 --comm threads:2 --recompute
takes_what_is_planned "$dropout" "" "${tiny[@]}" --vocab 2000 --tiling tokens:16 --checkpoint-dir dropped
last=3 takes_what_is_planned "$dropout --resume dropped/step-00000002" "" "${tiny[@]}" --vocab 2000 --tiling tokens:8 --recompute
based=(--model plain/step-00000001 --data text.txt --seq-len 64 --batch-size 4 --threads 1)
takes_what_is_planned "$dropout" "" "${based[@]}" --lora-rank 4 --tiling tokens:64 --checkpoint-dir adapted
tessera export adapted dropping
cp -r dropping steady
sed -i 's/"lora_dropout": 0.1/"lora_dropout": 0.0/' steady/adapter_config.json
takes_what_is_planned "--adapter dropping" "--adapter steady" "${based[@]}"

echo "== a resumed run goes on as if it had not stopped"
train --lora-rank 4 --lora-dropout 0.1 --precision bf16 "${size[@]}" --steps 6 --lr 1e-2 --checkpoint-dir whole --checkpoint-every 3
losses >whole.txt
rm -r whole/step-00000006
train --lora-rank 4 --lora-dropout 0.1 --precision bf16 "${size[@]}" --steps 6 --lr 1e-2 --checkpoint-dir whole --resume auto --comm threads:2 \
  --sharding zero3
losses >losses
tail -n 3 whole.txt >expected
close losses expected 2e-3
refused 'another model: tensor .*q_proj.lora_A.weight. has shape \[4, 24\]' "$program" train "${flags[@]}" "${size[@]}" --lora-rank 3 \
  --resume whole/step-00000003
refused 'another model: lora_alpha' "$program" train "${flags[@]}" "${size[@]}" --lora-rank 4 --lora-alpha 2 --resume whole/step-00000003

echo "== adapters out and in: PEFT's folder; merged is unmerged"
train --lora-rank 4 --lora-alpha 6.5 --precision fp32 "${size[@]}" --steps 20 --lr 1e-2 --checkpoint-dir tuned
tessera export tuned adapters
[ "$(cd adapters && ls *.safetensors *config.json)" = "$(printf 'adapter_config.json\nadapter_model.safetensors\ntokenizer_config.json')" ] ||
  fail "files: $(ls adapters)"
tessera export tuned merged --merge
contains "$out" '^merging changed [0-9.]+ % of the weights that have adapters; rounding to f32 loses [0-9.e-]+ % of the adapters. effect \(relative norm\)$'
tessera export model merged_by_adapter --adapter adapters --merge
cmp merged/model.safetensors merged_by_adapter/model.safetensors
lacks merged/config.json lora
loss_of --model tuned/step-00000020 >loss
loss_of --model model --adapter adapters >of_adapters
same loss of_adapters
loss_of --model merged >of_merged
close of_merged loss 1e-6
cp -r adapters faint
sed -i 's/"lora_alpha": 6.5/"lora_alpha": 1e-4/' faint/adapter_config.json
tessera export model of_faint --adapter faint --merge --dtype bf16
contains "$err" '^tessera: warning: merging changed [0-9.]+ % of the weights that have adapters; rounding to bf16 loses [0-9.]+ % of the adapters. effect \(relative norm\); --dtype f32 keeps it$'
cp -r peft/all huge
python3 - <<'END'
import json
config = json.load(open("huge/adapter_config.json"))
json.dump(config | {"lora_alpha": 1e6}, open("huge/adapter_config.json", "w"))
data = bytearray(open("huge/adapter_model.safetensors", "rb").read())
length = int.from_bytes(data[:8], "little")
data[8 + length:] = b"\0\0\0\x7e" * ((len(data) - 8 - length) // 4)  # 4e37: a product of two is infinite
open("huge/adapter_model.safetensors", "wb").write(data)
END
expect_error '^tessera: model/model.safetensors: model.layers.0.*weight\[0\] with the product of the adapters of huge, all of which are finite, is inf; no run' "$program" export model never --adapter huge --merge
spoilt='model.layers.0.self_attn.q_proj.lora_B.weight'
cp -r peft/some spoilt
python3 - "base_model.model.$spoilt" <<'END'
import json, struct, sys
data = bytearray(open("spoilt/adapter_model.safetensors", "rb").read())
length = int.from_bytes(data[:8], "little")
entry = json.loads(data[8:8 + length])[sys.argv[1]]
assert entry["dtype"] == "F32"
struct.pack_into("<f", data, 8 + length + entry["data_offsets"][0] + 12, float("nan"))
open("spoilt/adapter_model.safetensors", "wb").write(data)
END
for how in '' --merge; do
  expect_error "^tessera: spoilt/adapter_model.safetensors: base_model.model.$spoilt\[3\] is nan; no run can use it" "$program" export model never --adapter spoilt $how
done
refused "spoilt/adapter_model.safetensors: base_model.model.$spoilt\[3\] is nan; no run can use it" "$program" eval "${answers[@]}" \
  --seq-len 360 --precision fp32 --model model --adapter spoilt
tessera export model again --adapter peft/some
tail -c +9 again/adapter_model.safetensors | tr '\0' ' ' | grep 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' >/dev/null ||
  fail "names of the adapters"
contains again/adapter_config.json '"use_rslora": true'
loss_of --model model --adapter again >losses
close losses peft/some.txt 1e-6

echo "== generate and chat with adapters"
tuned=(--temperature 0 --tokens 12 --precision fp32 --threads 1)
tessera generate --model tuned/step-00000020 --prompt 'What is' "${tuned[@]}"
cp "$out" text
tessera generate --model model --adapter adapters --prompt 'What is' "${tuned[@]}" --comm threads:2
same "$out" text
echo 'What is 3 + 4?' >line
tessera chat --model tuned/step-00000020 "${tuned[@]}" <line
cp "$out" said
tessera chat --model model --adapter adapters "${tuned[@]}" <line
same "$out" said

echo "== refusals"
bad() { expect_error "$1" "$program" train "${flags[@]}" "${size[@]}" "${@:2}"; }
bad "lora_targets has 'qproj', which matches no projection" --lora-rank 2 --lora-targets qproj
bad 'lora_rank is -1' --lora-rank -1
bad '--lora-alpha is for LoRA, and --lora-rank is 0; give a rank' --lora-alpha 3
bad '--adapter peft/all has adapters, which say all of them; drop --lora-rank' --adapter peft/all --lora-rank 2
bad 'drop --hidden' --hidden 8 --lora-rank 2
expect_error 'is for a folder.s model' "$program" train --data text.txt --model tiny --adapter peft/all
bad 'adapter_config.json: no such file' --adapter model
cp -r peft/all bin && mv bin/adapter_model.safetensors bin/adapter_model.bin
expect_error '^tessera: bin: holds adapter_model.bin, which is not read, and no adapter_model.safetensors; save the adapters with PEFT' \
  "$program" export model never --adapter bin --merge
cp -r peft/all pointer && printf 'version https://git-lfs.github.com/spec/v1\n' >pointer/adapter_model.safetensors
expect_error '^tessera: pointer/adapter_model.safetensors: is a Git LFS pointer' "$program" export model never --adapter pointer --merge
tessera inspect peft/all
contains "$out" '^adapters  rank 4, alpha [0-9.]+, for '
contains "$out" '^problems  none$'
expect_error 'has no adapters; leave it out' "$program" export model never --merge
expect_error 'has adapters of its own' "$program" eval "${answers[@]}" --model tuned/step-00000020 --adapter peft/all
# change KEY VALUE: another adapter_config.json.
change() {
  rm -rf bad && cp -r peft/all bad
  python3 - "$1" "$2" <<'END'
import json, sys
config = json.load(open("bad/adapter_config.json"))
config[sys.argv[1]] = json.loads(sys.argv[2])
json.dump(config, open("bad/adapter_config.json", "w"))
END
}
refuses() {
  change "$1" "$2"
  bad "$3" --adapter bad
}
refuses rank_pattern '{"q_proj": 8}' '"rank_pattern" is .* which this program does not know'
refuses modules_to_save '["lm_head"]' '"modules_to_save" is'
refuses bias '"all"' '"bias" is "all"; only "none" is supported'
refuses use_dora true '"use_dora" is true'
refuses peft_type '"LOHA"' '"peft_type" is "LOHA"'
refuses init_lora_weights '"pissa"' 'which changed the base.s weights'
refuses target_modules '".*q_proj"' 'is the regular expression'
refuses target_modules '["q_proj", "query_key_value"]' '^tessera: bad/adapter_config.json: "target_modules" has "query_key_value", which matches no'
# Weights are read behind the data, whose own lines come first.
unfit() {
  change "$1" "$2"
  refused "$3" "$program" train "${flags[@]}" "${size[@]}" --adapter bad
}
unfit r 8 'has shape \[4, 24\] where the model has \[8, 24\]: the adapters are another model.s, or not of the rank'
unfit target_modules '["q_proj"]' 'tensors that the model lacks'

echo "== inspect compares a folder of adapters with its own config"
inspected() {
  expect_error '^tessera: inspect: bad has problems' "$program" inspect bad
  contains "$out" "^problem   $1"
  [ "$(grep -c '^problem ' "$out")" -eq 1 ] || fail "other problems"
}
change r 8
inspected 'bad/adapter_model.safetensors: tensor ".*" has shape \[4, [0-9]+\], and adapter_config.json says "r": 8$'
change target_modules '["q_proj"]'
inspected 'bad/adapter_model.safetensors: tensor ".*" is of a module that "target_modules" of adapter_config.json does not name$'
change target_modules '["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]'
inspected 'bad/adapter_model.safetensors: holds nothing for "lm_head", which "target_modules" of adapter_config.json names$'
change target_modules '["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]'
sed -i 's/layers.0.self_attn.q_proj.lora_B/layers.7.self_attn.q_proj.lora_B/' bad/adapter_model.safetensors
inspected 'bad/adapter_model.safetensors: tensor ".*q_proj.lora_[AB].weight" stands alone: the file lacks ".*q_proj.lora_[AB].weight"$'
mv bad/adapter_model.safetensors bad/adapter_model.bin
inspected 'bad: holds adapter_model.bin, which is not read, and no adapter_model.safetensors; save the adapters with PEFT'
bad 'peft/all/adapter_model.safetensors: is a file; give the folder that holds it$' --adapter peft/all/adapter_model.safetensors
bad 'nowhere: no such folder$' --adapter nowhere

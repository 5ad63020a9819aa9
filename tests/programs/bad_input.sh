#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wrong flags, data and model sizes: one line that says what is wrong, status 2, and nothing on disk.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 300 text.txt
: >empty.txt
mkdir folder && : >folder/empty.txt && printf 'a\0b' >folder/binary
mkdir made
cat >small.toml <<'END'
model = "tiny"
seq-len = 16
steps = 2
precision = "fp32"
metrics = "made/metrics.jsonl"
trace = "made/trace.json"
checkpoint-dir = "made/checkpoints"
END
train=("$program" train --config small.toml)

echo "== data"
expect_error 'data is missing' "${train[@]}"
expect_error 'nowhere: no such file or folder' "${train[@]}" --data nowhere
expect_error 'nowhere: no such file or folder' "${train[@]}" --data text.txt --data nowhere
expect_error 'there is no text in empty.txt' "${train[@]}" --data empty.txt
expect_error 'there is no text in folder \(left out: binary 1 ' "${train[@]}" --data folder
expect_error '/dev/null: neither a file nor a folder' "${train[@]}" --data /dev/null
expect_error '512 tokens .* do not fit into the 300 bytes' "${train[@]}" --seq-len 512 --data text.txt
expect_error '1 windows .* leave none to train on' "${train[@]}" --seq-len 299 --data text.txt
expect_error 'byte [0-9]+, which is not below the model.s vocabulary of 11' "$program" train --model tiny --vocab 11 \
  --seq-len 16 --data text.txt --comm threads:2

echo "== sizes"
expect_error '6 heads are not divisible by 4 key-value heads' "${train[@]}" --data text.txt --kv-heads 4
expect_error 'head dimension is 15.* even' "${train[@]}" --data text.txt --head-dim 15
expect_error 'layers is 0; it must be 1 to' "${train[@]}" --data text.txt --layers 0
expect_error '9 sequences cannot be shared by 2 ranks x 2 micro-batches; .* 8 and 12' \
  "${train[@]}" --data text.txt --batch-size 9 --grad-accum 2 --comm threads:2
for flag in --steps --seq-len --batch-size --grad-accum --log-every; do
  expect_error "$flag 0 must be at least 1" "${train[@]}" --data text.txt --comm threads:2 $flag 0
done
expect_error 'lr -1 must be at least 0' "${train[@]}" --data text.txt --lr=-1
expect_error 'beta2 1 must be at least 0 and below 1' "${train[@]}" --data text.txt --beta2 1
expect_error 'validation-fraction 1 must be' "${train[@]}" --data text.txt --validation-fraction 1
expect_error 'deadline 0 must be above 0' "${train[@]}" --data text.txt --deadline 0
expect_error '--validation-every is for held-out losses and samples, and with --validation-fraction 0 there are neither' \
  "${train[@]}" --data text.txt --validation-fraction 0 --validation-every 2
expect_error '--validation-windows is for held-out losses, and with --validation-fraction 0 there are none' \
  "${train[@]}" --data text.txt --validation-fraction 0 --validation-windows 2
expect_error 'ranks is for --dry-run only' "${train[@]}" --data text.txt --ranks 2

echo "== sequences"
expect_error '2 ranks cannot be cut into groups of 3, which share each sequence; give 1 or 2' \
  "${train[@]}" --data text.txt --comm threads:2 --sequence ulysses:3
expect_error '3 ranks cannot be cut into groups of 2, .*; give 1 or 3' \
  "${train[@]}" --dry-run --ranks 3 --batch-size 3 --sequence ulysses:2
expect_error '9 sequences cannot be shared by 2 groups of 2 ranks \(--sequence\) x 1 micro-batches; .* 8 and 10' \
  "${train[@]}" --data text.txt --batch-size 9 --comm threads:4 --sequence ulysses:2
expect_error 'a length of 1 leaves some of the 2 ranks that share each sequence without a row; give a length of at least 2' \
  "${train[@]}" --data text.txt --seq-len 1 --comm threads:2 --sequence ulysses:2
expect_error 'with --sequence ulysses:2 no rank has a whole one; leave one of them out' \
  "${train[@]}" --data text.txt --comm threads:2 --sharding fsdp2:pieces=4 --verify-every 1 --sequence ulysses:2
expect_error 'sample-prompt has each rank continue a whole text, which --sequence ulysses:2 does not' \
  "${train[@]}" --data text.txt --comm threads:2 --sample-prompt a --sample-tokens 2 --sequence ulysses:2
expect_error 'ulysses does not say how many ranks share each sequence; write ulysses:K' \
  "${train[@]}" --data text.txt --sequence ulysses
for command in generate chat; do
  expect_error 'sequence is fixed by this program: whole, since ranks that share a sequence cannot continue it' \
    "$program" $command --sequence ulysses:2
done

echo "== words"
expect_error 'unknown flag --stpes; did you mean --steps' "$program" train --stpes 3
expect_error 'unknown flag --promt; did you mean --prompt' "$program" generate --promt x
expect_error "unknown command 'evla'; did you mean 'eval'" "$program" evla
expect_error 'no command was given' "$program"
expect_error "bench is a program of its own, tessera_bench" "$program" bench step
expect_error '^tessera: --lr: .* received 2; give the flag once' "$program" train --data text.txt --lr 1 --lr 2
expect_error "unexpected argument 'more.txt'" "$program" train more.txt --data text.txt
expect_error "tinny is neither a preset nor a folder; did you mean 'tiny'" \
  "$program" train --data text.txt --model tinny
expect_error "fsdp3 is not known; did you mean 'fsdp2'" "${train[@]}" --data text.txt --sharding fsdp3
expect_error "ulises:4 is not known; did you mean 'ulysses:K'" "${train[@]}" --data text.txt --sequence ulises:4
expect_error "tile:4 is not known; did you mean 'tiles:N'" "${train[@]}" --data text.txt --tiling tile:4
expect_error "thread:2 is not known; did you mean 'threads:N'" "${train[@]}" --data text.txt --comm thread:2
expect_error "fp23 is not known; did you mean 'fp32'" "${train[@]}" --data text.txt --precision fp23
expect_error "cosin is not known; did you mean 'cosine'" "${train[@]}" --data text.txt --lr-schedule cosin
expect_error "--lr 'much' is not a number" "${train[@]}" --data text.txt --lr much
expect_error '--lr .nan. is not a finite number' "${train[@]}" --data text.txt --lr nan
expect_error '--steps' "$program" train --data text.txt --steps
expect_error '--seed' "${train[@]}" --data text.txt --seed 1 --seed 2

echo "== tiling"
for bad in tiles:0 tiles:-2 tokens:0 budget:0 budget:12MB; do
  expect_error "tiling $bad is not known" "${train[@]}" --data text.txt --tiling $bad
done
expect_error 'budget of 100 bytes does not hold the shortest tile, of [0-9]+ tokens?; give at least [0-9]' \
  "${train[@]}" --data text.txt --tiling budget:100 --comm threads:2
expect_error "--memory '1GB' is not a number of bytes" "${train[@]}" --data text.txt --tiling budget:auto --memory 1GB
expect_error '--memory 1GiB belongs to --tiling budget:auto' "${train[@]}" --data text.txt --memory 1GiB
expect_error '--memory 1MiB is the memory of a rank, whose process takes 256.00 MiB besides tensors' \
  "${train[@]}" --data text.txt --tiling budget:auto --memory 1MiB
expect_error 'hold no step of this model' "${train[@]}" --data text.txt --tiling budget:auto --memory 257MiB --comm threads:2
expect_error 'give bytes' "$program" eval --model "$golden/llama-gqa" --data text.txt --tiling budget:auto

echo "== stacks: those that there are, and the lines that compile another"
refused 'compiled without the stack hybrid:K:full / nccl / fp32.*nearest is --sharding .*--precision fp32' \
  "${train[@]}" --data text.txt --sharding hybrid:2:full --comm nccl
contains "$err" '^  --sharding replicated --comm threads --precision bf16$'
contains "$err" 'fsdp::train_main<fsdp::Llama<Stack>>'
if ! grep -q -- '--comm mpi' "$err"; then
  refused 'built without MPI' "${train[@]}" --data text.txt --comm mpi
fi

echo "== strategies and units that do not fit"
refused 'mesh: 3 ranks cannot form groups of 2' "${train[@]}" --data text.txt --comm threads:3 --batch-size 3 --sharding hybrid:2
refused 'a budget of 10 bytes for gathered weights is too small; [0-9]+ would do,' \
  "${train[@]}" --data text.txt --comm threads:2 --batch-size 2 --sharding fsdp2:budget=10
refused 'a bound of 100000000 live elements and a budget for gathered weights both say' \
  "${train[@]}" --data text.txt --comm threads:2 --batch-size 2 --sharding zero3:live=100000000:budget=1GiB
expect_error 'fsdp2:no-reshard says that itself; write fsdp2:budget=1GiB' "${train[@]}" --data text.txt --sharding fsdp2:no-reshard:budget=1GiB
expect_error 'budget=auto.* hold no step of this model' "${train[@]}" --data text.txt --comm threads:2 --sharding fsdp2:budget=auto --memory 257MiB
expect_error 'each take what the other leaves' "${train[@]}" --data text.txt --sharding fsdp2:budget=auto --tiling budget:auto
expect_error 'give bytes, as in budget=512MiB' "$program" eval --model "$golden/llama-gqa" --data text.txt --seq-len 16 \
  --sharding fsdp2:budget=auto
refused 'a bound of 10 live elements holds no unit' "${train[@]}" --data text.txt --comm threads:2 --batch-size 2 --sharding zero3:live=10
pieces=(--data text.txt --comm threads:3 --sharding)
expect_error 'a batch of 10 sequences cannot be cut into 8 pieces .*pieces=8\); the nearest sizes that can: 8 and 16' \
  "${train[@]}" "${pieces[@]}" fsdp2:pieces=8 --batch-size 10
expect_error 'cannot be cut into 8 pieces .*; the nearest sizes that can: 8$' "${train[@]}" "${pieces[@]}" zero2:pieces=8 --batch-size 4
expect_error 'grad-accum 2: 8 pieces on 3 ranks are 3 micro-batches, which the pieces set .*; leave --grad-accum out' \
  "${train[@]}" "${pieces[@]}" zero3:pieces=8 --batch-size 8 --grad-accum 2
expect_error 'leave out either --replicate or the pieces' "${train[@]}" "${pieces[@]}" fsdp2:pieces=8 --batch-size 8 --replicate '*norm*'
expect_error 'sharding hybrid:2:pieces=8: each group of ranks adds up its gradients first.*take fsdp2:pieces=8, zero2:pieces=8' \
  "${train[@]}" "${pieces[@]}" hybrid:2:pieces=8
expect_error 'sharding replicated:pieces=8: each rank adds up its gradients first.*; take fsdp2:pieces=8' \
  "${train[@]}" "${pieces[@]}" replicated:pieces=8
for bad in 0 x ''; do
  expect_error "sharding fsdp2:pieces=$bad: a step has at least 1 piece; write pieces=N" "${train[@]}" "${pieces[@]}" fsdp2:pieces=$bad
done
refused 'matches no parameter' "${train[@]}" --data text.txt --freeze nothing
refused 'every parameter is frozen' "${train[@]}" --data text.txt --freeze '*'
refused 'not a power of two' "${train[@]}" --data text.txt --loss-scale dynamic:3

echo "== graphs where none are"
sed '/^trace/d' small.toml >untraced.toml
refused 'CUDA graphs \(--cuda-graphs\) are asked for, and this stack runs on cpu' "$program" train --config untraced.toml --data text.txt \
  --comm threads:2 --cuda-graphs
expect_error 'document-separator makes steps differ' "${train[@]}" --data text.txt --cuda-graphs --document-separator 10
expect_error 'leave one of them out' "${train[@]}" --data text.txt --cuda-graphs --trace made/trace.json

echo "== eval and generate"
model=$golden/llama-gqa
expect_error 'model is missing' "$program" eval --data text.txt
expect_error 'data is missing' "$program" eval --model "$model"
expect_error 'tiny.*no such' "$program" eval --model tiny --data text.txt
expect_error 'seq-len 0 must be at least 1' "$program" eval --model "$model" --data text.txt --seq-len 0
expect_error 'batch-size 0 must be at least 1' "$program" eval --model "$model" --data text.txt --batch-size 0
expect_error '4097 is longer than the 4096 positions' "$program" eval --model "$model" --data text.txt --seq-len 4097
expect_error '4097 is longer than the 4096 positions' "${train[@]}" --model "$model" --data text.txt --seq-len 4097
expect_error 'prompt is empty' "$program" generate --model "$model"
expect_error 'tokens -1 must be at least 0' "$program" generate --model "$model" --prompt a --tokens -1
expect_error 'temperature -1 must be at least 0' "$program" generate --model "$model" --prompt a --temperature -1
generate=("$program" generate --model "$model" --precision fp32)
expect_error 'top-k -1 must be at least 0' "${generate[@]}" --prompt a --top-k -1
expect_error 'top-p 1.5 must be at least 0 and at most 1' "${generate[@]}" --prompt a --top-p 1.5
expect_error 'min-p -1 must be at least 0 and at most 1' "${generate[@]}" --prompt a --min-p -1
expect_error 'repetition-penalty 0 must be at least 0.001' "${generate[@]}" --prompt a --repetition-penalty 0
expect_error 'prompt and --prompt-ids are given both' "${generate[@]}" --prompt a --prompt-ids 1
expect_error "prompt-ids '1,,2' is no list of token ids" "${generate[@]}" --prompt-ids 1,,2
expect_error "stop-ids 'x' is no list of token ids" "${generate[@]}" --prompt a --stop-ids x
expect_error 'prompt-ids holds token 256, which is not below the model.s vocabulary of 256' "${generate[@]}" --prompt-ids 1 --prompt-ids 256
expect_error 'stop-ids holds token 300, which is not below' "${generate[@]}" --prompt a --stop-ids 300
expect_error 'longest prompt has 3 tokens.*would read 4097, more than the 4096 positions' \
  "${generate[@]}" --prompt-ids 1,2,3 --prompt-ids 4 --tokens 4095 --comm threads:2

echo "== what is asked for once is asked for twice"
tessera train --model tiny --data text.txt text.txt --data text.txt --seq-len 16 --steps 1
contains "$out" '900 B in 3 files'
tessera train --model tiny --data text.txt --seq-len 16 --steps 1 --comm self
contains "$out" 'fsdp2 threads:1'

echo "== a preset's number of positions grows with --seq-len"
text 5001 long.txt
tessera train --model tiny --layers 1 --data long.txt --seq-len 5000 --batch-size 1 --steps 1 --validation-fraction 0 \
  --checkpoint-dir long
contains long/step-00000001/config.json '"max_position_embeddings": 5000'

echo "== flags that nothing would use"
for flag in '--lora-targets q_proj' '--lora-alpha 3' '--lora-dropout 0.1' '--lora-rslora' '--lora-rank 0 --lora-alpha 3'; do
  expect_error 'lora-[a-z]+ is for LoRA, and --lora-rank is 0; give a rank, or leave it out' "$program" train \
    --data text.txt --model tiny $flag
done
unused() { expect_error "$1" "$program" train --data text.txt --model tiny --seq-len 16 --steps 1 "${@:2}"; }
unused "lora_targets is 'q_proj,', which has an empty pattern" --lora-rank 2 --lora-targets q_proj,
unused 'checkpoint-every is for checkpoints, and none are written; give --checkpoint-dir' --checkpoint-every 1
unused 'resume-anyway is for a run that goes on, and this one begins; give --resume' --resume-anyway
unused 'token-cache is for text that a tokenizer reads, and there is no tokenizer' --token-cache cache
unused 'token-cache is for text that a tokenizer reads, and --data-format is bytes' --token-cache c --data-format bytes
unused 'end-token is for text that a tokenizer reads, and there is no tokenizer' --end-token '</s>'
unused 'text-field is for text that a tokenizer reads, and there is no tokenizer' --text-field body
expect_error '^tessera: --model a+[.]{3} .100000 bytes. is neither a preset' "$program" train --data text.txt \
  --model "$(head -c 100000 /dev/zero | tr '\0' a)"

echo "== outputs that are inputs, or each other"
mkdir held && cp text.txt held/ && ln -s held/text.txt link
cp text.txt before
unused 'metrics ./text.txt is a file of --data; give it a file of its own' --metrics ./text.txt
unused 'trace link is in the folder of --data held' --data held --trace link
unused 'metrics c/run.lock is a file of --checkpoint-dir' --checkpoint-dir c --metrics c/run.lock
unused 'trace c/latest is a file of --checkpoint-dir' --checkpoint-dir c --trace c/latest
unused 'metrics and --trace both write m; give each a file of its own' --metrics m --trace ./m
same before text.txt

echo "== folders of checkpoints that cannot be written"
ln -s nowhere dangling
unused 'checkpoint-dir dangling: is a symbolic link to nowhere, which does not exist' --checkpoint-dir dangling
mkdir used && touch used/step-00000002
unused 'used/step-00000002 has a checkpoint.s name and is no folder; move it elsewhere' --checkpoint-dir used
unused 'used/step-00000002 has a checkpoint.s name' --checkpoint-dir used --resume auto
ln -sf nowhere used/step-00000002
unused 'used/step-00000002 has a checkpoint.s name' --checkpoint-dir used

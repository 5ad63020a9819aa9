#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --help of every sub-command ends with status 0 and names every flag.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

names() { for flag in "$@"; do contains "$out" "^  (-h,)?--${flag}[ =]"; done; }
stack=(config sharding precision offload tiling comm threads deadline shared-windows help)

tessera --help
for command in train plan calibrate eval generate chat export inspect tokenize plot diff replay stacks; do contains "$out" "^  $command "; done
tessera --version
contains "$out" "^tessera [0-9]+\.[0-9]+\.[0-9]+$"
for row in compiler system "instruction set" OpenMP oneDNN MPI NCCL; do contains "$out" "^  $row +[^ ]"; done
contains "$out" "^  --sharding fsdp2.*--comm threads --precision bf16$"
tessera train --help
names "${stack[@]}" data data-format chat-template learn on-long model from-scratch family sliding-window rope-type rope-factor hidden layers heads kv-heads head-dim intermediate vocab tied adapter lora-rank lora-alpha lora-dropout lora-rslora lora-targets steps seq-len batch-size \
  grad-accum lr lr-schedule lr-decay-steps warmup optimizer weight-decay beta1 beta2 eps momentum nesterov iterations clip group seed \
  validation-fraction validation-every patience sample-prompt sample-tokens \
  checkpoint-dir checkpoint-every keep resume disk-deadline metrics digests verify-every tensorboard trace cuda-graphs log-every dry-run ranks print-schedule
tessera eval --help
names "${stack[@]}" model adapter data data-format seq-len batch-size windows disk-deadline
tessera generate --help
names "${stack[@]}" model adapter prompt prompt-ids tokens temperature top-k top-p min-p repetition-penalty seed stop-ids disk-deadline
tessera chat --help
names "${stack[@]}" model adapter tokenizer chat-template system context tokens temperature top-k top-p min-p repetition-penalty seed stop-ids disk-deadline
tessera export --help
names dtype shard-bytes files-from adapter merge
tessera plot --help
names out
tessera diff --help
names config
tessera replay --help
names step digests against tensors unit piece data tokenizer token-cache sharding comm deadline disk-deadline
tessera tokenize --help
names tokenizer out text-field end-token shard-tokens threads

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint opens as a Hugging Face model and has the same loss there. Skipped without torch and transformers.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

if ! python3 -c 'import torch, transformers' 2>/dev/null; then
  echo "skipped: python3 has no torch and transformers"
  exit 0
fi
text 1601 text.txt
for tied in true false; do
  rm -rf saved
  tessera train --data text.txt --model tiny --tied=$tied --seq-len 64 --steps 5 --precision fp32 --comm threads:2 \
    --checkpoint-dir saved
  tessera eval --model saved/step-00000005 --data text.txt --seq-len 64 --precision fp32
  python3 - saved/step-00000005 "$out" <<'END'
import json, sys, torch
from transformers import LlamaForCausalLM
model = LlamaForCausalLM.from_pretrained(sys.argv[1], torch_dtype=torch.float32)
found = json.load(open(sys.argv[2]))
text = torch.tensor(list(open('text.txt', 'rb').read()))
with torch.no_grad():
    logits = model(text[:-1].view(-1, 64)).logits
loss = torch.nn.functional.cross_entropy(logits.view(-1, 256).double(), text[1:]).item()
assert found['tokens'] == 1600 and abs(found['loss'] - loss) <= 1e-4 * loss, (found, loss)
END
done

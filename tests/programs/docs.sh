#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The book: pages of sub-commands, printed output and pictures are what the program prints; commands that a newcomer is told to run, run.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"
root=$(realpath "$golden/../..")

python3 -B "$root/docs/site/generate.py" "$program" --check

for page in get_started same_bits; do
  echo "== $page"
  mkdir "$folder/$page" && cd "$folder/$page" && ln -s "$root/docs" docs
  PYTHONPATH=$root/docs/site python3 -B -c "
import sys
from pages import blocks
print(''.join(block.text for block in blocks(open(sys.argv[1]).read()) if block.kind == 'run'))" "docs/$page.md" >commands
  [ "$(grep -c '^tessera' commands)" -ge 4 ] || fail "$page.md has $(cat commands)"
  PATH=$(dirname "$program"):$PATH timeout 300 bash -euo pipefail commands >"$out" 2>"$err" || fail "$page"
  case $page in
    get_started)
      [ -f run/step-00000100/model.safetensors ] || fail "no checkpoint"
      grep -Eq '^micro-batch 0  gather' "$out" || fail "no schedule"
      ;;
    same_bits)
      grep -Fx -f "$root/tests/docs/same_bits.txt" "$out" | cmp - "$root/tests/docs/same_bits.txt" || fail "other words"
      contains "$out" '^the largest difference is [0-9.e-]+, at \[[0-9]+, [0-9]+\] of forward of embedding: '
      ;;
  esac
done

echo "== the line of JSONL that docs/finetuning.md shows is a conversation"
tessera train --data "$root/tests/docs/chats.jsonl" --data-format chat --chat-template chatml --tokenizer "$root/tests/text/tokenizers/qwen.json" --model tiny \
  --vocab 1216 --seq-len 64 --batch-size 1 --steps 1 --validation-fraction 0

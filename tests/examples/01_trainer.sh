#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A trainer is ten lines; it plans without arguments, and trains.
# usage: 01_trainer.sh PROGRAM SOURCE
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
[ "$(grep -vc '^//' "$2")" -le 16 ] || fail "$(grep -vc '^//' "$2") lines of code"
tessera
contains "$out" '^fsdp2 / threads / bf16, 4 ranks'
text 2000 text.txt
tessera --data text.txt --model tiny --ranks 2 --threads 1 --seq-len 32 --steps 8 --lr 3e-3 --metrics metrics.jsonl
falls metrics.jsonl

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An optimizer of one's own trains, plans, resumes to the bit, and is asked for its own constants alone.
# usage: 07_own_optimizer.sh PROGRAM
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 4000 text.txt
flags=(--data text.txt --model tiny --seq-len 32 --batch-size 8 --steps 12 --lr 1e-3 --lr-schedule constant --threads 1
       --weight-decay 0.05)

tessera "${flags[@]}" --ranks 2 --metrics whole.jsonl --checkpoint-dir whole --checkpoint-every 6
contains whole.jsonl '"optimizer":\{"name":"lion","beta1":0.9,"beta2":0.99,"weight-decay":0.05\}'
contains "$out" 'optimizer lion, beta1 0.9, beta2 0.99, weight-decay 0.05'
falls whole.jsonl
contains whole/step-00000006/trainer.json lion

echo "== resumed, and resharded"
tessera "${flags[@]}" --ranks 2 --metrics again.jsonl --checkpoint-dir again --resume whole/step-00000006
same <(steps whole.jsonl 7) <(steps again.jsonl 7)
for file in model.safetensors optimizer.safetensors; do same whole/step-00000012/$file again/step-00000012/$file; done
tessera "${flags[@]}" --ranks 4 --metrics other.jsonl --resume whole/step-00000006
close <(steps other.jsonl) <(steps whole.jsonl 7) 1e-2

echo "== flags"
tessera --help
for flag in beta1 beta2 weight-decay hidden model; do contains "$out" "^  --$flag"; done
lacks "$out" '--(optimizer|eps|momentum|sharding)'
expect_error '--optimizer is fixed by this program: lion' "$program" "${flags[@]}" --optimizer adamw
expect_error 'unknown flag --eps' "$program" "${flags[@]}" --eps 1
tessera --dry-run --model tiny --ranks 2
contains "$out" 'optimizer'
echo "lion: as described"

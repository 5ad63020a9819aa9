#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Own policies plan, and train; what their types have settled is no flag.
# usage: 02_own_policies.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera
contains "$out" '^mine:ahead=2 / threads / mine::Precision, 4 ranks'
contains "$out" '^tiling: head, 4 tiles'
text 2000 text.txt
tessera --data text.txt --model tiny --ranks 2 --threads 1 --seq-len 32 --steps 8 --lr 3e-3 --metrics metrics.jsonl
falls metrics.jsonl
contains metrics.jsonl '"stack":"mine:ahead=2 threads:2 mine::Precision mine::Tiles"'
tessera --help
lacks "$out" '--(sharding|precision|tiling)'

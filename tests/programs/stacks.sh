#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tessera stacks`: what is compiled, each found by the flags that are printed, and what policies and backends support.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

text 3000 text.txt
flags=(train --data text.txt --model tiny --seq-len 16 --batch-size 4 --threads 1)

tessera stacks
cp "$out" listed
all='fsdp2P \| fsdp2:no-reshardP \| zero1P \| zero2P \| zero3P'
all=${all//P/'\[:pieces=V\]'}  # with pieces and without
contains listed "^  --sharding $all --comm threads --precision bf16$"
contains listed "^  --sharding $all --offload optimizer --comm threads --precision bf16$"
contains listed "^  --sharding $all --comm threads --precision bf16:wire=bf16$"
contains listed '^  --sharding hybrid:K:full\[:INNER\] --comm threads --precision fp32$'
contains listed '^  nccl +cuda +yes +yes +yes +yes +yes +yes$'   # its sums take any element type
contains listed '^  threads +cpu +yes +yes +yes +yes +yes +no$'  # no f16 on the wire
contains listed '^  fp16 +no +no +no +yes$'                      # the CPU has no matmul in f16
contains listed '^  hybrid:K:full +sharded +sharded +2 '
contains listed '^  replicated +replicated +- +1 '
grep -- '--comm threads' listed | while read -r line; do
  kinds=$(sed 's/--sharding //; s/ --.*//; s/ | / /g' <<<"$line")
  read -r -a stack <<<"${line#* --}"
  stack=("--${stack[0]}" "${stack[@]:1}")
  for kind in ${kinds//'[:pieces=V]'/} $(tr ' ' '\n' <<<"$kinds" | sed -n 's/\[:pieces=V\]/:pieces=4/p'); do
    kind=${kind/K/2}
    tessera "${flags[@]}" --sharding "${kind/\[:INNER\]/:zero3}" "${stack[@]/threads/threads:2}" --dry-run
  done
done

echo "== an optimizer in host memory and a bf16 wire"
tessera "${flags[@]}" --steps 2 --comm threads:2 --metrics plain.jsonl
tessera "${flags[@]}" --steps 2 --comm threads:2 --offload optimizer --metrics offload.jsonl --checkpoint-dir offload
same <(steps offload.jsonl) <(steps plain.jsonl)
contains offload.jsonl '"stack":"fsdp2:offload=optimizer threads:2 bf16 off"'
tessera "${flags[@]}" --steps 2 --comm threads:2 --offload optimizer --sharding zero3 --layout owned --metrics zero3.jsonl
contains zero3.jsonl '"stack":"zero3:layout=owned:offload=optimizer threads:2 bf16 off"'
tessera "${flags[@]}" --comm threads:2 --precision bf16:wire=bf16 --metrics wire.jsonl --steps 3 --resume offload
contains wire.jsonl '"stack":"fsdp2 threads:2 bf16:wire=bf16 off"'
refused 'compiled without the stack replicated:offload=optimizer / threads / bf16; the nearest is .*' \
  "$program" "${flags[@]}" --offload optimizer --sharding replicated
expect_error "offload optimiser is not known; did you mean 'optimizer'" "$program" "${flags[@]}" --offload optimiser

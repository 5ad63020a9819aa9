#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tessera calibrate --comm nccl` on 2 processes: a cluster's file of GPUs, which `tessera plan` takes.
#
# usage: calibrates.sh PROGRAM     tests_cuda_host_program
set -euo pipefail
source "$(dirname "$0")/ranks.sh"

on_ranks 2 calibrate --comm nccl --threads 1 --repeats 1 --out gpus.toml
[ ! -s 1.out ] || ranks_fail "the second rank prints"
contains gpus.toml '^device = "cuda" '
contains gpus.toml '^ranks = 2 '
contains gpus.toml '^memory = 2147483648 .*; all of the device'
contains gpus.toml '^collectives_have_queues = true '
contains gpus.toml '^beside_collectives = (1|0\.[0-9]+)  # .*; (.* in 1 repeats|not measured: gathers end too soon)$'
for key in matmul_bf16 matmul_fp32_small attention memory_bandwidth host_bandwidth node_bandwidth; do
  contains gpus.toml "^$key = [1-9].* in 1 repeats\$"
done
tessera plan --cluster gpus.toml --model tiny
contains "$out" '^fsdp2 / nccl / bf16 on gpus.toml, 2 ranks in 1 node, '

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tessera calibrate`: a cluster's file of this machine, which `tessera plan` takes; what cannot be measured or written, a sentence each.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

echo "== a file that plan takes"
tessera calibrate --comm threads:2 --threads 1 --repeats 3 --out machine.toml
contains "$out" '^machine.toml$'
contains machine.toml '^ranks = 2 '
contains machine.toml '^matmul_bf16 = [0-9.e+]+  # FLOP/s of large matmuls in bf16; .* to .* in 3 repeats$'
contains machine.toml '^network_bandwidth = .*not measured: one node$'
[ "$(listing)" = "$(printf '.\n./machine.toml')" ] || fail "left files: $(listing)"
tessera plan --cluster machine.toml --model tiny
contains "$out" '^fsdp2 / threads / bf16 on machine.toml, 2 ranks in 1 node, '

echo "== figures that a machine has"
python3 - <<'PY'
import re
figures = {}
for line in open("machine.toml"):
    if match := re.match(r"(\w+) = ([0-9.e+-]+)  #", line): figures[match[1]] = float(match[2])
    spread = re.search(r"; (\S+) to (\S+) in 3 repeats", line)
    if spread: assert 0.99 * float(spread[1]) <= figures[match[1]] <= 1.01 * float(spread[2]), line
assert 1e9 < figures["matmul_fp32"] <= figures["peak_fp32"] < 1e14 and figures["matmul_bf16"] <= figures["peak_bf16"], figures
assert 1e8 < figures["memory_bandwidth"] < 1e13 and 1e8 < figures["node_bandwidth"] < 1e13, figures
assert 0 < figures["collective_latency"] < 0.1 and figures["threads"] == 1 and figures["memory"] > 2**27, figures
PY

echo "== printed without --out, over MPI too"
tessera calibrate --threads 1 --repeats 1
contains "$out" '^ranks = 1 '
if "$program" stacks | grep -q -- '--comm mpi'; then
  timeout 120 mpirun --oversubscribe -np 2 "$program" calibrate --threads 1 --repeats 1 >"$out" 2>"$err" || fail "over MPI: $(cat "$err")"
  contains "$out" '^ranks = 2 '
  [ "$(grep -c '^ranks = ' "$out")" -eq 1 ] || fail "printed twice"
fi

echo "== what it refuses"
expect_error '--out none/machine.toml: cannot be written: ' "$program" calibrate --out none/machine.toml
expect_error '--repeats 0' "$program" calibrate --repeats 0
if "$program" stacks | grep -q -- '--comm nccl'; then
  expect_error 'calibrate: measures CPUs; of a GPU' "$program" calibrate --comm nccl
fi

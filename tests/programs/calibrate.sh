#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tessera calibrate`: a cluster's file of these machines, which `tessera plan` takes; what cannot be measured or written, a sentence each.
set -euo pipefail
source "$(dirname "$0")/../support/program.sh"

echo "== a file that plan takes"
tessera calibrate --comm threads:2 --threads 1 --repeats 3 --out machine.toml
contains "$out" '^machine.toml$'
contains machine.toml '^ranks = 2 '
contains machine.toml '^matmul_bf16 = [0-9.e+]+  # FLOP/s in bf16 of matmuls .*; .* to .* in 3 repeats$'
contains machine.toml '^# network_bandwidth: not measured, one node; give it to plan several$'
contains machine.toml '^# .*: 1 node, 2 ranks each, 1 thread$'
[ "$(listing)" = "$(printf '.\n./machine.toml')" ] || fail "left files: $(listing)"
tessera plan --cluster machine.toml --model tiny
contains "$out" '^fsdp2 / threads / bf16 on machine.toml, 2 ranks in 1 node, '
expect_error '--cluster machine.toml: network_latency is missing; give it: ' "$program" plan --cluster machine.toml --model tiny --ranks 4

echo "== figures that a machine has"
python3 - <<'PY'
import re
figures = {}
for line in open("machine.toml"):
    if match := re.match(r"(\w+) = ([0-9.e+-]+)  #", line): figures[match[1]] = float(match[2])
    spread = re.search(r"; (\S+) to (\S+) in 3 repeats", line)
    if spread: assert 0.99 * float(spread[1]) <= figures[match[1]] <= 1.01 * float(spread[2]), line
assert 1e9 < figures["matmul_fp32"] <= figures["peak_fp32"] < 1e14 and figures["matmul_bf16"] <= figures["peak_bf16"], figures
for dtype in "bf16", "fp32":
    for size in "medium", "small": assert 1e9 < figures[f"matmul_{dtype}_{size}"] <= figures[f"peak_{dtype}"], figures
assert 1e8 < figures["memory_bandwidth"] < 1e13 and 1e8 < figures["node_bandwidth"] < 1e13, figures
assert 0 < figures["collective_latency"] < 0.1 and figures["threads"] == 1 and figures["memory"] > 2**27, figures
PY

echo "== printed without --out, over MPI too"
tessera calibrate --threads 1 --repeats 1
contains "$out" '^ranks = 1 '
contains "$out" '^node_bandwidth = .*; not measured, one rank: a copy of its own$'
ln -s behind.toml link.toml && tessera calibrate --threads 1 --repeats 1 --out link.toml && rm link.toml
contains behind.toml '^ranks = 1 '
tessera calibrate --threads 1 --repeats 1 --out /dev/null
[ -c /dev/null ] || fail "replaced a device"
if "$program" stacks | grep -q -- '--comm mpi'; then
  timeout 120 mpirun --oversubscribe -np 2 "$program" calibrate --threads 1 --repeats 1 >"$out" 2>"$err" || fail "over MPI: $(cat "$err")"
  contains "$out" '^ranks = 2 '
  [ "$(grep -c '^ranks = ' "$out")" -eq 1 ] || fail "printed twice"
fi

# on_nodes NAME,NAME...: calibrates with a rank on each of these hosts; only a name space of its own may rename one.
on_nodes() {
  local names=$1 ranks
  ranks=$(tr ',' '\n' <<<"$names" | wc -l)
  # shellcheck disable=SC2016
  timeout 120 mpirun --oversubscribe -np "$ranks" bash -c 'IFS=, read -ra name <<<"$1"
    exec unshare -u bash -c "hostname \$1 && exec \"\$2\" calibrate --threads 1 --repeats 1 --deadline 60" - "${name[OMPI_COMM_WORLD_RANK]}" "$2"' \
    - "$names" "$program" >"$out" 2>"$err"
}
if "$program" stacks | grep -q -- '--comm mpi' && mpirun --version | grep -q 'Open MPI' && unshare -u true 2>/dev/null; then
  echo "== several nodes: what is inside of them, and what is between"
  on_nodes one,one,two,two || fail "on two nodes: $(cat "$err")"
  contains "$out" '^# .*: 2 nodes, 2 ranks each, 1 thread$'
  contains "$out" '^ranks = 4 '
  contains "$out" '^ranks_per_node = 2 '
  contains "$out" '^node_bandwidth = .* in 1 repeats$'
  contains "$out" '^network_latency = .* in 1 repeats$'
  contains "$out" '^network_bandwidth = .* in 1 repeats$'
  cp "$out" nodes.toml
  tessera plan --cluster nodes.toml --model tiny --batch-size 8
  contains "$out" '^fsdp2 / mpi / bf16 on nodes.toml, 4 ranks in 2 nodes, '
  on_nodes one,two || fail "on two nodes: $(cat "$err")"
  contains "$out" '^ranks_per_node = 1 '
  contains "$out" '^node_bandwidth = .*not measured: one rank on each node$'
  for names in one,two,one one,one,two; do
    ! on_nodes $names || fail "took ranks on $names"
    contains "$err" 'calibrate: one has (ranks again behind those of two|2 of the ranks and two 1); plans have equally many ranks on each node, '
  done
else
  echo "== several nodes: not tried, since there is no Open MPI, or no host can be given another name"
fi

echo "== what it refuses"
expect_error '--out none/machine.toml: cannot be written: ' "$program" calibrate --out none/machine.toml
echo 'repeats = 1' >flags.toml
expect_error '--out ./flags.toml is the file of --config; give it a file of its own' "$program" calibrate --config flags.toml --out ./flags.toml
contains flags.toml '^repeats = 1$'
mkdir folder
expect_error '--out folder: cannot be written: Is a directory' "$program" calibrate --out folder --repeats 1000
expect_error '--repeats 0' "$program" calibrate --repeats 0

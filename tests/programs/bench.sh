#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every bench at tiny sizes: each line is JSON with its fields and possible values. Nothing here asserts a time.
set -euo pipefail
program=$1

# check COMMAND... < expectations: runs the bench, then the Python of standard input on its lines.
check() {
  "$program" bench "$@" --repeats 2 > lines.txt
  python3 -c '
import json, sys
lines = [json.loads(line) for line in open("lines.txt")]
assert lines, "no line"
def positive(line, *names):
    for name in names:
        assert isinstance(line[name], (int, float)) and line[name] > 0, (name, line)
exec(sys.stdin.read())
'
}
model="--hidden 64 --intermediate 96 --layers 2 --heads 4 --kv-heads 2 --vocab 128 --seq-len 48"

check mlp --hidden 32 --intermediate 48 --seq-len 40 <<'PY'
assert [line["tiling"] for line in lines] == ["off", "tiles:4", "tokens:1024"]
for line in lines:
    assert line["seq"] == 40 and line["precision"] == "bf16"
    positive(line, "forward_ms", "backward_ms", "gemm_floor_ms", "module_gemm_ms", "ratio", "threads")
    parts = ("activation_bytes", "stream_bytes", "weight_bytes", "gradient_bytes")
    positive(line, *parts)
    assert line["peak_bytes"] == sum(line[part] for part in parts)
    assert ("ratio_to_untiled" in line) == (line["tiling"] != "off")
assert lines[1]["activation_bytes"] < lines[0]["activation_bytes"]
PY

check mlp --hidden 32 --intermediate 48 --seq-len 40 --tiling tokens:16 --precision fp32 <<'PY'
assert len(lines) == 1 and lines[0]["tiling"] == "tokens:16" and lines[0]["precision"] == "fp32"
positive(lines[0], "ratio_to_untiled")
PY

step_expectations='
assert len(lines) == 1
line = lines[0]
positive(line, "tokens_per_second", "step_ms", "floor_ms", "ratio", "peak_bytes", "floor_matmul_ms", "floor_attention_ms",
         "floor_elementwise_ms", "floor_optimizer_ms", "forward_ms", "loss_ms", "backward_ms", "optimizer_ms", "loss")
assert line["allocations"] == 0, line
assert line["communication_ms"] >= 0 and line["waiting_ms"] >= 0 and 0 <= line["communication_share"] < 1
'
for precision in fp32 bf16; do
  check step $model --precision $precision --tiling tiles:2 <<PY
$step_expectations
assert line["ranks"] == 1 and line["copied_bytes"] == 0
positive(line, "bare_loop_ms", "ratio_to_bare_loop")
assert line["bare_loop_loss"] == line["loss"], "the hand-written loop must compute the same"
PY
done
for sharding in fsdp2 zero3 replicated; do
  check step $model --sharding $sharding --comm threads:2 <<PY
$step_expectations
assert line["ranks"] == 2 and line["copied_bytes"] > 0 and "bare_loop_ms" not in line
PY
done

check comm --bytes 100000 <<'PY'
assert [line["op"] for line in lines] == ["all_gather", "reduce_scatter", "all_reduce"]
for line in lines:
    assert line["backend"] == "threads" and line["ranks"] == 2 and line["bytes"] == 100000
    positive(line, "ms", "gb_per_second", "memcpy_gb_per_second", "ratio")
PY
check comm --bytes 4 --comm threads:3 <<< 'assert len(lines) == 3 and lines[0]["ranks"] == 3'

check optim --parameters 1000 <<'PY'
assert [line["precision"] for line in lines] == ["bf16", "fp32"]
assert [line["bytes_per_parameter"] for line in lines] == [30, 28]
for line in lines:
    assert line["parameters"] == 1000
    positive(line, "gb_per_second", "triad_gb_per_second", "ratio")
PY

# refused WORDS...: status 2 and one line that names the flag.
refused() {
  local status=0
  "$program" bench "$@" > out.txt 2> err.txt || status=$?
  if [ $status != 2 ] || [ "$(wc -l < err.txt)" != 1 ] || ! grep -q -e "${2#--}" err.txt; then
    echo "bench $*: status $status, $(cat err.txt)"
    exit 1
  fi
}
refused step --repeats 0
refused step --heads 3
refused mlp --seq-len -1
refused comm --bytes 1
refused optim --parameters 0
echo "bench: all lines are as described"

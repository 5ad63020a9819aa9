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
for line in lines:  # figures are rounded to five digits; losses are not
    for name, value in line.items():
        if isinstance(value, float) and not name.endswith("loss"):
            assert value == (float("%.5g" % value) if abs(value) < 1e5 else round(value)), (name, value)
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

check attention --seq-len 96 --heads 2 --kv-heads 1 <<'PY'
assert [line["head_dim"] for line in lines] == [64, 128]
for line in lines:
    assert line["seq"] == 96 and line["heads"] == 2 and line["kv_heads"] == 1 and line["precision"] == "bf16"
    positive(line, "forward_ms", "backward_ms", "scratch_bytes", "matmul_gflops", "forward_ratio", "backward_ratio")
PY
check attention --seq-len 33 --heads 1 --kv-heads 1 --head-dim 6 --precision fp32 <<'PY'
assert len(lines) == 1 and lines[0]["head_dim"] == 6 and lines[0]["precision"] == "fp32"
PY

check head --seq-len 40 --hidden 32 --vocab 500 <<'PY'
assert len(lines) == 1 and lines[0]["tiling"] == "tokens:1024" and lines[0]["vocabulary"] == 500
positive(lines[0], "ms", "matmul_ms", "ratio", "planned_bytes")
assert lines[0]["arena_bytes"] >= lines[0]["planned_bytes"]
PY
check head --seq-len 512 --hidden 32 --vocab 500 --tiling budget:60000 --precision fp32 <<'PY'
line = lines[0]
assert line["tokens_per_tile"] < 512 and line["columns_per_block"] < 500 and line["planned_bytes"] <= 60000
PY

check mlp --table --hidden 64 --intermediate 192 --seq-len 500 --comm threads:3 <<'PY'
assert [line["tiling"].split(":")[0] for line in lines] == ["off", "tiles", "tokens", "budget"]
for line in lines:
    assert line["bench"] == "mlp_table" and line["ranks"] == 3 and line["seq"] == 500
    positive(line, "forward_ms", "backward_ms", "peak_bytes", "activation_bytes")
    assert line["peak_bytes"] <= lines[0]["peak_bytes"]
    assert ("ratio_to_untiled" in line) == (line["tiling"] != "off")
assert abs(lines[1]["flops_to_untiled"] - 22 / 18) < 1e-4 and lines[1]["peak_bytes"] < lines[0]["peak_bytes"]
PY

"$program" bench mlp --table --dry-run --threads 1 > lines.txt
python3 - <<'PY'
import json
lines = [json.loads(line) for line in open("lines.txt")]
table = {(line["seq"], line["tiling"].split(":")[0]): line for line in lines}
assert len(table) == len(lines) == 7 * 4
for (seq, tiling), line in table.items():
    assert line["hidden"] == 4096 and line["intermediate"] == 12288 and line["ranks"] == 2
    assert "forward_ms" not in line and line["threads"] >= 1
    assert line["peak_bytes"] == sum(line[part] for part in line if part.endswith("_bytes")
                                     and part != "peak_bytes" and not part.startswith("published")), line
    assert line["peak_bytes"] <= table[seq, "off"]["peak_bytes"], line
    assert line["published_untiled_bytes"] > 0 and line["published_tiled_bytes"] > 0
    if tiling == "budget":  # may use what the published tiled run uses; that counts one sharded copy of the weights
        as_published = line["peak_bytes"] - line["model_bytes"] - line["gradient_shard_bytes"]
        assert as_published <= line["published_tiled_bytes"], line
        assert line["flops_to_untiled"] <= 1.06, line
longest = 131072
assert table[longest, "off"]["published_untiled_bytes"] == 22240 << 20
assert table[longest, "off"]["published_tiled_bytes"] == 10176 << 20
assert table[longest, "tokens"]["peak_bytes"] <= 4.84 * 2**30, table[longest, "tokens"]
assert table[longest, "tiles"]["peak_bytes"] <= 6.81 * 2**30, table[longest, "tiles"]
PY
python3 "$(dirname "$0")/../../bench/figure.py" lines.txt figure.svg
python3 - <<'PY'
import xml.etree.ElementTree as tree
marks = [mark for mark in tree.parse("figure.svg").iter() if mark.tag.endswith("circle")]
assert len(marks) == 7 * 4 and all(mark.get("fill") == "#fff" for mark in marks), "nothing of a dry run was run"
PY

step_expectations='
assert len(lines) == 1
line = lines[0]
positive(line, "tokens_per_second", "step_ms", "floor_ms", "ratio", "peak_bytes", "floor_matmul_ms", "floor_attention_ms",
         "floor_elementwise_ms", "floor_optimizer_ms", "forward_ms", "loss_ms", "backward_ms", "optimizer_ms", "loss")
assert line["allocations"] == 0, line
assert line["loss"] != float("%.5g" % line["loss"]), "the loss has all its digits"
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
# shellcheck disable=SC2086
check step ${model/layers 2/layers 3} --comm threads:2 --offload inputs <<'PY'
assert len(lines) == 1
positive(lines[0], "recomputed_ms", "offloaded_ms", "offloaded_time_ratio", "offloaded_memory_ratio")
assert lines[0]["offloaded_memory_ratio"] < 1
assert lines[0]["offloaded_host_bytes"] == 2 * 48 * 64 * 2, "the inputs of all blocks but the last, in bf16"
PY
for sharding in zero3 replicated fsdp2 hybrid:2; do
  check step $model --sharding $sharding --comm threads:2 <<PY
$step_expectations
assert line["ranks"] == 2 and line["copied_bytes"] > 0 and "bare_loop_ms" not in line
if "$sharding" == "hybrid:2":  # all ranks are one group, so its axis sends what fsdp2's world does
    assert line["copied_bytes"] == json.load(open("fsdp2.txt"))["copied_bytes"]
PY
  cp lines.txt $sharding.txt
done

# Ranks that share sequences against whole ones: the same sequences, so the same losses but for rounding.
for sequence in ulysses:2 ulysses:2:parts=2; do
  # shellcheck disable=SC2086
  check step ${model/layers 2/layers 1} --comm threads:4 --precision fp32 --sequence $sequence --lora-rank 2 <<PY
$step_expectations
assert line["ranks"] == 4 and line["sequence"] == "$sequence"
positive(line, "whole_ms", "whole_time_ratio", "activation_bytes", "whole_activation_bytes", "lora_ms")
assert line["activation_bytes"] < line["whole_activation_bytes"]
assert abs(line["loss"] - line["whole_loss"]) < 1e-6 * line["loss"], line
PY
done

# Budgets from the bytes of fsdp2 to those of no-reshard: within them, and the more the less is gathered.
check residency ${model/layers 2/layers 6} <<'PY'
names, slots, gathered = ([line[name] for line in lines] for name in ("sharding", "slot_bytes", "gathered_bytes"))
assert names[:2] == ["fsdp2", "fsdp2:no-reshard"] and len(lines) == 6
budgets = [int(name.removeprefix("fsdp2:budget=")) for name in names[2:]]
assert budgets[0] == slots[0] < budgets[1] < budgets[2] < budgets[3] == slots[1]
assert all(taken <= budget for taken, budget in zip(slots[2:], budgets))
assert gathered[0] >= gathered[2] > gathered[3] > gathered[4] > gathered[5] and gathered[5] <= gathered[1]
for line in lines:
    positive(line, "step_ms", "time_ratio")
    assert line["ranks"] == 2
PY
check step $model --optimizer sgd --momentum 0 <<PY
$step_expectations
assert line["optimizer"] == "sgd" and "bare_loop_ms" not in line and "owners_balance" not in line
PY
check step $model --optimizer muon --layout owned --comm threads:2 <<PY
$step_expectations
assert line["optimizer"] == "muon" and 1 <= line["owners_balance"] < 1.5, line
PY

golden=${TESSERA_TEST_DATA:-$(dirname "$0")/..}/golden
for ranks in 1 2; do
  check generate $model --comm threads:$ranks --precision fp32 <<PY
line = lines[0]
assert len(lines) == 1 and line["ranks"] == $ranks and line["tokens"] == 48
assert line["weight_bytes"] == 4 * (line["parameters"] - 128 * 64)  # one row of the embedding is read
assert line["cache_bytes"] == 48 * 2 * 2 * 2 * 16 * 4  # tokens, layers, keys and values, heads, head size, bytes
positive(line, "token_ms", "read_ms", "ratio", "tokens_per_second")
PY
  check load --model "$golden/qwen3-window" --comm threads:$ranks --sharding zero3 <<PY
import os
line = lines[0]
assert len(lines) == 1 and line["ranks"] == $ranks and line["files"] == 1
assert line["bytes"] == os.path.getsize("$golden/qwen3-window/model.safetensors")
positive(line, "load_ms", "read_ms", "ratio", "gb_per_second")
PY
done
check step --model "$golden/qwen2-yarn" --seq-len 32 <<< 'assert "bare_loop_ms" not in lines[0]; positive(lines[0], "step_ms")'

check comm --bytes 100000 <<'PY'
assert [line["op"] for line in lines] == ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]
for line in lines:
    assert line["backend"] == "threads" and line["ranks"] == 2 and line["bytes"] == 100000
    positive(line, "ms", "gb_per_second", "memcpy_gb_per_second", "ratio")
PY
check comm --bytes 4 --comm threads:3 <<< 'assert len(lines) == 4 and lines[0]["ranks"] == 3'

check optim --parameters 1000 --hidden 64 --intermediate 96 --heads 4 --kv-heads 2 --comm threads:3 <<'PY'
muon = [line for line in lines if line["bench"] == "muon"]
lines = [line for line in lines if line["bench"] == "optim"]
assert [line["precision"] for line in muon] == ["bf16", "fp32"]
for line in muon:
    assert line["parameters"] == 64 * (2 * 64 + 2 * 32 + 3 * 96) and line["ranks"] == 3
    positive(line, "ms", "adamw_ms", "ratio", "gflops")
    assert 1 <= line["work_balance"] < 1.34 and 1 <= line["bytes_balance"] < 1.6, line
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
refused step --table
refused residency --sharding zero2
refused mlp --up-to 4
refused mlp --dry-run
refused step --heads 3
refused attention --heads 3
refused attention --head-dim -1
refused head --vocab -1
refused mlp --seq-len -1
refused comm --bytes 1
refused optim --parameters 0
refused mlp --optimizer sgd
refused mlp --model "$golden/qwen2-yarn"
refused load --model ""
refused generate --seq-len 1
refused mlp --sequence ulysses:2
refused step --sequence ulysses:2
refused step --sequence ulysses:3 --comm threads:3
refused step --sequence ulysses:2:parts=3 --comm threads:2
refused step --sequence ulysses:2 --comm threads:2 --seq-len 1
refused step --sequence ulysses:2 --comm threads:2 --sharding hybrid:2 --heads 2 --kv-heads 1
echo "bench: all lines are as described"

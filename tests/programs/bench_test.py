# SPDX-License-Identifier: Apache-2.0
"""Every bench of tessera_bench at tiny sizes: each line is JSON with its fields and possible values. Nothing here asserts a time."""
import json
import os
import sys
from xml.etree import ElementTree

import pytest
from support.files import GOLDEN, TESTS, write
from support.program import run

MODEL = "--hidden 64 --intermediate 96 --heads 4 --kv-heads 2 --vocab 128 --seq-len 48"


@pytest.fixture
def bench(program):
    """Runs one and returns its lines, in each of which these fields are above zero and those have these values."""
    def lines(command, above_zero="", **fields):
        made = [json.loads(line) for line in program(command, "--repeats 2").out.splitlines()]
        assert made, "no line"
        for line in made:
            for name, value in line.items():
                if isinstance(value, float) and not name.endswith("loss"):  # losses have all their digits
                    assert value == (float(f"{value:.5g}") if abs(value) < 1e5 else round(value)), (name, value)
            for name in above_zero.split():
                assert isinstance(line[name], (int, float)) and line[name] > 0, (name, line)
            for name, value in fields.items():
                assert line[name] == value, (name, line)
        return made
    return lines


def test_mlp(bench):
    parts = "activation_bytes stream_bytes weight_bytes gradient_bytes"
    lines = bench("mlp --hidden 32 --intermediate 48 --seq-len 40",
                  f"forward_ms backward_ms gemm_floor_ms module_gemm_ms ratio threads {parts}",
                  seq=40, precision="bf16")
    assert [line["tiling"] for line in lines] == ["off", "tiles:4", "tokens:1024"]
    for line in lines:
        assert line["peak_bytes"] == sum(line[part] for part in parts.split())
        assert ("ratio_to_untiled" in line) == (line["tiling"] != "off")
    assert lines[1]["activation_bytes"] < lines[0]["activation_bytes"]
    _, = bench("mlp --hidden 32 --intermediate 48 --seq-len 40 --tiling tokens:16 --precision fp32", "ratio_to_untiled",
               tiling="tokens:16", precision="fp32")


def test_attention(bench):
    lines = bench("attention --seq-len 96 --heads 2 --kv-heads 1",
                  "forward_ms backward_ms scratch_bytes matmul_gflops forward_ratio backward_ratio",
                  seq=96, heads=2, kv_heads=1, precision="bf16")
    assert [line["head_dim"] for line in lines] == [64, 128]
    _, = bench("attention --seq-len 33 --heads 1 --kv-heads 1 --head-dim 6 --precision fp32",
               head_dim=6, precision="fp32")


def test_head(bench):
    line, = bench("head --seq-len 40 --hidden 32 --vocab 500", "ms matmul_ms ratio planned_bytes",
                  tiling="tokens:1024", vocabulary=500)
    assert line["arena_bytes"] >= line["planned_bytes"]
    line = bench("head --seq-len 512 --hidden 32 --vocab 500 --tiling budget:60000 --precision fp32")[0]
    assert line["tokens_per_tile"] < 512 and line["columns_per_block"] < 500 and line["planned_bytes"] <= 60000


def test_table_of_mlp(bench):
    lines = bench("mlp --table --hidden 64 --intermediate 192 --seq-len 500 --comm threads:3",
                  "forward_ms backward_ms peak_bytes activation_bytes", bench="mlp_table", ranks=3, seq=500)
    assert [line["tiling"].split(":")[0] for line in lines] == ["off", "tiles", "tokens", "budget"]
    for line in lines:
        assert line["peak_bytes"] <= lines[0]["peak_bytes"]
        assert ("ratio_to_untiled" in line) == (line["tiling"] != "off")
    assert abs(lines[1]["flops_to_untiled"] - 22 / 18) < 1e-4 and lines[1]["peak_bytes"] < lines[0]["peak_bytes"]


def test_table_of_mlp_by_dry_run(program):
    write("lines.txt", program("mlp --table --dry-run --threads 1").out)
    with open("lines.txt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
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
            assert as_published <= line["published_tiled_bytes"] and line["flops_to_untiled"] <= 1.06, line
    longest = {tiling: line for (seq, tiling), line in table.items() if seq == 131072}
    assert longest["off"]["published_untiled_bytes"] == 22240 << 20
    assert longest["off"]["published_tiled_bytes"] == 10176 << 20
    assert longest["tokens"]["peak_bytes"] <= 4.84 * 2**30, longest["tokens"]
    assert longest["tiles"]["peak_bytes"] <= 6.81 * 2**30, longest["tiles"]

    run([sys.executable, TESTS.parent / "bench/figure.py", "lines.txt", "figure.svg"])
    marks = [mark for mark in ElementTree.parse("figure.svg").iter() if mark.tag.endswith("circle")]
    assert len(marks) == 7 * 4 and all(mark.get("fill") == "#fff" for mark in marks), "a dry run measures nothing"


@pytest.fixture
def step(bench):
    def one(words, above_zero="", **fields):
        line, = bench(f"step {MODEL} {words}", "tokens_per_second step_ms floor_ms ratio peak_bytes floor_matmul_ms "
                      "floor_attention_ms floor_elementwise_ms floor_optimizer_ms forward_ms loss_ms backward_ms "
                      f"optimizer_ms loss {above_zero}", allocations=0, **fields)
        assert line["loss"] != float(f"{line['loss']:.5g}"), "the loss has all its digits"
        assert line["communication_ms"] >= 0 and line["waiting_ms"] >= 0 and 0 <= line["communication_share"] < 1
        return line
    return one


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_step_computes_the_same_as_the_hand_written_loop(step, precision):
    line = step(f"--layers 2 --precision {precision} --tiling tiles:2", "bare_loop_ms ratio_to_bare_loop",
                ranks=1, copied_bytes=0)
    assert line["bare_loop_loss"] == line["loss"]


def test_step_with_offloaded_inputs(bench):
    line, = bench(f"step {MODEL} --layers 3 --comm threads:2 --offload inputs",
                  "recomputed_ms offloaded_ms offloaded_time_ratio offloaded_memory_ratio",
                  offloaded_host_bytes=2 * 48 * 64 * 2)  # the inputs of all blocks but the last, in bf16
    assert line["offloaded_memory_ratio"] < 1


def test_step_of_two_ranks(step):
    copied = {}
    for sharding in ("zero3", "replicated", "fsdp2", "hybrid:2"):
        line = step(f"--layers 2 --sharding {sharding} --comm threads:2", "copied_bytes", ranks=2)
        assert "bare_loop_ms" not in line
        copied[sharding] = line["copied_bytes"]
    assert copied["hybrid:2"] == copied["fsdp2"], "all ranks are one group"


@pytest.mark.parametrize("sequence", ["ulysses:2", "ulysses:2:parts=2"])
def test_step_of_shared_sequences_has_the_loss_of_whole_ones(step, sequence):
    line = step(f"--layers 1 --comm threads:4 --precision fp32 --sequence {sequence} --lora-rank 2",
                "whole_ms whole_time_ratio activation_bytes whole_activation_bytes lora_ms", ranks=4, sequence=sequence)
    assert line["activation_bytes"] < line["whole_activation_bytes"]
    assert abs(line["loss"] - line["whole_loss"]) < 1e-6 * line["loss"], line


def test_step_of_other_optimizers(step):
    line = step("--layers 2 --optimizer sgd --momentum 0", optimizer="sgd")
    assert "bare_loop_ms" not in line and "owners_balance" not in line
    line = step("--layers 2 --optimizer muon --layout owned --comm threads:2", optimizer="muon")
    assert 1 <= line["owners_balance"] < 1.5, line


def test_step_of_a_folder(bench):
    assert "bare_loop_ms" not in bench(f"step --model '{GOLDEN}/qwen2-yarn' --seq-len 32", "step_ms")[0]


def test_residency_gathers_less_within_larger_budgets(bench):
    lines = bench(f"residency {MODEL} --layers 6", "step_ms time_ratio", ranks=2)
    names, slots, gathered = ([line[name] for line in lines] for name in ("sharding", "slot_bytes", "gathered_bytes"))
    assert names[:2] == ["fsdp2", "fsdp2:no-reshard"] and len(lines) == 6
    budgets = [int(name.removeprefix("fsdp2:budget=")) for name in names[2:]]
    assert budgets[0] == slots[0] < budgets[1] < budgets[2] < budgets[3] == slots[1]
    assert all(taken <= budget for taken, budget in zip(slots[2:], budgets))
    assert gathered[0] >= gathered[2] > gathered[3] > gathered[4] > gathered[5] and gathered[5] <= gathered[1]


@pytest.mark.parametrize("ranks", [1, 2])
def test_generate_and_load(bench, ranks):
    line, = bench(f"generate {MODEL} --layers 2 --comm threads:{ranks} --precision fp32",
                  "token_ms read_ms ratio tokens_per_second", ranks=ranks, tokens=48,
                  cache_bytes=48 * 2 * 2 * 2 * 16 * 4)  # tokens, layers, keys and values, heads, head size, bytes
    assert line["weight_bytes"] == 4 * (line["parameters"] - 128 * 64)  # one row of the embedding is read
    _, = bench(f"load --model '{GOLDEN}/qwen3-window' --comm threads:{ranks} --sharding zero3",
               "load_ms read_ms ratio gb_per_second", ranks=ranks, files=1,
               bytes=os.path.getsize(GOLDEN / "qwen3-window/model.safetensors"))


def test_comm(bench):
    lines = bench("comm --bytes 100000", "ms gb_per_second memcpy_gb_per_second ratio",
                  backend="threads", ranks=2, bytes=100000)
    assert [line["op"] for line in lines] == ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]
    assert len(bench("comm --bytes 4 --comm threads:3", ranks=3)) == 4


def test_optim(bench):
    lines = bench("optim --parameters 1000 --hidden 64 --intermediate 96 --heads 4 --kv-heads 2 --comm threads:3",
                  "ratio")
    muon, optim = ([line for line in lines if line["bench"] == name] for name in ("muon", "optim"))
    assert [line["precision"] for line in muon] == ["bf16", "fp32"] == [line["precision"] for line in optim]
    for line in muon:
        assert line["parameters"] == 64 * (2 * 64 + 2 * 32 + 3 * 96) and line["ranks"] == 3
        assert min(line[name] for name in ("ms", "adamw_ms", "gflops")) > 0, line
        assert 1 <= line["work_balance"] < 1.34 and 1 <= line["bytes_balance"] < 1.6, line
    for line, size in zip(optim, [30, 28]):
        assert line["parameters"] == 1000 and line["bytes_per_parameter"] == size
        assert line["gb_per_second"] > 0 and line["triad_gb_per_second"] > 0, line


@pytest.mark.parametrize("pattern, command", [
    *((command.split()[1].removeprefix("--"), command) for command in (  # names the flag
        "step --repeats 0", "step --table", "residency --sharding zero2", "mlp --up-to 4", "mlp --dry-run", "step --heads 3",
        "attention --heads 3", "attention --head-dim -1", "head --vocab -1", "mlp --seq-len -1", "comm --bytes 1",
        "optim --parameters 0", "mlp --optimizer sgd", f"mlp --model '{GOLDEN}/qwen2-yarn'", "load --model ''",
        "generate --seq-len 1", "mlp --sequence ulysses:2", "step --sequence ulysses:2",
        "step --sequence ulysses:3 --comm threads:3", "step --sequence ulysses:2:parts=3 --comm threads:2",
        "step --sequence ulysses:2 --comm threads:2 --seq-len 1",
        "step --sequence ulysses:2 --comm threads:2 --sharding hybrid:2 --heads 2 --kv-heads 1")),
    (r"no bench is called 'setp'; did you mean 'step'", "setp"), (r"argument what '' is empty", ["", "--hidden", 1]),
    (r"bench: --precision bf16:wire=bf16 says what ranks send", "mlp --precision bf16:wire=bf16"),
    (r"bench step: --offload optimizer: no bench is compiled with it", "step --offload optimizer"),
    (r"foreign: 'us' is not use, unet or mlp", "foreign us"), (r"unknown flag --unit; did you mean --units", "foreign use --unit 1"),
    (r"--matmul blas: known are eigen, openblas and tessera", "foreign mlp --matmul blas"),
    (r"--ROUNDS 0 must be at least 1", "plan 0"), (r"did you mean 'plan'", "plann")])
def test_is_refused(program, pattern, command):
    program.refuses(pattern, command)


def test_help_names_the_flags(program):
    names = "config sharding precision offload tiling comm threads deadline shared-windows help seq-len repeats lora-rank"
    program("--help").prints(*(f"^  (-h,)?--{name}[ =]" for name in names.split()))


def test_foreign_loops(bench):
    assert [line["ranks"] for line in bench("foreign use --units 3", "pass_us bare_us")] == [1, 2]
    one, two = bench("foreign unet --pictures 2", "step_us bare_loop_us loss")
    assert one["loss"] == one["bare_loop_loss"] and two["exchange_bytes"] > 0
    losses = {name: bench(f"foreign mlp --layers 2 --width 32 --rows 8 --matmul {name}", "step_ms matmul_ms cpu_ms held_bytes",
                          matmul=name, ranks=2)[0]["loss"] for name in ("eigen", "tessera")}
    assert abs(losses["eigen"] - losses["tessera"]) <= 1e-4 * losses["eigen"], losses

# SPDX-License-Identifier: Apache-2.0
"""The examples do what their comments and pages promise. Tests of one are chosen by -k NAME, such as 01_trainer."""
import re

import pytest
from support.files import TESTS, close, falls, lines_with, read, same, steps, write

TEXT_BYTES = 4000
EXAMPLES = TESTS.parent / "examples"
TINY = "--data text.txt --model tiny --ranks 2 --threads 1 --seq-len 32 --steps 8 --lr 3e-3 --metrics metrics.jsonl"
LION = ("--data text.txt --model tiny --seq-len 32 --batch-size 8 --steps 12 --lr 1e-3 --lr-schedule constant "
        "--threads 1 --weight-decay 0.05")
GPT2 = "--data text.txt --batch-size 8 --lr 3e-3 --ranks 2 --threads 1"
SIZES = "--n-layer 1 --n-embd 32 --n-head 2"
COUNTED = {"17_inside_a_program": {r"^  step 10  loss 0\.": 2},  # both continue to the end
           "18_redistribute": {"^rank [012] has elements .*; the first sum is 6$": 6}}


def losses(printed):
    return [float(loss) for loss in re.findall(r"^ *step .*  loss ([0-9.]+)", printed, re.M)]


def lines(path):
    return read(EXAMPLES / path).splitlines()


@pytest.mark.parametrize("name, arguments, printed, omitted", [
    ("01_trainer", "", ["^fsdp2 / threads / bf16, 4 ranks"], []),
    ("02_own_policies", "", ["^mine:ahead=2 / threads / mine::Precision, 4 ranks", "^tiling: head, 4 tiles"], []),
    ("02_own_policies", "--help", [], ["--(sharding|precision|tiling)"]),
    ("07_own_optimizer", "--help", [f"^  --{flag}" for flag in ("beta1", "beta2", "weight-decay", "hidden", "model")],
     ["--(optimizer|eps|momentum|sharding)"]),
    ("07_own_optimizer", "--dry-run --model tiny --ranks 2", ["optimizer"], []),
    ("09_test_a_policy", "--gtest_brief=1", ["PASSED"], ["SKIPPED"]),
    ("21_own_codec", "--gtest_brief=1", ["PASSED"], ["SKIPPED"]),
    ("20_tokenize_a_chat", f"{TESTS}/text/tokenizers/qwen.json chatml",
     ["^<[|]im_start[|]>assistant$", r"^ *[0-9]+   <[|]im_start[|]>$", r"^ *[0-9]+ [*] <[|]im_end[|]>$"], []),
    ("13_gpt2", "", ["^fsdp2 / threads / bf16, 4 ranks"], []),
    ("13_gpt2", "--help", [f"^  --{flag}[ =]" for flag in ("model", "vocab", "n-positions", "n-embd", "n-layer", "n-head",
                                                            "layer-norm-epsilon", "optimizer", "ranks")],
     ["^  --(hidden|kv-heads|sharding)"]),
    ("17_inside_a_program", "", ["step 4: rank 1 gave its pass up, all skip it", "a rank heard: .*rank 1"], []),
    ("18_redistribute", "", ["^whole, its last element is 106; the gather moved 108 bytes here, the reduction 44$"], [])])
def test_prints(program, name, arguments, printed, omitted):
    assert name == program.path.name
    ended = program(arguments).prints(*printed).omits(*omitted)
    for pattern, count in COUNTED.get(name, {}).items():
        assert len(lines_with(pattern, ended.out)) == count, ended


@pytest.mark.parametrize("name, pattern, arguments", [
    ("07_own_optimizer", "--optimizer is fixed by this program: lion", f"{LION} --optimizer adamw"),
    ("07_own_optimizer", "unknown flag --eps", f"{LION} --eps 1"),
    ("13_gpt2", "unknown flag --hidden", f"{GPT2} --hidden 32"),
    ("20_tokenize_a_chat", "absent/tokenizer.json: no such file", "absent/tokenizer.json"),
    ("13_gpt2", "n-layer '1.5' is not a whole number", f"{GPT2} --n-layer 1.5")])
def test_refused(program, name, pattern, arguments):
    assert name == program.path.name
    program.refuses(pattern, arguments)


def test_01_trainer(program):
    assert sum(not line.startswith("//") for line in lines("01_trainer/main.cpp")) <= 16
    program(TINY)
    falls("metrics.jsonl")


def test_02_own_policies(program):
    program(TINY)
    falls("metrics.jsonl")
    assert '"stack":"mine:ahead=2 threads:2 mine::Precision mine::Tiles"' in read("metrics.jsonl")


def test_03_own_loop(program):
    source = lines("03_own_loop/main.cpp")
    first = next(index for index, line in enumerate(source) if line.startswith("int main"))
    assert len(source) - first <= 25
    values = losses(program().out)
    assert len(values) >= 4 and all(later < earlier for earlier, later in zip(values, values[1:])), values


def test_04_own_strategy_by_rules_and_by_schedule_is_bit_identical(program):
    ended = program().prints("^micro-batch 0  gather          block 1",
                             "^a gather left out: .*task 3, forward block 0: the weights of block 0 are not gathered")
    assert len(set(re.findall("^by .*: *loss (.*)", ended.out, re.M))) == 1


def test_05_own_communicator_counts_the_bytes_of_docs_communication(program):
    """U + L - 1 gathers of bf16 and two small ones, U reductions of floats: 4 (N - 1) / N bytes a weight."""
    out = program().prints("^world of 1: 0 gathers brought 0 bytes, 0 reductions 0$").out
    weights, = re.findall("^(.*) weights$", out, re.M)
    assert len(re.findall("^world of ", out, re.M)) == 4
    for ranks in (2, 3, 4):
        reduced, = re.findall(f"^world of {ranks}: 9 gathers brought [0-9]+ bytes, 5 reductions ([0-9]+)$", out, re.M)
        share = int(reduced) * ranks / (4 * int(weights) * (ranks - 1))  # rank 0 has padding
        assert 1 <= share < 1.011, (ranks, share)


def test_06_own_model_forecasts_without_tokens(program):
    out = program("saved").prints("^step 60/60 .* [0-9,]+ points/s  peak ", "^trained 60 steps, 30720 points in ").out
    assert "tok" not in out
    assert sum(line.count("@") for line in out.splitlines() if "|" in line) >= 8, "the forecast covers what happened"
    values = losses(out)
    assert len(values) >= 5 and values[-1] < 0.1 * values[0], values
    write("taken", "")
    program.refuses("^tessera: rank 0: --checkpoint-dir taken: cannot be written: .*Not a directory$", "taken")


def test_07_own_optimizer_trains_and_resumes(program):
    program(LION, "--ranks 2 --metrics whole.jsonl --checkpoint-dir whole --checkpoint-every 6").prints(
        "optimizer lion, beta1 0.9, beta2 0.99, weight-decay 0.05")
    assert '"optimizer":{"name":"lion","beta1":0.9,"beta2":0.99,"weight-decay":0.05}' in read("whole.jsonl")
    falls("whole.jsonl")
    assert "lion" in read("whole/step-00000006/trainer.json")

    program(LION, "--ranks 2 --metrics again.jsonl --checkpoint-dir again --resume whole/step-00000006")
    assert steps("whole.jsonl", 7) == steps("again.jsonl", 7)
    for file in ("model", "optimizer"):
        same(f"whole/step-00000012/{file}.safetensors", f"again/step-00000012/{file}.safetensors")
    program(LION, "--ranks 4 --metrics other.jsonl --resume whole/step-00000006")
    close(steps("other.jsonl"), steps("whole.jsonl", 7), 1e-2)


def test_08_plan_memory(program):
    rows = [line.split() for line in program().out.splitlines()]
    assert len(rows) == 13, "12 plans and their header"
    peak = {row[0]: float(row[-1]) for row in rows if row[1] == "64"}
    assert peak["zero1"] > peak["zero2"] > peak["zero3"] > 0


def test_10_resume_elsewhere_has_the_losses_of_the_whole_run(program):
    ended = program("saved").prints("^resumed: the stack was fsdp2 threads:2 fp32 off, is zero3 threads:3 fp32 off")
    runs = [re.findall(r"^step (\d+)/40  loss ([0-9.]+)", part, re.M) for part in ended.out.split("== steps 21 to 40")]
    first, second = ({int(step): float(loss) for step, loss in found} for found in runs)
    assert sorted(second) == [21, 25, 30, 35, 40]
    assert all(abs(second[step] - first[step]) < 2e-4 for step in (25, 30, 35, 40)), (first, second)


def test_11_mpi(program):
    values = losses(program.under("mpirun --oversubscribe -np 2")().prints("^rank 1 of 2 on ").out)
    assert len(values) == 4 and values[3] < 0.5 * values[0], values


def test_13_gpt2_trains_and_resumes(program):
    program(GPT2, SIZES, "--seq-len 32 --steps 8 --metrics whole.jsonl --checkpoint-dir whole --checkpoint-every 4")
    assert '"sizes":{"vocab_size":256,"n_positions":256,"n_embd":32,"n_layer":1,"n_head":2' in read("whole.jsonl")
    falls("whole.jsonl")
    program(GPT2, SIZES, "--seq-len 32 --steps 8 --metrics again.jsonl --resume whole/step-00000004")
    assert steps("whole.jsonl", 5) == steps("again.jsonl", 5)
    program(GPT2, "--seq-len 32 --model whole/step-00000008 --steps 1").prints("n_embd 32, n_layer 1")
    program.refuses("is a folder whose config.json gives all sizes; drop --n-head, --n-layer",
                    GPT2, "--model whole/step-00000008 --n-layer 2 --n-head 2")
    program(GPT2, SIZES, "--seq-len 300 --optimizer sgd --steps 1 --checkpoint-dir long")
    assert '"n_positions": 300' in read("long/step-00000001/config.json")


def test_14_eigen_unet(program):
    assert len(lines("14_eigen_unet/main.cpp") + lines("14_eigen_unet/units.hpp")) <= 150, "besides the network"
    assert "tessera" not in read(EXAMPLES / "14_eigen_unet/unet.hpp"), "the network includes nothing of Tessera"
    out = program().out
    held = [int(size) for size in re.findall("^rank .* holds ([0-9]+) bytes", out, re.M)]
    assert len(held) == 3 and held[0] > held[1] > held[2], held
    values = losses(out)
    assert len(values) == 4 and values[3] < 0.4 * values[0], values


def test_16_recommender_moves_a_small_part_of_the_table(program):
    out = program().prints("; the table has 640000$").out
    rows = re.findall(r"^step +(\d+)  loss ([0-9.]+)  moved (\d+) bytes", out, re.M)
    loss = {step: float(value) for step, value, _ in rows}
    assert loss["0"] > 0.5 and loss["200"] < 0.01, loss
    assert len(rows) == len(losses(out)) and all(int(moved) * 20 <= 640000 for *_, moved in rows), rows


def test_19_own_sequence_trains_the_same_by_shared_sequences(program):
    """4 exchanges for each of its 2 blocks."""
    out = program().prints("^two ranks share each sequence$", "^  8 exchanges a step, [0-9]+ bytes of activations$").out
    whole, shared = map(losses, out.split("\ntwo "))
    close(shared, whole, 1e-4)
    assert len(shared) == 4 and shared[-1] < 0.7 * shared[0], shared

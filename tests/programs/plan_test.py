# SPDX-License-Identifier: Apache-2.0
"""`tessera plan`: bytes of a dry run, collectives of a run, a step in virtual time; errors of clusters and flags."""
import itertools
import json
import os
import re
import sys

import pytest

from support.files import TESTS, cluster, contains, fresh, lines_with, listing, read, records, write
from support.program import LIMIT, has_stack, run

MODEL = "--model tiny --layers 3 --seq-len 33 --batch-size 12 --threads 1"
BYTES = "^  (weights|gathered|gradients|optimizer|activations|scratch|peak) +[0-9]+ |^beside it, in host"
PYTHON = [sys.executable, "-B"]
LARGE = ("--hidden 4096 --layers 32 --heads 32 --kv-heads 8 --intermediate 14336 --vocab 128256 --seq-len 8192 "
         "--threads 1 --batch-size 16384 --cluster many.toml")


@pytest.fixture(scope="module", autouse=True)
def inputs(program):
    write("run.toml", "seed = 1\n")
    write("syntax.toml", "ranks = = 2\n")
    cluster("two.toml")
    cluster("one_node.toml", "network_bandwidth=", "network_latency=")
    cluster("eight.toml", "ranks=8", "ranks_per_node=8")
    cluster("mebibyte.toml", "memory=1048576")
    cluster("many.toml", "ranks=16384", "ranks_per_node=16384", "memory=80_000_000_000")


def plan(program, *flags):
    return program("plan", MODEL, *flags)


def estimate(program, *flags):
    return json.loads(plan(program, "--json", *flags).out)


def test_known_clusters_need_no_file(program):
    before = listing()
    for name in ("epyc", "xeon"):
        plan(program, "--cluster", name).prints(
            f"^fsdp2 / threads / bf16 on {name}, 2 ranks in 1 node, 1 micro-batch of 6 x 33 tokens$",
            r"^it fits: needs .* per rank; .*GiB are available \(.*GiB left\)$")
    program("stacks")
    plan(program, "--cluster epyc --ranks 4").prints("^fsdp2 / mpi / bf16 on epyc, 4 ranks in 2 nodes, ",
                                                     "^  network +[0-9.]+ [KM]iB into a node, ")
    plan(program, "--cluster h100 --ranks 2").prints("^fsdp2 / nccl / bf16 on h100, 2 ranks in 1 node, ")
    assert listing() == before


@pytest.mark.parametrize("where, comm, flags", [
    ("--cluster two.toml", "--comm threads:2", "--sharding fsdp2 --precision bf16"),
    ("--cluster two.toml", "--comm threads:2", "--sharding zero3 --precision fp32 --tiling tokens:7"),
    ("--cluster two.toml", "--comm threads:2", "--sharding replicated --precision fp32 --grad-accum 2"),
    ("--cluster two.toml", "--comm threads:2", "--sharding fsdp2 --precision bf16 --recompute --offload inputs"),
    ("--cluster epyc --comm mpi", "--comm mpi", "--ranks 4"),  # ranks with memory for sums
])
def test_the_bytes_are_those_of_the_dry_run(program, where, comm, flags):
    if "mpi" in comm and not has_stack(program, "mpi"):
        pytest.skip("no stack with MPI")
    planned = plan(program, where, flags)
    dry_run = program("train --dry-run", MODEL, comm, flags)
    assert lines_with(BYTES, planned.out) == lines_with("^  [a-z]+ +[0-9]+ |^beside it, in host", dry_run.out) != []
    if "inputs" in flags:
        planned.prints("^beside it, in host memory: [0-9]+ bytes ")


@pytest.mark.parametrize("flags, further, exchanging", [
    ("--sharding fsdp2", 0, 0),
    ("--sharding hybrid:2", 2, 0),
    ("--sharding fsdp2 --sequence ulysses:2 --grad-accum 2", 1, 1),
    ("--sharding hybrid:2 --sequence ulysses:2 --grad-accum 2", 3, 1),
    ("--sharding fsdp2:pieces=4", 0, 1),
    ("--sharding fsdp2 --precision bf16:wire=bf16", 0, 1),
    ("--sharding hybrid:2 --precision bf16:wire=bf16", 2, 2),
    ("--ranks 1 --sharding fsdp2:pieces=4", 0, 0),
])
def test_every_communicator_of_gpus_takes_memory(program, flags, further, exchanging):
    ranks = "" if "--ranks" in flags else "--ranks 4"
    needs = 1_060_000_000 + further * 688_000_000 + exchanging * 3_280_000_000
    plan(program, "--cluster h100", ranks, "--heads 2 --kv-heads 2", flags).prints(
        f"^in addition, for the runtime: {needs} bytes ")


def test_sums_in_the_order_of_ranks_are_of_at_most_256_on_a_gpu(program):
    large = "plan --cluster h100 --model tiny --seq-len 33 --batch-size 512"
    program(large, "--ranks 256 --precision bf16:wire=bf16").prints("^it fits: ")
    program(large, "--ranks 512 --precision bf16:wire=bf16 --sharding hybrid:8").prints("^it fits: ")
    for flags in ("--precision bf16:wire=bf16", "--sharding fsdp2:pieces=512"):
        program.refuses("a rank adds the gradients of all 512 ranks in their order, and its device adds those of at most "
                        "256; take neither, or hybrid:K with fewer ranks in a group and fewer groups$", large, flags, "--ranks 512")


@pytest.mark.parametrize("on", ["epyc", "h100"])
@pytest.mark.parametrize("stack", ["--sharding zero1 --precision fp32 --offload optimizer",
                                   "--sharding hybrid:2:full --precision bf16:wire=bf16 --layout owned"])
def test_a_stack_that_cannot_run_is_planned_with_what_is_missing(program, stack, on):
    comm = "mpi" if on == "epyc" else "nccl"
    lacks = not has_stack(program, comm)
    planned = plan(program, f"--cluster {on} --ranks 4", stack).prints("^it fits: ")
    assert bool(re.search(f"^this program cannot run it: --comm {comm}: ", planned.out, re.M)) == lacks


@pytest.mark.parametrize("flags", [
    "--sharding fsdp2", "--sharding zero3 --grad-accum 3", "--sharding zero1 --grad-accum 2", "--sharding replicated",
    "--sharding fsdp2:pieces=4", "--sharding fsdp2 --sequence ulysses:2 --grad-accum 2 --heads 2 --kv-heads 2"])
def test_the_collectives_are_those_of_a_step(program, flags):
    planned = estimate(program, "--cluster two.toml", flags)["traffic"]
    program("train --data text.txt --steps 2", MODEL, "--comm threads:2", flags, "--metrics", fresh("metrics.jsonl"))
    assert planned
    assert [step["traffic"] for step in records("metrics.jsonl") if "grad_norm" in step] == [planned, planned]


def test_what_does_not_fit_is_refused_with_the_missing_bytes(program):
    planned = estimate(program, "--cluster two.toml")
    assert planned["device_bytes"]["needed"] == planned["peak_bytes"]
    cluster("small.toml", f"memory={planned['peak_bytes'] - 1024}")
    short = ("^tessera: plan: this step does not fit: a rank needs .*, 1.00 KiB too little; "
             "--fit searches for flags that fit$")
    program.refuses(short, "plan", MODEL, "--cluster small.toml").prints(
        r"^it does not fit: needs .* per rank; .* \(1.00 KiB short\)$", "^in addition, for the runtime: ")
    lacking = json.loads(program.refuses(short, "plan", MODEL, "--cluster small.toml --json").out)
    assert (lacking["fits"], lacking["device_bytes"]["left"]) == (False, -1024)


def test_attention_of_documents_is_counted_as_a_run_counts_it(program):
    cluster("slow_attention.toml", "attention=1e9")
    packed = "--cluster slow_attention.toml --precision fp32 --document-separator 10"
    plan(program, packed).prints(
        r"^  documents   attention of whole windows; documents take less \(--document-length\)$")
    planned = estimate(program, packed, "--document-length 3")
    write("short.txt", "ab\n" * 1200)
    program("train --data short.txt --steps 1 --validation-fraction 0 --comm threads:2", MODEL, packed,
            "--metrics", fresh("documents.jsonl"))
    lines = records("documents.jsonl")
    step = next(line for line in lines if "tflops" in line)
    assert float(step["tflops"]) * 1e12 * float(step["step_seconds"]) == pytest.approx(planned["model_flops"], rel=0.01)
    assert float(lines[0]["planned_step_seconds"]) == pytest.approx(planned["step_seconds"], rel=0.01)
    whole = estimate(program, "--cluster slow_attention.toml --precision fp32")
    assert planned["step_seconds"] < 0.7 * whole["step_seconds"]


def test_a_step_in_virtual_time_is_reproducible_and_has_a_trace_like_that_of_a_run(program):
    first = plan(program, "--cluster two.toml --json").out
    assert plan(program, "--cluster two.toml --json --trace virtual.json").out == first
    planned = json.loads(first)
    seconds, mfu = planned["step_seconds"], planned["mfu"]
    parts = planned["compute_seconds"] + planned["exposed_collective_seconds"] + planned["exposed_copy_seconds"]
    assert parts == pytest.approx(seconds, rel=1e-9)
    assert planned["tokens"] / seconds == pytest.approx(planned["tokens_per_second"], rel=1e-6)
    assert planned["model_flops"] / 2 / seconds / planned["peak_flops"] == pytest.approx(mfu, rel=0, abs=1e-9)

    program("train --data text.txt --steps 1 --comm threads:2", MODEL, "--trace", fresh("run.json"))
    names, activations = {}, {}
    for name in ("virtual", "run"):
        events = json.loads(read(f"{name}.json"))["traceEvents"]
        names[name] = {event["name"] for event in events if event["ph"] == "X" and event["cat"] in ("compute", "comm")}
        counted = [event["args"]["activations"] for event in events if event["ph"] == "C"]
        activations[name] = [value for value, _ in itertools.groupby(counted)]
        run(PYTHON, TESTS.parent / "bench" / "step_figure.py", f"{name}.json {name}.svg 'of {name}.json'")
        contains(f"{name}.svg", ">of (virtual|run).json</text>$", "<polygon ")
    assert len(activations["virtual"]) > 6
    assert activations["run"][:len(activations["virtual"])] == activations["virtual"]
    assert max(activations["virtual"]) <= planned["memory"]["activations"]
    tasks = {name for name in names["run"] if name.split()[0] in ("gather", "forward", "loss", "backward", "reduce")}
    assert tasks and tasks <= names["virtual"]
    assert {name for name in names["virtual"] if " " in name} <= names["run"]


def test_one_of_several_processes_prints_and_writes(program):
    one = plan(program, "--cluster two.toml").omits("this program cannot").out
    second = plan(program.under("env RANK=1 WORLD_SIZE=2"), "--cluster two.toml --trace second.json")
    assert second.out == "" and not os.path.exists("second.json")
    assert plan(program.under("env RANK=0 WORLD_SIZE=2"), "--cluster two.toml").out == one
    assert plan(program, "--cluster two.toml --comm threads:2").out == one
    if has_stack(program, "mpi"):
        assert plan(program.under("mpirun --oversubscribe -np 2"), "--cluster two.toml").out == one
        plan(program, "--cluster two.toml --comm mpi")
        program.under("env RANK=0 WORLD_SIZE=3").refuses("--comm mpi was launched with 3 ranks, and the plan is of "
                                                         "the 2 of", "plan", MODEL, "--cluster two.toml --comm mpi")


@pytest.mark.parametrize("change, reason", [
    *((f"{key}=", f"{key} is missing; give it: .* .tessera calibrate writes it.$") for key in
      ("device", "ranks", "ranks_per_node", "memory", "matmul_bf16", "node_bandwidth", "collectives_have_queues")),
    ("network_bandwidth=0", "network_bandwidth is 0, which no machine has; give at least"),
    ("matmul_fp32=1e30", r"matmul_fp32 is 1e\+30, which no machine has"),
    ("node_latency=-1", "node_latency is -1, which no machine has"),
    ("memory=-4", "memory is -4, which no machine has"),
    ("attention=nan", "attention 'nan' is not a finite number"),
    ("host_bandwidth=inf", "host_bandwidth 'inf' is not a finite number"),
    ("ranks=3", "ranks is 3, which do not fill nodes of 2"),
    ('device="tpu"', "device is 'tpu'; give \"cuda\" or \"cpu\""),
    ("peak_bf16=1e11", r"matmul_bf16 is 2e\+11, above peak_bf16"),
    ("attention=2.2e11", r"attention is 2.2e\+11, above peak_bf16"),
    ("matmul_bf16_small=2.2e11", r"matmul_bf16_small is 2.2e\+11, above peak_bf16"),
    ("matmul_fp32_medium=-1", "matmul_fp32_medium is -1, which no machine has; give at least .* or 0 where it is as that of large ones"),
    ("beside_collectives=0", "beside_collectives is 0, which no machine has; give at least 0.01 and at most 1 of the speed alone"),
    ("threads=0", "threads is 0, which no machine has"),
    ("bandwidth=7", "unknown key 'bandwidth'; did you mean .*node_bandwidth"),
    ('memory="much"', "memory is the text 'much'; give a number"),
    ('memory="8000000000"', "memory is the text '8000000000'; give a number"),
    ('device=["cpu"]', "device takes one value and is a list"),
    ("collectives_have_queues=1", "collectives_have_queues '1' is neither true nor false"),
    ("ranks_per_node=[2]", "ranks_per_node takes one value and is a list; give the value without brackets"),
    ("node_latency={}", "node_latency: must be text, a number"),
])
def test_an_impossible_cluster_is_refused(program, change, reason):
    cluster("bad.toml", change)
    program.refuses(f"--cluster bad.toml: {reason}", "plan", MODEL, "--cluster bad.toml")


@pytest.mark.parametrize("pattern, flags", [
    ("--cluster is missing; give a TOML file, or a name: h100, ", "--json"),
    ("--cluster h10: no such file, and no cluster has this name; did you mean .h100", "--cluster h10"),
    ("^tessera: --cluster syntax.toml: .* at line 1", "--cluster syntax.toml"),
    ("--cluster one_node.toml: network_latency is missing", "--cluster one_node.toml --ranks 4"),
    ("cannot be shared by", "--cluster eight.toml"),
    ("--cluster epyc: ranks is 3, which do not fill nodes of 2", "--cluster epyc --ranks 3"),
    ("computes on cpu, and this stack on cuda; take --comm threads or mpi", "--cluster epyc --comm nccl"),
    ("computes on cuda, and this stack on cpu; take --comm nccl", "--cluster h100 --comm threads:8"),
    ("--memory is for runs", "--cluster epyc --memory 4GiB"),
    ("--dry-run is for train", "--cluster epyc --dry-run"),
    ("threads has all ranks in one process, and these are in 2 nodes; take --comm mpi", "--cluster epyc --ranks 4 --comm threads:4"),
    ("--comm threads:3 states 3 ranks, and the plan is of the 2 of --cluster two.toml; leave --comm out, or give --ranks 3$",
     "--cluster two.toml --comm threads:3"),
    ("--comm self states 1 rank, and the plan is of the 4 of --cluster two.toml", "--cluster two.toml --comm self --ranks 4"),
    ("--document-length 3 is for data with documents", "--cluster two.toml --document-length 3"),
    ("--document-length 34 is more than the 33 tokens of a sequence", "--cluster two.toml --document-length 34 --document-separator 10"),
    ("--trace two.toml is the file of --cluster; give it a file of its own", "--cluster two.toml --trace two.toml"),
    ("--trace run.toml is the file of --config; give it a file of its own", "--cluster two.toml --config run.toml --trace run.toml"),
    ("--trace text.txt is a file of --data; give it a file of its own", "--cluster two.toml --data text.txt --trace text.txt"),
    ("--fit: none of [0-9]+ ways fits; the one that takes the least, --sharding .*, needs .*MiB of each rank, "
     "which has 1.00 MiB; take more ranks", "--cluster mebibyte.toml --fit"),
    ("--trace is of one step, and --fit looks for several", "--cluster two.toml --fit --trace trace.json"),
    ("--fit: no way can be: sequence: 6 heads of attention cannot be divided", "--cluster epyc --ranks 16 --fit"),
])
def test_flags_that_do_not_go_together_are_refused(program, pattern, flags):
    program.refuses(pattern, "plan", MODEL, flags)


def test_one_node_needs_no_network_and_a_file_may_have_a_name_that_is_not_text(program):
    plan(program, "--cluster one_node.toml")
    estimate(program, "--cluster", cluster("\udcff.toml"))


def test_a_step_of_more_flops_than_integers_hold_is_planned(program):
    planned = program("plan --cluster many.toml --json --model tiny --threads 1 --batch-size 65536 --grad-accum 4 "
                      "--seq-len 16777216 --max-position-embeddings 16777216 --tiling tokens:65536")
    assert json.loads(planned.out)["mfu"] > 0.1


def test_attention_has_as_many_parts_as_the_budget_needs_and_not_more_than_heads(program):
    shared = "plan --cluster two.toml --model tiny --batch-size 2 --sequence ulysses:2"
    program(shared, "--heads 4 --kv-heads 4").omits("parts")
    program(shared, "--heads 32 --kv-heads 32 --head-dim 256 --seq-len 512 --tiling budget:64KiB").prints(
        "^  attention +in 16 parts$")


def test_thousands_of_ranks_take_seconds(program):
    program("plan", LARGE, limit=60).prints(", 16384 ranks in 1 node, ")
    program("plan --fit", LARGE, limit=60).prints("^1  --sharding ")


def test_fit_finds_what_a_plan_of_every_configuration_finds(program):
    best = estimate(program, "--fit --cluster two.toml")["best"]
    assert len(best) == 3 and best == estimate(program, "--fit --cluster two.toml")["best"]
    for found in best:
        assert estimate(program, "--cluster two.toml", found["flags"]) == found["estimate"], found["flags"]

    # With less memory than the fastest needs: halfway between that and the least of all.
    planned = [estimate(program, f"--cluster two.toml --sharding {sharding} --grad-accum {micro_batches} {kept}")
               for sharding in ("fsdp2", "zero3", "fsdp2:no-reshard", "zero2", "zero1", "replicated")
               for micro_batches in (1, 2, 6) for kept in ("", "--recompute")]
    least = min(one["device_bytes"]["needed"] for one in planned)
    memory = (least + best[0]["estimate"]["device_bytes"]["needed"]) // 2
    cluster("tight.toml", f"memory={memory}")
    tight = estimate(program, "--fit --cluster tight.toml")
    fastest = min(one["step_seconds"] for one in planned if one["device_bytes"]["needed"] <= memory)
    first = tight["best"][0]["estimate"]
    assert first["fits"] and first["step_seconds"] <= fastest * (1 + 1e-9), tight["best"][0]["flags"]
    assert first["step_seconds"] > best[0]["estimate"]["step_seconds"]
    assert tight["estimated"] < tight["ways"] / 2
    assert all(other["why"] for other in tight["others"])
    plan(program, "--fit --cluster tight.toml").prints(
        r"^searched [0-9]+ configurations for tight.toml \([0-9]+ estimated\); the fastest that fit:$",
        "^1  --sharding ", "^it fits: needs ")


def test_on_gpus_torchrun_starts_the_best_with_all_flags_of_the_plan(program):
    program("plan --fit --cluster h100 --ranks 16 --model tiny --seq-len 33 --batch-size 16 --freeze '*norm*'").prints(
        "^  cmake --preset release -DTESSERA_CUDA_ARCHITECTURES=90a",
        "^  torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 --nproc-per-node 8 --no-python "
        r"tessera train --comm nccl --sharding .* --batch-size 16.* --freeze '\*norm\*'.* --data PATH$")


def test_fit_keeps_the_flags_that_are_given(program):
    best = estimate(program, "--fit --cluster two.toml --sharding zero2 --recompute")["best"]
    assert best and all("--sharding zero2" in found["flags"] and "--recompute" in found["flags"] for found in best)
    plan(program, "--fit --cluster two.toml --sharding zero2 --grad-accum 2").omits("^others$")


def test_a_cluster_is_not_for_dry_runs(program):
    program.refuses(
        "--cluster says what to expect of a run, and --dry-run starts none; call tessera plan --cluster two.toml",
        "train --dry-run --model tiny --cluster two.toml")


def test_published_figures_are_read_and_the_first_two_compared_with_plans(program):
    pytest.importorskip("tomllib")  # Python 3.11
    published = [*PYTHON, TESTS.parent / "bench" / "published.py"]
    run(published, "--check").prints("^[0-9]+ figures of [0-9]+ sources$")
    if has_stack(program, "nccl"):
        run(published, program.path, "--first 2").prints(
            "^  qwen2.5-0.5b +1 +1024 .* fitted$", "^  qwen2.5-1.5b +1 +1024 .* held out$",
            '"held_out": ."figures": 1, "within_15_percent": 1, ')


@pytest.mark.parametrize("start, shown", [("plan", "plan_h100.txt"), ("plan --fit", "fit_h100.txt")])
def test_the_page_shows_what_is_printed(program, start, shown):
    if not has_stack(program, "nccl"):
        pytest.skip("a program without the stack prints that it lacks it in addition")
    command, = re.findall(f"^tessera ({start} --cluster h100 .*)", read(TESTS.parent / "docs" / "plan.md"), re.M)
    assert program(command, limit=3 * LIMIT).out == read(TESTS / "docs" / shown)

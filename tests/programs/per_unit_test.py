# SPDX-License-Identifier: Apache-2.0
"""Strategies for some tensors, from the command line (--sharding-of, --precision-of): runs, checkpoints, plans, errors."""
import json

import pytest

from support.files import close, cluster, contains, fresh, lines_with, records, steps
from support.program import has_stack, trained

MODEL = "--model tiny --seq-len 16 --batch-size 8 --threads 1"
TRAIN = f"train {MODEL} --data text.txt --precision fp32 --comm threads:2"
UNITS = "--sharding-of 'embed_tokens|lm_head=replicated' '*layers.1.*=zero1:layout=rows'"
FLOATS = "--precision bf16 --precision-of '*norm*|lm_head=fp32'"
BYTES = "^  (weights|gathered|gradients|optimizer|activations|scratch|peak) +[0-9]+ "


def test_units_follow_one_strategy_and_resume_with_other_assignments(program):
    found = {}
    for name, flags in (("plain", ""), ("mixed", UNITS)):
        trained(program, name, TRAIN, "--steps 4", flags)
        found[name] = steps(f"{name}.jsonl")
    close(found["mixed"], found["plain"], 1e-6)
    contains("mixed.jsonl", '"stack":"fsdp2:embed_tokens')
    resumed = []
    for start, flags in (("mixed", "--sharding zero2 --sharding-of '*norm*,role=vector=fsdp2:no-reshard'"), ("mixed", ""),
                         ("plain", UNITS + " --offload optimizer")):
        program(TRAIN, "--steps 6", flags, "--resume", start, "--metrics", fresh("resumed.jsonl")).prints(
            "resumed: the stack was fsdp2.* threads:2 fp32 off, is ")
        resumed.append(steps("resumed.jsonl"))
        close(resumed[-1], resumed[0], 1e-5)


@pytest.mark.parametrize("flags", [UNITS, UNITS + " --tied", UNITS + " --offload optimizer --grad-accum 2 --precision bf16",
                                   "--sharding hybrid:1:full --sharding-of 'block*=hybrid:1:full:zero2'",
                                   UNITS + " " + FLOATS])
def test_a_plan_has_the_bytes_and_the_traffic_of_each_part(program, flags):
    if "--precision-of" in flags and "--precision-of" not in program("stacks").out:
        pytest.skip("this program has no float weights")
    cluster("two.toml")
    planned = json.loads(program("plan --json --cluster two.toml", MODEL, flags).out)
    lines = program("plan --cluster two.toml", MODEL, flags).prints("^  part  .*: [0-9]+ tensors? in (bf16|f32); at rest ").out
    dry_run = program("train --dry-run --comm threads:2", MODEL, flags)
    assert lines_with(BYTES, lines) == lines_with(BYTES, dry_run.out) != []
    program("train --data text.txt --steps 2 --comm threads:2", MODEL, flags, "--metrics", fresh("metrics.jsonl"))
    lines = records("metrics.jsonl")
    assert lines[0]["parts"] == planned["parts"]
    assert [step["traffic"] for step in lines if "grad_norm" in step] == [planned["traffic"]] * 2

    def total(*keys):
        return sum(int(part[key]) for part in planned["parts"] for key in keys)

    calls = sum(int(count["bytes"]) for axis in planned["traffic"].values() for count in axis.values())
    assert 0 < calls - total("gathered_bytes", "reduced_bytes") < 128  # of the norm
    memory = {kind: int(count) for kind, count in planned["memory"].items()}
    offloaded = int(planned["offloaded_bytes"])  # with a chunk that is stepped at a time
    kept = memory["weights"] + memory["optimizer"] + offloaded - total("weight_bytes", "optimizer_bytes")
    assert kept == 0 if offloaded == 0 else 0 < kept < 0.2 * offloaded
    assert 0 < total("gradient_bytes") <= memory["gradients"]  # and slots


def test_float_weights_are_for_every_command_or_refused_by_name(program):
    cluster("two.toml")
    evaluate, generate = "eval --data text.txt --seq-len 16", "generate --tokens 4 --temperature 0 --prompt-ids 1,2"
    if "--precision-of" not in program("stacks").out:
        for command in (f"train --data text.txt {MODEL}", f"plan --cluster two.toml {MODEL}", f"{evaluate} --model a",
                        f"{generate} --model a", "chat --model a"):
            program.refuses("^tessera: --precision-of: this program was built without float weights next to bf16 ones; "
                            "leave it out, or build it with -D", command, FLOATS)
        return
    trained(program, "floats", f"train {MODEL} --data text.txt --comm threads:2 --steps 4", FLOATS)
    losses = [json.loads(program(evaluate, "--model floats", flags).out)["loss"]
              for flags in ("--precision fp32", "--precision bf16", FLOATS, FLOATS + " --comm threads:2")]
    close(losses[1:], losses[:1] * 3, 1e-2)
    close(losses[3:], losses[2:3], 1e-5)
    assert losses[2] != losses[1]
    assert program(generate, "--model floats", FLOATS).out == program(generate, "--model floats --precision fp32").out


@pytest.mark.parametrize("flags, pattern", [
    ("--sharding-of embd=zero1", "^tessera: sharding: the pattern 'embd' matches no tensor; .*embed"),
    ("--sharding-of 'embed_tokens|lm_haed=zero1'", "'lm_haed' of the pattern 'embed_tokens.lm_haed' matches no tensor; .*lm_head"),
    ("--sharding-of '*norm*=zero1' --replicate model.norm.weight", "'model.norm.weight' of head is replicated .*--replicate.*'[*]norm[*]'"),
    ("--optimizer muon --layout owned --sharding-of 'block?0=zero1'", "the strategy 'block.0=zero1' cuts .model.layers.0.*=blocks in --sharding-of"),
    ("--sharding-of '*norm*=zero1' '*layers.1.*=zero2'", "matches both '.norm.' and '.layers.1..'; a tensor may match one"),
    ("--sharding-of '*=fsdp2:deferred:prefetch=2'", "sets prefetch=2, which is one for the whole module; set it in --sharding"),
    ("--sharding-of embed_tokens=", "is not a pattern and a strategy; write PATTERN=STRATEGY"),
    ("--sharding-of head=zero1:layout=flat:layout=rows", "says twice which layout tensors have; write layout=LAYOUT once"),
    ("--sharding zero3:live=1000 --sharding-of '*mlp*=zero1'", "a bound of 1000 live elements holds no unit "),
    ("--sharding-of 'head=hybrid:2:full'", "place optimizer state differently over groups of ranks"),
])
def test_bad_input_ends_with_one_sentence_on_every_rank(program, flags, pattern):
    program.refuses(pattern, TRAIN, "--steps 1", flags)
    if has_stack(program, "mpi"):
        ended = program.under("mpirun --oversubscribe -np 2").refuses(
            pattern, f"train {MODEL} --data text.txt --steps 1", flags, lines=None)
        assert len(lines_with("^tessera: ", ended.err)) == 1


# SPDX-License-Identifier: Apache-2.0
"""--help of every sub-command ends with status 0 and names every flag."""
import pytest

STACK = "config sharding precision offload tiling comm threads deadline start-deadline shared-windows help "
SAMPLING = "tokens temperature top-k top-p min-p repetition-penalty seed stop-ids disk-deadline"
TRAIN = """data data-format chat-template learn on-long model from-scratch family sliding-window rope-type rope-factor hidden layers heads kv-heads
    head-dim intermediate vocab tied adapter lora-rank lora-alpha lora-dropout lora-rslora lora-targets steps seq-len batch-size grad-accum lr lr-schedule
    lr-decay-steps warmup optimizer weight-decay beta1 beta2 eps moments momentum nesterov iterations per-head clip group seed validation-fraction validation-every patience
    sample-prompt sample-tokens checkpoint-dir checkpoint-every keep resume disk-deadline metrics digests verify-every tensorboard trace cuda-graphs
    log-every dry-run ranks print-schedule"""


@pytest.mark.parametrize("command, names", [
    ("train", STACK + TRAIN),
    ("eval", STACK + "model adapter data data-format seq-len batch-size windows disk-deadline"),
    ("generate", STACK + "model adapter prompt prompt-ids " + SAMPLING),
    ("chat", STACK + "model adapter tokenizer chat-template system context " + SAMPLING),
    ("export", "dtype shard-bytes files-from adapter merge"),
    ("plot", "out"),
    ("diff", "config"),
    ("replay", "step digests against tensors unit piece data tokenizer token-cache sharding comm deadline disk-deadline"),
    ("tokenize", "tokenizer out text-field end-token shard-tokens threads"),
])
def test_a_command_names_its_flags(program, command, names):
    program(command, "--help").prints(*(f"^  (-h,)?--{name}[ =]" for name in names.split()))


def test_the_program_names_its_commands_and_what_it_was_built_with(program):
    commands = "train plan calibrate eval generate chat export inspect tokenize plot diff replay stacks"
    program("--help").prints(*(f"^  {command} " for command in commands.split()))
    rows = ("compiler", "system", "instruction set", "OpenMP", "oneDNN", "MPI", "NCCL")
    program("--version").prints(r"^tessera [0-9]+\.[0-9]+\.[0-9]+$", *(rf"^  {row} +[^ \n]" for row in rows),
                                r"^  --precision +.*bf16")

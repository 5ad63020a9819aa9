# SPDX-License-Identifier: Apache-2.0
"""Wrong flags, data and model sizes: one line that reports what is wrong, status 2, and nothing on disk."""
import os

import pytest

from support.files import GOLDEN, contains, same, text, write
from support.program import has_stack

TEXT_BYTES = 300
SMALL = "train --config small.toml"
TRAIN = f"{SMALL} --data text.txt"
TWO = f"{TRAIN} --comm threads:2"
TINY = "train --data text.txt --model tiny --seq-len 16 --steps 1"
FIT_IS_GONE = ("--fit is no longer a flag of train; tessera plan --fit --cluster NAME prints the flags of the fastest "
               "configurations, which train accepts unchanged$")
NO_TOKENIZER = "is for text that a tokenizer reads, and there is no tokenizer"

# What is refused in one line: a command, then patterns and further flags.
REFUSED = {
    SMALL: [
        (r"data is missing", ""),
        (r"nowhere: no such file or folder", "--data nowhere"),
        (r"there is no text in empty.txt", "--data empty.txt"),
        (r"there is no text in folder \(left out: binary 1 ", "--data folder"),
        (r"/dev/null: neither a file nor a folder", "--data /dev/null"),
    ],
    TRAIN: [
        (r"nowhere: no such file or folder", "--data nowhere"),
        (r"512 tokens .* do not fit into the 300 bytes", "--seq-len 512"),
        (r"1 windows .* leave none to train on", "--seq-len 299"),
        (r"6 heads are not divisible by 4 key-value heads", "--kv-heads 4"),
        (r"head dimension is 15.* even", "--head-dim 15"),
        (r"layers is 0; it must be 1 to", "--layers 0"),
        (r"4097 is longer than the 4096 positions", "--model gqa --seq-len 4097"),
        *((f"{name} {value} must be {bound}", f"--{name}={value}") for name, value, bound in (
            ("lr", -1, "at least 0"), ("beta2", 1, "at least 0 and below 1"), ("validation-fraction", 1, ""), ("deadline", 0, "above 0"))),
        (r"--validation-every is for held-out losses and samples, and with --validation-fraction 0 there are neither",
         "--validation-fraction 0 --validation-every 2"),
        (r"--validation-windows is for held-out losses, and with --validation-fraction 0 there are none",
         "--validation-fraction 0 --validation-windows 2"),
        (r"ranks is for --dry-run only", "--ranks 2"),
        (r"ulysses does not say how many ranks share each sequence; write ulysses:K", "--sequence ulysses"),
        *((f"{wrong} is not known; did you mean '{right}'", f"{flag} {wrong}") for flag, wrong, right in (
            ("--sharding", "fsdp3", "fsdp2"), ("--sequence", "ulises:4", "ulysses:K"), ("--tiling", "tile:4", "tiles:N"),
            ("--comm", "thread:2", "threads:N"), ("--precision", "fp23", "fp32"), ("--lr-schedule", "cosin", "cosine"),
            ("--offload", "optimiser", "optimizer"))),
        (r"--lr 'much' is not a number", "--lr much"),
        (r"--lr .nan. is not a finite number", "--lr nan"),
        (r"--seed", "--seed 1 --seed 2"),
        *((f"tiling {bad} is not known", f"--tiling {bad}") for bad in ("tiles:0", "tiles:-2", "tokens:0", "budget:0", "budget:12MB")),
        (r"--memory '1GB' is not a number of bytes", "--tiling budget:auto --memory 1GB"),
        (r"--memory 1GiB belongs to --tiling budget:auto", "--memory 1GiB"),
        (r"--memory 1MiB is the memory of a rank, whose process takes 256.00 MiB besides tensors", "--tiling budget:auto --memory 1MiB"),
        (r"fsdp2:no-reshard says that itself; write fsdp2:budget=1GiB", "--sharding fsdp2:no-reshard:budget=1GiB"),
        (r"each take what the other leaves", "--sharding fsdp2:budget=auto --tiling budget:auto"),
        (r"document-separator makes steps differ", "--cuda-graphs on --document-separator 10"),
        (r"leave one of them out", "--cuda-graphs on --trace made/trace.json"),
    ],
    TWO: [
        (r"9 sequences cannot be shared by 2 ranks x 2 micro-batches; .* 8 and 12", "--batch-size 9 --grad-accum 2"),
        *((f"{flag} 0 must be at least 1", f"{flag} 0") for flag in ("--steps", "--seq-len", "--batch-size", "--grad-accum", "--log-every")),
        (r"2 ranks cannot be cut into groups of 3, which share each sequence; give 1 or 2", "--sequence ulysses:3"),
        (r"budget of 100 bytes does not hold the shortest tile, of [0-9]+ tokens?; give at least [0-9]", "--tiling budget:100"),
        (r"hold no step of this model", "--tiling budget:auto --memory 257MiB"),
        (r"budget=auto.* hold no step of this model", "--sharding fsdp2:budget=auto --memory 257MiB"),
    ],
    f"{TRAIN} --sequence ulysses:2": [
        (r"3 ranks cannot be cut into groups of 2, .*; give 1 or 3", "--dry-run --ranks 3 --batch-size 3"),
        (r"9 sequences cannot be shared by 2 groups of 2 ranks \(--sequence\) x 1 micro-batches; .* 8 and 10", "--batch-size 9 --comm threads:4"),
        (r"a length of 1 leaves some of the 2 ranks that share each sequence without a row; give a length of at least 2", "--seq-len 1 --comm threads:2"),
        (r"with --sequence ulysses:2 no rank has a whole one; leave one of them out",
         "--comm threads:2 --sharding fsdp2:pieces=4 --verify-every 1"),
        (r"sample-prompt has each rank continue a whole text, which --sequence ulysses:2 does not", "--comm threads:2 --sample-prompt a --sample-tokens 2"),
    ],
    f"{TRAIN} --comm threads:3 --sharding": [
        (r"a batch of 10 sequences cannot be cut into 8 pieces .*pieces=8\); the nearest sizes that can: 8 and 16", "fsdp2:pieces=8 --batch-size 10"),
        (r"cannot be cut into 8 pieces .*; the nearest sizes that can: 8$", "zero2:pieces=8 --batch-size 4"),
        (r"grad-accum 2: 8 pieces on 3 ranks are 3 micro-batches, which the pieces set .*; leave --grad-accum out",
         "zero3:pieces=8 --batch-size 8 --grad-accum 2"),
        (r"leave out either --replicate or the pieces", "fsdp2:pieces=8 --batch-size 8 --replicate *norm*"),
        (r"sharding hybrid:2:pieces=8: each group of ranks adds up its gradients first.*take fsdp2:pieces=8, zero2:pieces=8", "hybrid:2:pieces=8"),
        (r"sharding replicated:pieces=8: each rank adds up its gradients first.*; take fsdp2:pieces=8", "replicated:pieces=8"),
        *((f"sharding {bad}: a step has at least 1 piece; write pieces=N", bad) for bad in ("fsdp2:pieces=0", "fsdp2:pieces=x", "fsdp2:pieces=")),
    ],
    TINY: [  # flags that nothing would use, outputs that are inputs or each other, and folders that cannot hold checkpoints
        (r"lora_targets is 'q_proj,', which has an empty pattern", "--lora-rank 2 --lora-targets q_proj,"),
        *((r"lora-[a-z]+ is for LoRA, and --lora-rank is 0; give a rank, or leave it out", flag) for flag in (
            "--lora-targets q_proj", "--lora-alpha 3", "--lora-dropout 0.1", "--lora-rslora", "--lora-rank 0 --lora-alpha 3")),
        (r"checkpoint-every is for checkpoints, and none are written; give --checkpoint-dir", "--checkpoint-every 1"),
        (r"on-signal never is not known", "--on-signal never"),
        (r"until 9 is beyond the last step, --steps 1; take an earlier step, or more --steps", "--until 9"),
        (r"resume-anyway is for a run that goes on, and this one begins; give --resume", "--resume-anyway"),
        (r"token-cache is for text that a tokenizer reads, and --data-format is bytes", "--token-cache c --data-format bytes"),
        *((f"{flag} {NO_TOKENIZER}", f"--{flag} {value}") for flag, value in (
            ("token-cache", "cache"), ("end-token", "</s>"), ("text-field", "body"))),
        (r"metrics ./text.txt is a file of --data; give it a file of its own", "--metrics ./text.txt"),
        (r"trace link is in the folder of --data held", "--data held --trace link"),
        (r"metrics c/run.lock is a file of --checkpoint-dir", "--checkpoint-dir c --metrics c/run.lock"),
        (r"trace c/latest is a file of --checkpoint-dir", "--checkpoint-dir c --trace c/latest"),
        (r"metrics and --trace both write m; give each a file of its own", "--metrics m --trace ./m"),
        (r"checkpoint-dir dangling: is a symbolic link to nowhere, which does not exist", "--checkpoint-dir dangling"),
        (r"used/step-00000002 has a checkpoint.s name and is no folder; move it elsewhere", "--checkpoint-dir used"),
        (r"used/step-00000002 has a checkpoint.s name", "--checkpoint-dir used --resume auto"),
        (r"linked/step-00000002 has a checkpoint.s name", "--checkpoint-dir linked"),
    ],
    "train": [
        (r"byte [0-9]+, which is not below the model.s vocabulary of 11", "--model tiny --vocab 11 --seq-len 16 --data text.txt --comm threads:2"),
        (r"unknown flag --stpes; did you mean --steps", "--stpes 3"),
        (r"^tessera: --lr: .* received 2; give the flag once", "--data text.txt --lr 1 --lr 2"),
        (r"unexpected argument 'more.txt'", "more.txt --data text.txt"),
        (r"tinny is neither a preset nor a folder; did you mean 'tiny'", "--data text.txt --model tinny"),
        (r"--steps", "--data text.txt --steps"),
        (FIT_IS_GONE, "--data text.txt --fit --cluster h100"),
        (f"fit.toml: {FIT_IS_GONE}", "--data text.txt --config fit.toml"),
    ],
    "eval --data text.txt": [
        (r"model is missing", ""),
        (r"tiny.*no such", "--model tiny"),
        (r"give bytes", "--model gqa --tiling budget:auto"),
        (r"give bytes, as in budget=512MiB", "--model gqa --seq-len 16 --sharding fsdp2:budget=auto"),
        *((f"{name} 0 must be at least 1", f"--model gqa --{name} 0") for name in ("seq-len", "batch-size")),
        (r"4097 is longer than the 4096 positions", "--model gqa --seq-len 4097"),
    ],
    "generate --model gqa --precision fp32": [
        (r"prompt is empty", ""),
        *((f"{name} {value} must be at least {bound}", f"--prompt a --{name} {value}") for name, value, bound in (
            ("tokens", -1, 0), ("temperature", -1, 0), ("top-k", -1, 0), ("top-p", 1.5, "0 and at most 1"), ("min-p", -1, "0 and at most 1"),
            ("repetition-penalty", 0, 0.001))),
        (r"prompt and --prompt-ids are given both", "--prompt a --prompt-ids 1"),
        (r"prompt-ids '1,,2' is no list of token ids", "--prompt-ids 1,,2"),
        (r"stop-ids 'x' is no list of token ids", "--prompt a --stop-ids x"),
        (r"prompt-ids holds token 256, which is not below the model.s vocabulary of 256", "--prompt-ids 1 --prompt-ids 256"),
        (r"stop-ids holds token 300, which is not below", "--prompt a --stop-ids 300"),
        (r"longest prompt has 3 tokens.*would read 4097, more than the 4096 positions",
         "--prompt-ids 1,2,3 --prompt-ids 4 --tokens 4095 --comm threads:2"),
    ],
    "": [
        (r"no command was given", ""),
        (r"data is missing", "eval --model gqa"),
        (r"unknown flag --promt; did you mean --prompt", "generate --promt x"),
        (r"unknown command 'evla'; did you mean 'eval'", "evla"),
        (r"bench is a separate program, tessera_bench", "bench step"),
        *((r"sequence is fixed by this program: whole, since ranks that share a sequence cannot continue it", f"{command} --sequence ulysses:2")
          for command in ("generate", "chat")),
    ],
}


@pytest.fixture(scope="module", autouse=True)
def files(program):
    for folder in ("made", "linked"):
        os.mkdir(folder)
    untraced = ('model = "tiny"\nseq-len = 16\nsteps = 2\nprecision = "fp32"\nmetrics = "made/metrics.jsonl"\n'
                'checkpoint-dir = "made/checkpoints"\n')
    for path, written in {"small.toml": untraced + 'trace = "made/trace.json"\n', "untraced.toml": untraced, "empty.txt": "",
                          "folder/empty.txt": "", "folder/binary": "a\0b", "held/text.txt": text(300), "long.txt": text(5001),
                          "used/step-00000002": "", "fit.toml": 'fit = true\ncluster = "h100"\n'}.items():
        write(path, written)
    for link, to in {"link": "held/text.txt", "dangling": "nowhere", "linked/step-00000002": "nowhere", "gqa": GOLDEN / "llama-gqa"}.items():
        os.symlink(to, link)


@pytest.mark.parametrize("pattern, command", [
    (pattern, f"{command} {flags}") for command, cases in REFUSED.items() for pattern, flags in cases])
def test_is_refused_in_one_line(program, pattern, command):
    program.refuses(pattern, command)


@pytest.mark.parametrize("pattern, command", [
    (r"mesh: 3 ranks cannot form groups of 2", f"{TRAIN} --comm threads:3 --batch-size 3 --sharding hybrid:2"),
    (r"a budget of 10 bytes for gathered weights is too small; [0-9]+ would do,", f"{TWO} --batch-size 2 --sharding fsdp2:budget=10"),
    (r"a bound of 100000000 live elements and a budget for gathered weights both say",
     f"{TWO} --batch-size 2 --sharding zero3:live=100000000:budget=1GiB"),
    (r"a bound of 10 live elements holds no unit", f"{TWO} --batch-size 2 --sharding zero3:live=10"),
    (r"matches no parameter", f"{TRAIN} --freeze nothing"),
    (r"every parameter is frozen", f"{TRAIN} --freeze *"),
    (r"not a power of two", f"{TRAIN} --loss-scale dynamic:3"),
    (r"CUDA graphs \(--cuda-graphs\) are asked for, and this stack runs on cpu",
     "train --config untraced.toml --data text.txt --comm threads:2 --cuda-graphs on"),
])
def test_is_refused(program, pattern, command):
    program.refuses(pattern, command, lines=None)


def test_a_long_name_is_cut(program):
    program.refuses(r"^tessera: --model a+[.]{3} .100000 bytes. is neither a preset", "train --data text.txt --model", "a" * 100000)


def test_a_communicator_that_was_not_built_is_refused(program):
    for comm in "mpi", "nccl":
        if not has_stack(program, comm):
            program.refuses(f"--comm {comm}: this program was built without {comm} and has threads", TRAIN, f"--comm {comm}")


def test_what_is_requested_twice_is_used_once(program):
    program(TINY, "--data text.txt text.txt").prints("900 B in 3 files")
    program(TINY, "--comm self").prints("fsdp2 threads:1")


def test_the_positions_of_a_preset_grow_with_the_sequence_length(program):
    program("train --model tiny --layers 1 --data long.txt --seq-len 5000 --batch-size 1 --steps 1 --validation-fraction 0",
            "--checkpoint-dir long")
    contains("long/step-00000001/config.json", '"max_position_embeddings": 5000')


def test_data_stay_as_they_were(program):
    same("text.txt", write("before", text(300)))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long sequences on the cores of one machine: PyTorch's step beside those of `tessera train`, whole and shared by 2 ranks.

usage: sequence_step.py PROGRAM [--seq-len 8192,16384,32768] [--steps 3] [--threads 2] [--precision fp32|bf16] [--layers 4]
                        [--hidden 256] [--heads 8] [--kv-heads 4] [--intermediate 704] [--vocab 1024] [--sides torch,whole,shared]
                        [--from 64]

A step is forward, loss, backward, clipping and AdamW of one sequence by the same Llama. Blocks are recomputed in backward on
every side: PyTorch runs eagerly with scaled_dot_product_attention and activation checkpointing (bf16: autocast), Tessera with
--recompute --tiling tokens:1024. Sides run one after the other, each in processes of its own, and print one JSON line each:
the median time of the steps but the first, the largest resident memory of all ranks together, and what it grows by from a run
of --from tokens; of Tessera's also what the dry run plans of both. A process takes memory before it trains, which hides what the
run of --from tokens takes where that is less. Needs torch for its side (--sides).
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time


def torch_step_times(options, seq_len):
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    head_dim = options.hidden // options.heads
    kv_width = options.kv_heads * head_dim

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(options.hidden))

        def forward(self, x):
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([Norm(), Norm()])
            self.q = nn.Linear(options.hidden, options.hidden, bias=False)
            self.kv = nn.Linear(options.hidden, 2 * kv_width, bias=False)
            self.o = nn.Linear(options.hidden, options.hidden, bias=False)
            self.gate_up = nn.Linear(options.hidden, 2 * options.intermediate, bias=False)
            self.down = nn.Linear(options.intermediate, options.hidden, bias=False)

        def forward(self, x, cos, sin):
            def heads(t):
                return t.view(1, seq_len, -1, head_dim).transpose(1, 2)

            def rotated(t):
                low, high = t.chunk(2, dim=-1)
                return t * cos + torch.cat((-high, low), dim=-1) * sin

            y = self.norms[0](x)
            k, v = self.kv(y).split(kv_width, dim=-1)
            y = F.scaled_dot_product_attention(rotated(heads(self.q(y))), rotated(heads(k)), heads(v), is_causal=True,
                                               enable_gqa=options.heads != options.kv_heads)
            x = x + self.o(y.transpose(1, 2).reshape(1, seq_len, options.hidden))
            gate, up = self.gate_up(self.norms[1](x)).chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)

    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    embedding = nn.Embedding(options.vocab, options.hidden)
    blocks = nn.ModuleList(Block() for _ in range(options.layers))
    norm, head = Norm(), nn.Linear(options.hidden, options.vocab, bias=False)
    parameters = [p for part in (embedding, blocks, norm, head) for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    compute = torch.bfloat16 if options.precision == "bf16" else torch.float32
    rates = torch.outer(torch.arange(seq_len).float(), 10000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
    cos, sin = (torch.cat((t, t), dim=-1).to(compute) for t in (rates.cos(), rates.sin()))
    tokens = torch.randint(0, options.vocab, (1, seq_len + 1))
    times = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            x = embedding(tokens[:, :-1])
            for block in blocks:
                x = checkpoint(block, x, cos, sin, use_reentrant=False)
            loss = F.cross_entropy(head(norm(x)).view(-1, options.vocab).float(), tokens[0, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.append(time.perf_counter() - begin)
    return {"side": f"torch {torch.__version__}", "times": times}


def run(command, folder):
    """The output of a command that must succeed, and its largest resident memory."""
    with open(os.path.join(folder, "output"), "w+") as output:
        process = subprocess.Popen(command, stdout=output, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)}: status {status}")
        output.seek(0)
        return output.read(), usage.ru_maxrss * 1024


def torch_side(options, seq_len, folder):
    def trained(length):
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--torch-alone", str(length)]
        output, resident = run(command, folder)
        return json.loads(output), resident

    found, resident = trained(seq_len)
    return found["side"], found["times"], {"resident_bytes": resident, "resident_growth": resident - trained(options.before)[1]}


def tessera_side(options, seq_len, folder, name, ranks, flags):
    def command(length):
        return [os.path.abspath(options.program), "train", "--model", "small", "--vocab", options.vocab, "--hidden",
                options.hidden, "--intermediate", options.intermediate, "--layers", options.layers, "--heads", options.heads,
                "--kv-heads", options.kv_heads, "--head-dim", options.hidden // options.heads, "--precision", options.precision,
                "--batch-size", 1, "--seq-len", length, "--comm", f"threads:{ranks}", "--threads", options.threads // ranks,
                "--recompute", "--tiling", "tokens:1024", "--deadline", 3600, *flags]

    def trained(length):
        """Seconds of each step, resident bytes, and the planned bytes of all ranks."""
        metrics = os.path.join(folder, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        words = [*command(length), "--data", "text", "--data-format", "bytes", "--validation-fraction", 0, "--steps",
                 options.steps, "--log-every", 1, "--metrics", metrics]
        _, resident = run([str(word) for word in words], folder)
        plan, _ = run([str(word) for word in [*command(length), "--dry-run"]], folder)
        planned = next(int(line.split()[1]) for line in plan.splitlines() if line.split()[:1] == ["peak"])
        with open(metrics) as lines:
            records = [json.loads(line) for line in lines]
        return [line["step_seconds"] for line in records if "event" not in line], resident, ranks * planned

    times, resident, planned = trained(seq_len)
    _, resident_before, planned_before = trained(options.before)
    return name, times, {"resident_bytes": resident, "planned_bytes": planned,
                         "resident_growth": resident - resident_before, "planned_growth": planned - planned_before}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seq-len", default="8192,16384,32768")
    for name, number in [("steps", 3), ("threads", 2), ("layers", 4), ("hidden", 256), ("heads", 8), ("kv-heads", 4),
                         ("intermediate", 704), ("vocab", 1024)]:
        parser.add_argument("--" + name, type=int, default=number)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--sides", default="torch,whole,shared")
    parser.add_argument("--from", type=int, default=64, dest="before")
    parser.add_argument("--torch-alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_alone:
        return print(json.dumps(torch_step_times(options, options.torch_alone)))
    sides = {
        "torch": torch_side,
        "whole": lambda *where: tessera_side(*where, "tessera, 1 rank", 1, []),
        "shared": lambda *where: tessera_side(*where, "tessera, 2 ranks", 2, ["--sequence", "ulysses:2"]),
    }
    lengths = [int(length) for length in options.seq_len.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w") as text:
            text.write("".join(random.Random(1).choices("abcdefgh ijklmnop\n", k=(options.steps + 1) * (max(lengths) + 1))))
        for seq_len in lengths:
            for side in options.sides.split(","):
                name, times, memory = sides[side](options, seq_len, folder)
                print(json.dumps({"side": name, "seq": seq_len, "precision": options.precision,
                                  "step_ms": round(1e3 * statistics.median(times[1:]), 1), **memory}), flush=True)


if __name__ == "__main__":
    main()

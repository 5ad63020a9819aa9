# SPDX-License-Identifier: Apache-2.0
"""The rows of operations.cpp and mlp.cpp, timed in PyTorch: same sizes, same counts of bytes and FLOPs, medians of 7.

usage: torch_rows.py [SECONDS]    how long it may take; what does not fit is left out
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

END = time.perf_counter() + float(sys.argv[1] if len(sys.argv) > 1 else 240)
HIDDEN, INTERMEDIATE = 4096, 12288
FIRST_TILED = 32768


def seconds(call, calls):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure(name, call, flops=0, size=0, **columns):
    seconds(call, 2)
    calls = min(max(int(0.02 / seconds(call, 1)), 1), 1000) + 1
    one = statistics.median(seconds(call, calls) / calls for _ in range(7))
    row = {"bench": name, "library": f"torch {torch.__version__}", **columns, "ms": round(1e3 * one, 4)}
    if flops:
        row["tflops"] = round(flops / one / 1e12, 1)
    if size:
        row["gb_per_second"] = round(size / one / 1e9, 1)
    return row


def show(row):
    print(json.dumps(row), flush=True)


def half(*shape, scale=0.5, grad=False):
    values = torch.empty(shape, dtype=torch.bfloat16, device="cuda").uniform_(-scale, scale)
    return values.requires_grad_(grad)


def operations():
    x, y, w = half(16384, 4096), half(16384, 4096), half(4096)
    size = x.numel() * 2
    show(measure("copy", lambda: y.copy_(x), size=2 * size))
    show(measure("rms_norm 16384 x 4096 bf16", lambda: F.rms_norm(x, (4096,), w, 1e-5), size=2 * size))
    show(measure("swiglu", lambda: F.silu(x) * y, size=3 * size))
    weights = torch.zeros(100_000_000, device="cuda", requires_grad=True)
    weights.grad = torch.zeros_like(weights)
    optimizer = torch.optim.AdamW([weights], fused=True)
    show(measure("adamw 100 million", optimizer.step, size=28 * weights.numel()))  # writes no bf16 copy
    del weights, optimizer
    logits, targets = half(4096, 128256, grad=True), torch.zeros(4096, dtype=torch.long, device="cuda")
    show(measure("cross_entropy 4096 x 128256 bf16",
                 lambda: torch.autograd.grad(F.cross_entropy(logits, targets), logits), size=4 * logits.numel()))
    del logits
    a, b = half(8192, HIDDEN), half(INTERMEDIATE, HIDDEN)
    show(measure("matmul 8192 x 4096 x 12288 bf16", lambda: a @ b.T, flops=2 * 8192 * HIDDEN * INTERMEDIATE))


def attention():
    for dim in (64, 128):
        for length in (2048, 8192, 16384):
            q, k, v = (half(1, heads, length, dim, grad=True) for heads in (64, 8, 8))
            product = 64 * dim * length * length
            size = f" 64/8 heads of {dim}, sequence {length}"

            def forward():
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

            out = forward()
            seed = torch.ones_like(out)
            with torch.no_grad():
                show(measure("attention" + size, forward, flops=2 * product))
            show(measure("attention_backward" + size,
                         lambda: torch.autograd.grad(out, (q, k, v), seed, retain_graph=True), flops=5 * product))


def mlp():
    """Gradients are bf16 here, float in mlp.cpp; peak_bytes holds weights, x, y, their gradients and activations."""
    gate, up = (half(INTERMEDIATE, HIDDEN, scale=0.02, grad=True) for _ in range(2))
    down = half(HIDDEN, INTERMEDIATE, scale=0.02, grad=True)

    def untiled(x):
        return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T

    def tiled(tokens):
        return lambda x: torch.cat([checkpoint(untiled, tile, use_reentrant=False) for tile in x.split(tokens)])

    estimate = 5.0  # seconds; then twice what the length before took
    tokens = 2048
    while tokens <= 131072:
        if time.perf_counter() + estimate > END:
            show({"bench": f"mlp of {tokens} tokens and more", "left_out": "for lack of time"})
            return
        begin = time.perf_counter()
        x, dy = half(tokens, HIDDEN, scale=1.0, grad=True), half(tokens, HIDDEN, scale=1.0)
        tilings = {"off": untiled}
        if tokens >= FIRST_TILED:
            tilings.update({f"tokens:{n}": tiled(n) for n in (8192, 4096)})
        untiled_ms = 0.0
        for name, layer in tilings.items():
            def step():
                x.grad = gate.grad = up.grad = down.grad = None
                layer(x).backward(dy)

            step()
            torch.cuda.reset_peak_memory_stats()
            row = measure("mlp", step, flops=18 * tokens * HIDDEN * INTERMEDIATE, seq=tokens, tiling=name)
            untiled_ms = untiled_ms or row["ms"]
            row["ratio_to_untiled"] = round(row["ms"] / untiled_ms, 3)
            row["peak_bytes"] = torch.cuda.max_memory_allocated()
            show(row)
        del x, dy
        estimate = (4.0 if tokens < FIRST_TILED else 2.2) * (time.perf_counter() - begin)
        tokens *= 2


def main():
    if not torch.cuda.is_available():
        show({"bench": "torch", "skipped": "no device: torch sees no GPU"})
        return
    mlp()
    torch.cuda.empty_cache()
    operations()
    attention()


main()

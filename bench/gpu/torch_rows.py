# SPDX-License-Identifier: Apache-2.0
"""The rows of bench.cpp, timed in PyTorch: same sizes, same counts of bytes and FLOPs, medians of 7 rounds."""
import json
import statistics
import time

import torch
import torch.nn.functional as F


def seconds(call, calls):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure(name, call, flops=0, size=0):
    seconds(call, 2)
    calls = min(max(int(0.02 / seconds(call, 1)), 1), 1000) + 1
    one = statistics.median(seconds(call, calls) / calls for _ in range(7))
    row = {"bench": name, "library": f"torch {torch.__version__}", "ms": round(1e3 * one, 4)}
    if flops:
        row["tflops"] = round(flops / one / 1e12, 1)
    if size:
        row["gb_per_second"] = round(size / one / 1e9, 1)
    print(json.dumps(row), flush=True)


def half(*shape, grad=False):
    return torch.full(shape, 0.5, dtype=torch.bfloat16, device="cuda", requires_grad=grad)


def main():
    if not torch.cuda.is_available():
        print(json.dumps({"bench": "torch", "skipped": "no device: torch sees no GPU"}))
        return
    x, y, w = half(16384, 4096), half(16384, 4096), half(4096)
    size = x.numel() * 2
    measure("copy", lambda: y.copy_(x), size=2 * size)
    measure("rms_norm 16384 x 4096 bf16", lambda: F.rms_norm(x, (4096,), w, 1e-5), size=2 * size)
    measure("swiglu", lambda: F.silu(x) * y, size=3 * size)
    weights = torch.zeros(100_000_000, device="cuda", requires_grad=True)
    weights.grad = torch.zeros_like(weights)
    optimizer = torch.optim.AdamW([weights], fused=True)
    measure("adamw 100 million", optimizer.step, size=28 * weights.numel())  # writes no bf16 copy
    del weights, optimizer
    logits, targets = half(4096, 128256, grad=True), torch.zeros(4096, dtype=torch.long, device="cuda")
    measure("cross_entropy 4096 x 128256 bf16",
            lambda: torch.autograd.grad(F.cross_entropy(logits, targets), logits), size=4 * logits.numel())
    del logits
    a, b = half(8192, 4096), half(12288, 4096)
    measure("matmul 8192 x 4096 x 12288 bf16", lambda: a @ b.T, flops=2 * 8192 * 4096 * 12288)
    for dim in (64, 128):
        for length in (2048, 8192, 16384):
            q, k, v = half(1, 64, length, dim, grad=True), half(1, 8, length, dim, grad=True), half(1, 8, length, dim, grad=True)
            product = 64 * dim * length * length
            size = f" 64/8 heads of {dim}, sequence {length}"

            def forward():
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

            out = forward()
            seed = torch.ones_like(out)
            with torch.no_grad():
                measure("attention" + size, forward, flops=2 * product)
            measure("attention_backward" + size,
                    lambda: torch.autograd.grad(out, (q, k, v), seed, retain_graph=True), flops=5 * product)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rival of `tessera_bench step --model FOLDER` and of bench/gpu's bench_step: the same model by transformers under
PyTorch's FSDP2, over gloo on the CPU or over NCCL on as many GPUs as there are ranks.

usage: fsdp2_step.py FOLDER [--device cpu|cuda] [--ranks 2] [--threads 1] [--seq-len 2048] [--sequences 1]
                     [--repeats 5] [--precision fp32|bf16] [--compile]

Starts the ranks itself and prints one JSON line: the median time of a step (forward, backward, AdamW) of the slowest rank,
and the sum of all ranks' largest resident memory or, on GPUs, of the most that their tensors took. --compile compiles each
layer. Needs torch and transformers.
"""
import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor


def step_times(rank, options):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=options.ranks)
    mesh = init_device_mesh(options.device, (options.ranks,))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(options.folder), attn_implementation="sdpa")
    model.to(options.device)
    model.train()
    model.config.use_cache = False
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = {"mp_policy": bf16} if options.precision == "bf16" else {}
    for layer in model.model.layers:
        if options.compile:
            layer.compile()
        fully_shard(layer, mesh=mesh, **policy)
    fully_shard(model, mesh=mesh, **policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu)
    tokens = torch.randint(0, model.config.vocab_size, (options.sequences, options.seq_len), device=options.device)
    times = []
    for _ in range(1 + options.repeats):
        dist.barrier()
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # the host waits, as a loop that prints does
        times.append(time.perf_counter() - begin)
    most = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    dist.destroy_process_group()
    return times[1:], most, torch.__version__


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    for name, number in [("ranks", 2), ("threads", 1), ("seq-len", 2048), ("sequences", 1), ("repeats", 5), ("port", 29555)]:
        parser.add_argument("--" + name, type=int, default=number)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.ranks, multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(step_times, range(options.ranks), [options] * options.ranks))
    slowest = [max(times) for times in zip(*(times for times, _, _ in results))]
    over = "nccl" if options.device == "cuda" else "gloo"
    memory = "tensor_bytes" if options.device == "cuda" else "resident_bytes"
    print(json.dumps({"rival": f"fsdp2 over {over}, torch {results[0][2]}", "ranks": options.ranks,
                      "seq": options.seq_len, "sequences": options.sequences, "precision": options.precision,
                      "compiled": options.compile, "step_ms": round(1e3 * statistics.median(slowest), 1),
                      memory: sum(bytes for _, bytes, _ in results)}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rival of `tessera_bench foreign mlp`: the same chain of linear layers under PyTorch's FSDP2 over gloo, one unit a layer.

usage: fsdp2_mlp.py [--ranks 2] [--threads 1] [--layers 8] [--width 1024] [--rows 512] [--repeats 7] [--optimizer fused|foreach|loop]
                    [--compile]

Starts the ranks itself, each on cores of its own, and prints one JSON line: the median time of a step (forward, mean squared
error, backward, gradient norm, AdamW) of the slowest rank after three that are not counted, and its products alone, by
the clock and as processor time of the rank's process; the sum of all ranks' largest resident memory, and the part of it before the network
is made. Weights, batch and AdamW's rule are those of
bench/foreign/mlp.cpp, so that `loss` of the last step is, too, if `--repeats` are the same.
"""
import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

INPUTS, TARGETS = 1001, 1002
uncounted = 3  # steps at first, as many as in bench/foreign/mlp.cpp


def values(torch, series, begin, count):
    """Values of a series from an index on, in [-1, 1); see value_of in bench/foreign/mlp.cpp."""
    word = 0xFFFFFFFF
    hashes = (torch.arange(begin, begin + count, dtype=torch.int64) * 2654435761 + series * 40503) & word
    hashes = hashes ^ (hashes >> 15)
    hashes = (hashes * 2246822519) & word
    hashes = hashes ^ (hashes >> 13)
    return (hashes >> 8).to(torch.float32) / 8388608 - 1


def resident_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bind(rank, threads):
    """To cores that no other rank has, where there are enough."""
    cores = sorted(os.sched_getaffinity(0))[rank * threads:(rank + 1) * threads]
    if len(cores) == threads:
        os.sched_setaffinity(0, cores)


def network(torch, options):
    from torch import nn

    layers = []
    for layer in range(options.layers):
        linear = nn.Linear(options.width, options.width)
        with torch.no_grad():
            weight = values(torch, layer, 0, options.width**2).view(options.width, options.width)
            linear.weight.copy_(weight * (6 / options.width) ** 0.5)
            linear.bias.zero_()
        layers.append(linear if layer + 1 == options.layers else nn.Sequential(linear, nn.ReLU()))
    return nn.Sequential(*layers)


def products_seconds(torch, options):
    """The products of a rank's step alone."""
    x, w = torch.randn(options.rows, options.width), torch.randn(options.width, options.width)
    begin = time.perf_counter()
    for layer in range(options.layers):
        x @ w.T, x.T @ x
        if layer > 0:
            x @ w
    return time.perf_counter() - begin


def steps(rank, options):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    bind(rank, options.threads)
    torch.set_num_threads(options.threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    mesh = init_device_mesh("cpu", (options.ranks,))
    before = resident_bytes()
    model = network(torch, options)
    for layer in model:
        if options.compile:
            layer.compile()
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.01},
              {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0}]
    how = {} if options.optimizer == "loop" else {options.optimizer: True}
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, **how)
    count = options.rows * options.width
    x, target = (values(torch, series, rank * count, count).view(options.rows, options.width) for series in (INPUTS, TARGETS))

    times, cpu, losses = [], [], []
    for _ in range(uncounted + options.repeats):
        dist.barrier()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        times.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - cpu_begin)
    resident, products, products_cpu = resident_bytes(), [], []
    for _ in range(1 + options.repeats):
        dist.barrier()
        begin = time.process_time()
        products.append(products_seconds(torch, options))
        products_cpu.append(time.process_time() - begin)
    dist.destroy_process_group()
    return {"steps": times[uncounted:], "cpu": cpu[uncounted:], "products": products[1:], "products_cpu": products_cpu[1:],
            "resident": resident, "before": before, "loss": losses[-1], "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser()
    for name, number in [("ranks", 2), ("threads", 1), ("layers", 8), ("width", 1024), ("rows", 512), ("repeats", 7), ("port", 29556)]:
        parser.add_argument("--" + name, type=int, default=number)
    parser.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.ranks, multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(steps, range(options.ranks), [options] * options.ranks))

    def slowest_ms(what):
        return round(1e3 * statistics.median(max(times) for times in zip(*(result[what] for result in results))), 1)

    print(json.dumps({"rival": "fsdp2 over gloo, torch " + results[0]["torch"], "compiled": options.compile, "optimizer": options.optimizer,
                      "ranks": options.ranks, "layers": options.layers, "width": options.width, "rows": options.rows,
                      "step_ms": slowest_ms("steps"), "matmul_ms": slowest_ms("products"),
                      "cpu_ms": slowest_ms("cpu"), "matmul_cpu_ms": slowest_ms("products_cpu"),
                      "resident_bytes": sum(result["resident"] for result in results),
                      "resident_before_bytes": sum(result["before"] for result in results),
                      "loss": statistics.mean(result["loss"] for result in results)}))


if __name__ == "__main__":
    main()

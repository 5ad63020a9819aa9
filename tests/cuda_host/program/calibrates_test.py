# SPDX-License-Identifier: Apache-2.0
"""`tessera calibrate --comm nccl` on 2 processes: a cluster's file of GPUs, which `tessera plan` takes."""
from cuda_host.program.ranks import on_ranks
from support.files import contains, read


def test_a_cluster_of_gpus_is_measured(program):
    on_ranks(program, 2, "calibrate --comm nccl --threads 1 --repeats 1 --out gpus.toml")
    assert read("1.out") == ""
    contains("gpus.toml", '^device = "cuda" ', "^ranks = 2 ", "^memory = 2147483648 .*; all of the device",
             "^collectives_have_queues = true ",
             r"^beside_collectives = (1|0\.[0-9]+)  # .*; (.* in 1 repeats|not measured: gathers end too soon)$")
    for key in "matmul_bf16 matmul_fp32_small attention memory_bandwidth host_bandwidth node_bandwidth".split():
        contains("gpus.toml", f"^{key} = [1-9].* in 1 repeats$")
    program("plan --cluster gpus.toml --model tiny").prints("^fsdp2 / nccl / bf16 on gpus.toml, 2 ranks in 1 node, ")

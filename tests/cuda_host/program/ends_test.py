# SPDX-License-Identifier: Apache-2.0
"""`tessera train --comm nccl` that cannot start or continue: every rank ends soon, with its status and one message, and
gives back what it had of CUDA and NCCL.

TESSERA_SWEEP=sample: some of the calls that fail."""
import os
import re

import pytest

from cuda_host.program.ranks import LIMIT, Ranks, on_ranks, reported
from support.files import contains, fresh, read
from support.program import NARROW, WHOLE

FLAGS = f"train --comm nccl --data text.txt --layers 1 {NARROW} --vocab 256 --batch-size 4 --precision fp32 --threads 1"
ONE = "--steps 1"
SHORT = "--deadline 2"  # where a rank does not come
GRAPHS = "--steps 4 --cuda-graphs"
SAMPLE = [("cudaMalloc", 5), ("cudaLaunchKernel", 40), ("cublasLtMatmul", 30), ("ncclAllGather", 3),
          ("ncclGroupEnd", 10), ("cudaGraphLaunch", 1), ("cudaEventRecord", 20), ("cudaHostAlloc", 3)]
UNSEEN = "Destroy|Free|Finalize|cudaDeviceSynchronize|cudaRuntimeGetVersion"  # by destructors, or reported to nobody


def test_without_a_launcher_there_is_one_rank(program):
    program(FLAGS, ONE, env=os.environ | {"TESSERA_DOUBLE_GPUS": "1"}, limit=LIMIT)
    program.refuses("would be as many runs, each alone.*torchrun", FLAGS, ONE,
                    env=os.environ | {"OMPI_COMM_WORLD_SIZE": "2"}, lines=None)


@pytest.mark.parametrize("planted", [
    "0:CUDA_VISIBLE_DEVICES=0 1:CUDA_VISIBLE_DEVICES=1",  # as by Slurm's --gpus-per-task
    "CUDA_VISIBLE_DEVICES=0 0:NCCL_HOSTID=a 1:NCCL_HOSTID=b"])  # on purpose: for NCCL they are two hosts
def test_each_rank_may_see_one_device(program, planted):
    on_ranks(program, 2, FLAGS, ONE, planted=planted.split())


@pytest.mark.parametrize("planted, flags, statuses, patterns", [
    # What one rank finds is what every rank reports.
    ("TESSERA_DOUBLE_GPUS=1", ONE, [2, 2], ["rank 0: 2 ranks run on this machine, which has 1 devices"]),
    ("1:TESSERA_DOUBLE_GPUS=0", ONE, [2, 2], [r"rank 1: no device: CUDA's driver sees no GPU$"]),
    ("1:TESSERA_DOUBLE_DRIVER=12040", ONE, [2, 2],
     [r"rank 1: the driver is made for CUDA 12.4, this program for CUDA 1[0-9].[0-9]; install a newer driver$"]),
    ("0:TESSERA_DOUBLE_NCCL=21703", ONE, [2, 2],
     [r"rank 0: NCCL 2.17.3 is loaded, and this program needs 2.1[89].0 or newer; install one"]),
    ("CUDA_VISIBLE_DEVICES=1", ONE, [2, 2],
     ["rank 0 and rank 1 use the same device, GPU-00112233-4455-6677-8899-aabbccddee01; give every rank a GPU"]),
    ("LOCAL_RANK=1 NCCL_HOSTID=node", ONE, [2, 2], ["rank 0 and rank 1 use the same device, .*01 of NCCL_HOSTID node;"]),
    ("1:RANK=", f"{ONE} {SHORT}", [2, 2], [r"rank 1 did not come within 2.000 s", "RANK is not set, but others"]),
    ("1:LOCAL_RANK=2", f"{ONE} {SHORT}", [2, 2], ["rank 1 did not come", "LOCAL_RANK is 2, LOCAL_WORLD_SIZE 2"]),
    ("1:RANK=0", f"{ONE} {SHORT}", [2, 2],  # one of them takes the port
     [r"rank 1 did not come|cannot listen at port [0-9]+ \(Address already in use\); choose another MASTER_PORT"]),
    ("1:--lr=0.5", ONE, [2, 2], ["started with different arguments: rank 0 has 'lr = 0.001', rank 1 has 'lr = 0.5'"]),
    ("", f"{ONE} --resume nowhere", [2, 2], ["nowhere"]),
    ("", f"{ONE} --model nothing", [2, 2], ["nothing"]),
    ("", "--steps 50 --lr 1000 --clip 0 --cuda-graphs", [3, 3],
     ["step [0-9]+: loss is .* and the gradient norm is .*; stopped before any weight was touched"]),
])
def test_ranks_that_cannot_train_end_with_a_message(program, planted, flags, statuses, patterns):
    with Ranks(program, 2, FLAGS, flags, planted=planted.split()) as job:
        job.ends(statuses, *patterns)


def test_a_gpu_that_lacks_a_byte_of_memory_ends_the_run(program):
    on_ranks(program, 2, FLAGS, ONE)
    took = reported(1, "peak")
    on_ranks(program, 2, FLAGS, ONE, planted=[f"TESSERA_DOUBLE_GPU_BYTES={took}"])
    with Ranks(program, 2, FLAGS, ONE, planted=[f"1:TESSERA_DOUBLE_GPU_BYTES={took - 1}"]) as job:
        job.ends([3, 2], "NCCL: .* failed: remote error|remote error",
                 "the device gave no [0-9]+ bytes of memory: [0-9]+ of [0-9]+ are free; ")


@pytest.mark.parametrize("graphs", ["--cuda-graphs=false", "--cuda-graphs=true"])
def test_a_signal_ends_all_ranks(program, graphs):
    long = f"{FLAGS} --steps 100000 --log-every 1000000 --lr-schedule constant {graphs} --metrics metrics.jsonl"
    fresh("saved"), fresh("metrics.jsonl")
    with Ranks(program, 2, long, "--checkpoint-dir saved") as job:
        job.makes_steps("metrics.jsonl")
        job.processes[1].terminate()
        job.ends([143, 143])
    contains("0.out", "^SIGTERM: ended after step [0-9]+: saved/step-")
    last = int(read("saved/latest").removeprefix("step-"))
    on_ranks(program, 2, FLAGS, f"--steps {last + 1} --lr-schedule constant --resume saved")
    fresh("metrics.jsonl")
    with Ranks(program, 2, long, "--device-deadline 5") as job:
        job.makes_steps("metrics.jsonl")
        job.processes[1].kill()
        job.ends([3, 137], r"rank 0, .* waited 5\.[0-9]* s for the device or the other ranks; "
                 "the limit of the device is 5.000 s")


def fails(program, function, number):
    """Whether the run came to so many calls on rank 1, of which the last failed."""
    with Ranks(program, 2, FLAGS, GRAPHS, SHORT, planted=[f"1:TESSERA_DOUBLE_FAULT={function}:{number}"]) as job:
        statuses = job.statuses()
        if statuses == [0, 0]:
            return False
        assert statuses[0] in (2, 3) and statuses[1] in (1, 2, 3), (statuses, str(job))
        assert (read("0.err") + read("1.err")).count("\n") == 2, str(job)
        contains("1.err", "CUDA|cuBLASLt|NCCL|device|driver")
        job.gives_back()
    return True


def test_calls_that_fail_end_the_run(program):
    on_ranks(program, 2, FLAGS, GRAPHS)
    calls = {function: int(count) for function, count in re.findall("^calls ([^ ]+) ([0-9]+)$", read("1.report"), re.M)}
    if not WHOLE:
        for function, number in SAMPLE:
            assert fails(program, function, number), f"{function} fails unseen"
        return
    assert calls
    for function, count in calls.items():
        if not re.search(UNSEEN, function):
            assert fails(program, function, 1), f"{function} fails unseen"
            # Hosts that wait ask as often as they find time: a run may make fewer calls.
            if count > 1 and not fails(program, function, count // 2):
                fails(program, function, 2)

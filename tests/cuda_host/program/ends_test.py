# SPDX-License-Identifier: Apache-2.0
"""`tessera train --comm nccl` that cannot start or continue: every rank ends soon, with its status and one message, and
gives back what it had of CUDA and NCCL.

TESSERA_SWEEP=sample: some of the calls that fail."""
import os
import re
import signal
import time

import pytest

from cuda_host.program.ranks import LIMIT, Ranks, on_ranks, reported
from support.files import contains, fresh, read
from support.program import NARROW, WHOLE, until

FLAGS = f"train --comm nccl --data text.txt --layers 1 {NARROW} --vocab 256 --batch-size 4 --precision fp32 --threads 1"
ONE = "--steps 1"
SHORT = "--start-deadline 2"  # where a rank does not come
LONG = "--steps 100000 --log-every 1000000 --lr-schedule constant --metrics metrics.jsonl"
GRAPHS = "--steps 4 --cuda-graphs on"
SAMPLE = [("cudaMalloc", 5), ("cudaLaunchKernel", 40), ("cublasLtMatmul", 30), ("ncclAllGather", 3),
          ("ncclGroupEnd", 10), ("cudaGraphLaunch", 1), ("cudaEventRecord", 20), ("cudaHostAlloc", 3)]
LOST = "its process ended without an error message"
# Strategy, ranks, the one that is lost: every axis of the mesh, alone and together.
KILLED = [("fsdp2", 2, 1), ("hybrid:2", 4, 0), ("hybrid:2:full", 4, 2), ("fsdp2:2", 4, 3),
          ("fsdp2 --sequence ulysses:2", 2, 1), ("hybrid:2 --sequence ulysses:2", 4, 1)]
SOME = [1, 2, 11] if not WHOLE else range(2 * len(KILLED))  # of the strategies queued, and then by graphs
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
    ("1:TESSERA_DOUBLE_FAULT=cudaDeviceGetPCIBusId:1", ONE, [2, 2], ["rank 1: CUDA, asking for the PCI address: "]),
    ("1:TESSERA_DOUBLE_FAULT=ncclCommInitRankConfig:1", ONE, [3, 3],
     ["rank 1 failed: NCCL: initialisation failed: ", "^tessera: NCCL: initialisation failed: "]),
    ("0:TESSERA_DOUBLE_NCCL=21703", ONE, [2, 2],
     [r"rank 0: NCCL 2.17.3 is loaded, and this program needs 2.1[89].0 or newer; install one"]),
    ("CUDA_VISIBLE_DEVICES=1", ONE, [2, 2],
     ["rank 0 and rank 1 use the same device, GPU-00112233-4455-6677-8899-aabbccddee01; give every rank a separate GPU"]),
    ("LOCAL_RANK=1 NCCL_HOSTID=node", ONE, [2, 2], ["rank 0 and rank 1 use the same device, .*01 of NCCL_HOSTID node;"]),
    ("1:RANK=", f"{ONE} {SHORT}", [2, 2], [r"rank 1 did not come within 2.000 s", "RANK is not set, but others"]),
    ("1:LOCAL_RANK=2", f"{ONE} {SHORT}", [2, 2], ["rank 1 did not come", "LOCAL_RANK is 2, LOCAL_WORLD_SIZE 2"]),
    ("1:RANK=0", f"{ONE} {SHORT}", [2, 2],  # one of them takes the port
     [r"rank 1 did not come|cannot listen at port [0-9]+ \(Address already in use\); choose another MASTER_PORT"]),
    ("1:NCCL_LAUNCH_ORDER_IMPLICIT=0", f"{ONE} --sharding hybrid:2", [2, 2],
     ["a mesh of several axes needs one order of launches for all its NCCL communicators, and on rank 1 "
      "NCCL reads NCCL_LAUNCH_ORDER_IMPLICIT as 0; unset it, or take a strategy of one axis"]),
    ("TESSERA_DOUBLE_NCCL=22507", f"{ONE} --sequence ulysses:2", [2, 2],
     ["and on rank 0 NCCL is 2.25.7, and the first with that order is 2.26; update NCCL, or take"]),
    ("1:--lr=0.5", ONE, [2, 2], ["started with different arguments: rank 0 has 'lr = 0.001', rank 1 has 'lr = 0.5'"]),
    ("", f"{ONE} --resume nowhere", [2, 2], ["nowhere"]),
    ("", f"{ONE} --model nothing", [2, 2], ["nothing"]),
    ("", "--steps 50 --lr 1000 --clip 0 --cuda-graphs on", [3, 3],
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
        job.ends([3, 2], "rank 1 failed: the device gave no [0-9]+ bytes of memory",
                 "the device gave no [0-9]+ bytes of memory: [0-9]+ of [0-9]+ are free; ")


@pytest.mark.parametrize("graphs", ["--cuda-graphs off", "--cuda-graphs on"])
def test_a_signal_ends_all_ranks(program, graphs):
    long = f"{FLAGS} {LONG} {graphs}"
    fresh("saved"), fresh("metrics.jsonl")
    with Ranks(program, 2, long, "--checkpoint-dir saved") as job:
        job.makes_steps("metrics.jsonl")
        job.processes[1].terminate()
        job.ends([143, 143])
    contains("0.out", "^SIGTERM: ended after step [0-9]+: saved/step-")
    last = int(read("saved/latest").removeprefix("step-"))
    on_ranks(program, 2, FLAGS, f"--steps {last + 1} --lr-schedule constant --resume saved")


@pytest.mark.parametrize("case", SOME)
def test_all_ranks_end_soon_when_one_is_killed(program, case):
    strategy, ranks, lost = KILLED[case % len(KILLED)]
    graphs = "--cuda-graphs on" if case >= len(KILLED) else ""
    across_hosts = [f"{rank}:NCCL_HOSTID=host{rank}" for rank in range(ranks) if case % 2 == 0]  # NCCL notices, too
    fresh("metrics.jsonl")
    with Ranks(program, ranks, FLAGS.replace("fp32", "bf16"), LONG, f"--sharding {strategy}", graphs,
               planted=across_hosts) as job:
        job.makes_steps("metrics.jsonl")
        job.processes[lost].kill()
        killed = time.monotonic()
        job.ends([137 if rank == lost else 3 for rank in range(ranks)], f"rank {lost} failed: {LOST}")
        assert time.monotonic() - killed < 15, "the others waited for a deadline"


def test_an_error_of_one_rank_ends_the_others_with_its_reason(program):
    """A full disk under what rank 0 alone writes, and a rank that is stopped until the device's deadline of another."""
    full = "--metrics /dev/full: cannot be written"
    with Ranks(program, 2, FLAGS, ONE, "--metrics /dev/full") as job:
        job.ends([2, 3], f"^tessera: {full}", f"rank 0 failed: {full}")
    fresh("metrics.jsonl")
    with Ranks(program, 2, FLAGS, LONG, "--device-deadline 3") as job:
        job.makes_steps("metrics.jsonl")
        job.processes[1].send_signal(signal.SIGSTOP)
        until(lambda: len(job.running()) == 1, job, LIMIT)
        job.processes[1].send_signal(signal.SIGCONT)
        job.ends([3, 3], r"waited 3\.[0-9]* s for the device or the other ranks; the limit of the device is 3.000 s")


@pytest.mark.parametrize("flags, statuses, patterns", [
    ("--deadline 1", [0, 0], []),
    ("--start-deadline 1", [3, 3], ["^tessera: waited 1.* in NCCL's initialisation; the deadline of the start is 1.0",
                                    "rank 0 failed: waited 1.* the deadline of the start is 1.0"]),
])
def test_a_slow_start_has_a_limit_of_its_own(program, flags, statuses, patterns):
    with Ranks(program, 2, FLAGS, ONE, flags, planted=["1:TESSERA_DOUBLE_SLOW_START=2500"]) as job:
        job.ends(statuses, *patterns)


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

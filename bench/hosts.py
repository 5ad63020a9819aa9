#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `tessera plan` against steps over two hosts: calibrates both, trains in a few ways, and compares.

The hosts are network namespaces of this machine, each with a name, and a link between them whose bandwidth the kernel
limits. Ranks are MPI's, and send each other messages over TCP; all share the machine's cores. Needs root, iproute2's `ip`
and `tc`, util-linux, and a program with stacks over Open MPI.

usage: bench/hosts.py PROGRAM [--rate RATE] [--ranks N]     RATE: as tc has it, 2gbit; N: on each host, 1
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HOSTS = {f"tessera-{os.getpid()}-{side}": f"10.97.0.{number}" for number, side in ((1, "a"), (2, "b"))}
MODEL = "--hidden 256 --layers 4 --heads 8 --kv-heads 4 --intermediate 768 --vocab 1024 --seq-len 512"
WAYS = ["--sharding fsdp2", "--sharding fsdp2 --grad-accum 2", "--sharding zero1", "--sharding zero3 --recompute",
        "--sharding replicated", "--sharding fsdp2 --sharding-of embed_tokens|lm_head=replicated"]
WITHIN = ["--sharding hybrid:{ranks}", "--sharding hybrid:{ranks}:full"]  # where a host has several ranks


def run(*command):
    if subprocess.run(command).returncode != 0:
        sys.exit(f"hosts.py: {' '.join(command)} failed")


def make_hosts(rate):
    """Two namespaces with one link, whose ends each send at most `rate`."""
    names = list(HOSTS)
    for name in names:
        run("ip", "netns", "add", name)
    run("ip", "link", "add", "link-a", "netns", names[0], "type", "veth", "peer", "name", "link-b", "netns", names[1])
    for name, link in zip(names, ("link-a", "link-b")):
        run("ip", "-n", name, "addr", "add", HOSTS[name] + "/24", "dev", link)
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "link", "set", link, "up")
        run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "512kb",
            "latency", "100ms")


def remove_hosts():
    for name in HOSTS:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def write_agent(folder):
    """What mpirun starts a host's daemon with: ADDRESS COMMAND..."""
    agent = folder / "agent"
    cases = "".join(f"{address}) name={name} ;;\n" for name, address in HOSTS.items())
    agent.write_text(f'#!/bin/bash\ncase $1 in\n{cases}esac\nshift\n'
                     'exec ip netns exec $name unshare -u bash -c "hostname $name; $*"\n')
    agent.chmod(0o755)
    return agent


class Cluster:
    """The program on all ranks of both hosts."""

    def __init__(self, program, folder, ranks):
        self.program, self.folder, self.ranks, self.agent = program, folder, ranks, write_agent(folder)

    def tessera(self, *arguments):
        first, network = next(iter(HOSTS)), "10.97.0.0/24"
        mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent",
                  self.agent, "--mca", "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network, "--mca", "pml",
                  "ob1", "--mca", "btl", "tcp,self", "--host",
                  ",".join(f"{address}:{self.ranks}" for address in HOSTS.values()), "-np", len(HOSTS) * self.ranks]
        words = [*mpirun, self.program, *arguments, "--shared-windows=false", "--threads", 1]
        command = ["ip", "netns", "exec", first, "unshare", "-u", "bash", "-c", f'hostname {first}; exec "$@"', "-", *words]
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run([str(word) for word in command], cwd=self.folder, env=environment, capture_output=True,
                              text=True, timeout=600)
        if done.returncode != 0:
            sys.exit(f"hosts.py: {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        return done.stdout


def report(cluster):
    print("way" + " " * 68 + "planned ms   took ms  planned / took   in collectives: planned, took")
    ways = WAYS + [way.format(ranks=cluster.ranks) for way in WITHIN if cluster.ranks > 1]
    for way in ways:
        text = cluster.tessera("train", "--comm", "mpi", "--cluster", "hosts.toml", "--data", "text.txt", "--data-format",
                               "bytes", "--validation-fraction", 0, "--steps", 8, *MODEL.split(), "--batch-size",
                               4 * cluster.ranks, *way.split())
        found = re.search(r"a step took ([\d.]+) (m?)s \(([\d.]+ m?s) of it in collectives\), .* than the plan's "
                          r"([\d.]+) (m?)s \(([\d.]+ m?s)", text)
        if not found:
            sys.exit(f"hosts.py: {way}: no step is told\n{text}")
        took = float(found[1]) * (1 if found[2] else 1000)
        planned = float(found[4]) * (1 if found[5] else 1000)
        print(f"{way:70} {planned:10.1f} {took:9.1f} {planned / took:15.3f}   {found[6]}, {found[3]}", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("--rate", default="2gbit")
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("hosts.py: only root makes network namespaces")
    if options.ranks < 1 or not os.access(options.program, os.X_OK):
        sys.exit(f"hosts.py: {options.program} on {options.ranks} ranks of each host: no program, or no ranks")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text.txt").write_bytes(pathlib.Path(__file__).read_bytes() * 40)
        try:
            make_hosts(options.rate)
            cluster = Cluster(pathlib.Path(options.program).resolve(), folder, options.ranks)
            cluster.tessera("calibrate", "--out", "hosts.toml", "--repeats", 9)
            print("".join(line for line in open(folder / "hosts.toml") if line.startswith(("#", "network_", "node_ban"))))
            report(cluster)
        finally:
            remove_hosts()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the kernels that nvcc compiled against bench/gpu/budget.json, and models their time.

usage: gate.py registers|loops|model|update PROGRAM [--table FILE]
  registers  registers, stack, static shared memory of every kernel; threads, dynamic shared memory and blocks a
             multiprocessor of what the host launches for operations of usual sizes
  loops      with nvdisasm: accesses to spills, and in the main loop instructions, branches, ldmatrix for each mma,
             and loads from global memory beside mma
  model      prints how long operations take at best on an H100, beside the goal
  update     writes the table anew; what is excused of using a stack stays excused while it uses one
PROGRAM is tests_gpu_gate_launches. Kernels are found by themselves, under the names that their source gives them.
Status 1: a kernel is worse than the table, or not in it. "skipped:" and why where nothing can be compared.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import compiled
import disassembly
import model

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "budget.json")
PARTS_OF_LOOPS = ("spill_accesses", "instructions", "branches", "ldmatrix_per_mma", "loads")
SLACK_OF_INSTRUCTIONS = 1.05
AGAIN = "run bench/gpu/gate.py update if that is meant"


class Skipped(Exception):
    """Nothing can be compared."""


class Failed(Exception):
    """The program itself finds a launch that CUDA would not take."""


def operations(program, by_mangled):
    """[(operation, [(kernel, launch)])] that the host launches."""
    listed = subprocess.run([program], capture_output=True, text=True)
    if listed.returncode != 0:
        raise Failed(f"{program}: {listed.stderr.strip()}")
    for line in listed.stdout.splitlines():
        operation = json.loads(line)
        yield operation, [(by_mangled[launch["kernel"]], launch) for launch in operation["launches"]]


def launch_limits(kernel, launch):
    return {"kernel": kernel.name, "threads": launch["threads"], "dynamic_shared": launch["dynamic_shared"],
            "blocks_an_sm": model.blocks_an_sm(kernel, launch)}


class Found:
    """What the program holds."""

    def __init__(self, program, needs_loops):
        if shutil.which("c++filt") is None:
            raise Skipped("no c++filt, by which kernels get their names")
        self.kernels, cubins = compiled.all_kernels(program)
        if not cubins:
            raise Skipped(f"{program} holds no compiled kernels")
        self.toolkit, self.architecture = cubins[0].toolkit, cubins[0].architecture
        by_mangled = {kernel.mangled: kernel for kernel in self.kernels.values()}
        self.operations = list(operations(program, by_mangled))
        self.loops = {}
        nvdisasm = disassembly.find_nvdisasm() if needs_loops else None
        if needs_loops and nvdisasm is None:
            raise Skipped("no nvdisasm in NVDISASM, PATH, /usr/local/cuda/bin or PyPI's nvidia-cuda-nvdisasm")
        if nvdisasm:
            loops = disassembly.loops_of(cubins, nvdisasm)
            self.loops = {name: loops[kernel.mangled] for name, kernel in self.kernels.items()}

    def require_same_tools(self, table):
        own = (self.architecture, self.toolkit)
        if own != (table["architecture"], table["toolkit"]):
            raise Skipped(f"the table is of {table['architecture']} by CUDA {table['toolkit']}, this program is of "
                          f"{own[0]} by CUDA {own[1]}")


def worse(name, found, limits, parts):
    """Sentences on what is worse than the table says."""
    for part in parts:
        if part in found and part not in limits:
            yield f"{name}: {part} is not in the table; {AGAIN}"
        elif part in found:
            most = limits[part] * (SLACK_OF_INSTRUCTIONS if part == "instructions" else 1)
            if found[part] > most + 1e-9:
                yield f"{name}: {found[part]} {part}, the table has {limits[part]}"


def unlisted(found, listed, what):
    for name in sorted(set(found) - set(listed)):
        yield f"{name}: {what} that is not in the table; {AGAIN}"
    for name in sorted(set(listed) - set(found)):
        yield f"{name}: {what} of the table that is not there; {AGAIN}"


def check_registers(found, table):
    yield from unlisted(found.kernels, table["kernels"], "a kernel")
    for name, kernel in found.kernels.items():
        limits = table["kernels"].get(name)
        if limits:
            yield from worse(name, kernel.limits(), limits, ("registers", "stack", "static_shared"))
        if kernel.stack > 0 and name not in table["excused"]:
            yield f"{name}: a stack of {kernel.stack} bytes, and nothing in 'excused' says why"
    yield from unlisted([o["operation"] for o, _ in found.operations], table["operations"], "an operation")
    for operation, launches in found.operations:
        name = operation["operation"]
        own = [launch_limits(*each) for each in launches]
        for each in own:
            if each["blocks_an_sm"] == 0:
                yield f"{name}: {each['kernel']} cannot be launched with {each['threads']} threads"
        listed = table["operations"].get(name, own)
        if [each["kernel"] for each in own] != [each["kernel"] for each in listed]:
            yield f"{name}: launches {', '.join(each['kernel'] for each in own)}; {AGAIN}"
            continue
        for each, limits in zip(own, listed):
            if each["blocks_an_sm"] < limits["blocks_an_sm"]:
                yield (f"{name}: {each['blocks_an_sm']} blocks of {each['kernel']} fit on a multiprocessor, the table "
                       f"has {limits['blocks_an_sm']}")


def check_loops(found, table):
    for name, loop in found.loops.items():
        limits = table["kernels"].get(name, {}).get("loop")
        if limits is None:
            yield f"{name}: its loop is not in the table; {AGAIN}"
            continue
        yield from worse(name, loop.limits(), limits, PARTS_OF_LOOPS)
        if loop.spill_accesses > 0 and name not in table["excused"]:
            yield f"{name}: {loop.spill_accesses} accesses to its stack, and nothing in 'excused' says why"


def print_model(found):
    print(f"{'operation':42} {'at best':>10} {'rate':>13} {'goal':>13}  limit")
    for operation, launches in found.operations:
        with_loops = [(kernel, launch, found.loops.get(kernel.name)) for kernel, launch in launches]
        best = model.estimate(operation["operation"], with_loops, operation["flops"], operation["bytes"])
        if best is None:
            continue
        show = lambda rate: "-" if rate is None else f"{rate / 1e12:8.2f} T{best.unit}"
        below = "  BELOW THE GOAL" if best.goal and best.rate < best.goal else ""
        print(f"{operation['operation']:42} {best.seconds * 1e3:7.3f} ms {show(best.rate):>13} {show(best.goal):>13}  "
              f"{best.limit}{below}")


def updated(found, before):
    """The table of what was found."""
    kernels = {name: kernel.limits() | {"loop": found.loops[name].limits()} for name, kernel in found.kernels.items()}
    uses_stack = lambda name: found.kernels[name].stack > 0 or found.loops[name].spill_accesses > 0
    return {
        "architecture": found.architecture,
        "toolkit": found.toolkit,
        "excused": {name: why for name, why in before.get("excused", {}).items()
                    if name in found.kernels and uses_stack(name)},
        "operations": {o["operation"]: [launch_limits(*each) for each in launches] for o, launches in found.operations},
        "kernels": dict(sorted(kernels.items())),
    }


def write_table(path, table):
    """One line a kernel or launch, so that changes can be read."""
    def lines(part):
        return ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in table[part].items())
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{\n  "architecture": {json.dumps(table["architecture"])},\n'
                   f'  "toolkit": {json.dumps(table["toolkit"])},\n')
        file.write(",\n".join(f'  "{part}": {{\n{lines(part)}\n  }}' for part in ("excused", "operations", "kernels")))
        file.write("\n}\n")


def read_table(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def run(arguments):
    found = Found(arguments.program, arguments.part != "registers")
    if arguments.part == "model":
        print_model(found)
        return 0
    if arguments.part == "update":
        before = read_table(arguments.table) if os.path.exists(arguments.table) else {}
        write_table(arguments.table, updated(found, before))
        return 0
    table = read_table(arguments.table)
    found.require_same_tools(table)
    problems = list((check_registers if arguments.part == "registers" else check_loops)(found, table))
    print("\n".join(problems) if problems else f"{len(found.kernels)} kernels are within {arguments.table}")
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("registers", "loops", "model", "update"))
    parser.add_argument("program")
    parser.add_argument("--table", default=TABLE)
    try:
        return run(parser.parse_args())
    except Skipped as why:
        print(f"skipped: {why}")
        return 0
    except (Failed, ValueError) as why:
        print(why)
        return 1


if __name__ == "__main__":
    sys.exit(main())

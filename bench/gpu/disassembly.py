# SPDX-License-Identifier: Apache-2.0
"""What a kernel's instructions do, by nvdisasm: its loops, and in its main loop branches, loads, ldmatrix and products.

The main loop is the smallest one with most products (HMMA), or where a kernel has none, the innermost one that loads
most bytes of global memory; where there is no loop it is the whole kernel.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
LABEL = re.compile(r"^(\.L\w+|\$?[A-Za-z_]\w*):")
TARGET = re.compile(r"`\((\.L\w+)\)")


def find_nvdisasm():
    """The path of nvdisasm, or None: NVDISASM, PATH, the toolkit's folder, or PyPI's nvidia-cuda-nvdisasm."""
    folders = [os.path.join(path, "nvidia") for path in sys.path]
    packages = [os.path.join(folder, part, "bin", "nvdisasm") for folder in folders if os.path.isdir(folder)
                for part in sorted(os.listdir(folder), reverse=True)]
    for path in [os.environ.get("NVDISASM"), shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm"] + packages:
        if path and os.access(path, os.X_OK):
            return path
    return None


class Instruction:
    def __init__(self, predicate, opcode, operands):
        self.conditional = predicate is not None and predicate != "@PT"
        self.opcode = opcode
        self.kind = opcode.split(".")[0]
        target = TARGET.search(operands) if self.kind in ("BRA", "BRX", "JMP") else None
        self.target = target.group(1) if target else None

    def bytes_of_lane(self):
        """How wide its access to memory is."""
        for word, count in ((".128", 16), (".64", 8), (".U16", 2), (".S16", 2), (".U8", 1), (".S8", 1)):
            if word in self.opcode:
                return count
        return 4


def functions(text):
    """{mangled name: [(labels before it, instruction)]}."""
    found, body, labels = {}, None, []
    for line in text.split("\n"):
        stripped = line.strip()
        section = re.match(r"\.section\s+\.text\.([^\s,]+)", stripped)
        if section:
            body, labels = found.setdefault(section.group(1), []), []
        elif body is not None:
            label = LABEL.match(stripped)
            if label:
                labels.append(label.group(1))
            match = INSTRUCTION.search(line)
            if match:
                body.append((labels, Instruction(match.group(2), match.group(3), match.group(4))))
                labels = []
    return found


class Code:
    """A kernel's instructions as blocks that run from begin to end, and its loops."""

    def __init__(self, body):
        self.instructions = [instruction for _, instruction in body]
        starts, at_label = {0}, {}
        for i, (labels, instruction) in enumerate(body):
            for label in labels:
                at_label[label] = i
                starts.add(i)
            if instruction.target or instruction.kind in ("EXIT", "RET", "BRX"):
                starts.add(i + 1)
        self.begins = sorted(start for start in starts if start < len(body))
        index = {begin: block for block, begin in enumerate(self.begins)}
        self.ends = self.begins[1:] + [len(body)]
        self.next = []
        for block, end in enumerate(self.ends):
            last = self.instructions[end - 1]
            after = [block + 1] if block + 1 < len(self.begins) else []
            if last.target in at_label:
                target = [index[at_label[last.target]]]
                self.next.append(target + (after if last.conditional else []))
            elif last.kind in ("EXIT", "RET", "BRX") and not last.conditional:
                self.next.append([])
            else:
                self.next.append(after)

    def _dominators(self):
        """Of each block that can be reached, the blocks that every way to it passes."""
        reached, stack = [], [0]
        while stack:
            block = stack.pop()
            if block not in reached:
                reached.append(block)
                stack += self.next[block]
        reached.sort()
        before = {block: [] for block in reached}
        for block in reached:
            for after in self.next[block]:
                before[after].append(block)
        everything = set(reached)
        dominators = {block: {0} if block == 0 else everything for block in reached}
        changed = True
        while changed:
            changed = False
            for block in reached[1:]:
                ways = [dominators[way] for way in before[block]]
                new = set.intersection(*ways) | {block}
                if new != dominators[block]:
                    dominators[block], changed = new, True
        return dominators, before

    def loops(self):
        """Sets of blocks: those that come back to a block without leaving what it dominates. One for each head."""
        dominators, before = self._dominators()
        by_head = {}
        for block, over in dominators.items():
            for head in self.next[block]:
                if head in over:
                    body, stack = by_head.setdefault(head, {head}), [block]
                    while stack:
                        part = stack.pop()
                        if part not in body:
                            body.add(part)
                            stack += before[part]
        return list(by_head.values())

    def of(self, blocks):
        return [self.instructions[i] for block in sorted(blocks) for i in range(self.begins[block], self.ends[block])]

    def main_loop(self):
        """(instructions, whether they are a loop)."""
        loops = self.loops()
        products = lambda loop: sum(i.kind == "HMMA" for i in self.of(loop))
        if any(i.kind == "HMMA" for i in self.instructions):
            most = max(map(products, loops), default=0)
            loops = [loop for loop in loops if products(loop) == most > 0]
            if loops:
                return self.of(min(loops, key=len)), True
        else:
            innermost = [loop for loop in loops if not any(other < loop for other in loops)]
            loads = lambda loop: sum(i.bytes_of_lane() for i in self.of(loop) if i.kind == "LDG")
            if innermost and max(map(loads, innermost)) > 0:
                return self.of(max(innermost, key=loads)), True
        return self.instructions, False


class Loop:
    """What the table says of a kernel's code."""

    def __init__(self, body):
        code = Code(body)
        self.spill_accesses = sum(i.kind in ("STL", "LDL") for i in code.instructions)
        self.instructions, self.is_loop = code.main_loop()

    def count(self, *kinds):
        return sum(i.kind in kinds for i in self.instructions)

    def limits(self):
        mma = self.count("HMMA")
        found = {"spill_accesses": self.spill_accesses, "instructions": len(self.instructions),
                 "branches": self.count("BRA", "BRX")}
        if mma:
            found["mma"] = mma
            found["ldmatrix_per_mma"] = round(self.count("LDSM") / mma, 4)
            found["loads"] = self.count("LDG")  # for which products wait; what is copied to shared memory is LDGSTS
        return found


def loops_of(cubins, nvdisasm):
    """{mangled name: Loop} of all kernels."""
    found = {}
    for cubin in cubins:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin.data)
            file.flush()
            text = subprocess.run([nvdisasm, "-c", "-ndf", file.name], check=True, capture_output=True,
                                  text=True).stdout
        found.update({name: Loop(body) for name, body in functions(text).items() if body})
    return found

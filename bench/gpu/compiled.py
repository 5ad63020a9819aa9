# SPDX-License-Identifier: Apache-2.0
"""Reads the kernels that a program or an object holds as nvcc compiled them: registers, stack, shared memory.

A fat binary is a header (magic, version, header bytes as u16, then u64 bytes) and entries (kind and version as u16,
header bytes as u32, u64 bytes), whose kind 2 is a cubin: an ELF file. Compressed entries are not read: compile with
--no-compress.
"""
import re
import struct
import subprocess

FAT_BINARY = struct.pack("<I", 0xBA55ED50)
REGISTERS, FRAME, MAX_THREADS = 0x2F, 0x11, 0x05  # attributes of .nv.info
RESERVED_SHARED = 1024  # of every block, by the system: part of .nv.shared


class Kernel:
    def __init__(self, name, mangled, registers, stack, static_shared, max_threads):
        self.name = name
        self.mangled = mangled
        self.registers = registers
        self.stack = stack  # bytes of a thread: spills, and arrays that are indexed
        self.static_shared = static_shared
        self.max_threads = max_threads  # 0: not bounded by the source

    def limits(self):
        """What the table says of a kernel without its code."""
        return {"registers": self.registers, "stack": self.stack, "static_shared": self.static_shared}


class Cubin:
    """One ELF file of code for one architecture."""

    def __init__(self, data):
        self.data = data
        self.sections = list(self._sections())
        note = next((self._bytes(header) for name, header in self.sections if name == ".note.nv.tkinfo"), b"")
        release = re.search(rb"release (\d+\.\d+)", note)
        architecture = re.search(rb"-arch (\w+)", note)
        self.toolkit = release.group(1).decode() if release else "unknown"
        self.architecture = architecture.group(1).decode() if architecture else "unknown"

    def _sections(self):
        at, = struct.unpack_from("<Q", self.data, 40)
        count, names = struct.unpack_from("<HH", self.data, 60)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + 64 * i) for i in range(count)]
        for header in headers:
            begin = headers[names][4] + header[0]
            yield self.data[begin:self.data.index(b"\0", begin)].decode(), header

    def _bytes(self, header):
        return self.data[header[4]:header[4] + header[5]]

    def _attributes(self, section):
        """(number, value) of .nv.info: a format and a number as bytes, then 2 bytes, or in format 4 that many."""
        for name, header in self.sections:
            if name != section:
                continue
            info, at = self._bytes(header), 0
            while at < len(info):
                form, number, value = struct.unpack_from("<BBH", info, at)
                at += 4
                if form == 4:
                    yield number, info[at:at + value]
                    at += value

    def kernels(self):
        """Without their readable names."""
        by_symbol = {REGISTERS: {}, FRAME: {}}
        for number, value in self._attributes(".nv.info"):
            if number in by_symbol:
                symbol, count = struct.unpack("<II", value)
                by_symbol[number][symbol] = count
        shared = {name: header[5] for name, header in self.sections}
        for name, header in self.sections:
            if not name.startswith(".text."):
                continue
            mangled, symbol = name[len(".text."):], header[7] & 0xFFFFFF
            bounds = [value for number, value in self._attributes(".nv.info." + mangled) if number == MAX_THREADS]
            yield Kernel(mangled, mangled, by_symbol[REGISTERS].get(symbol, 0), by_symbol[FRAME].get(symbol, 0),
                         max(shared.get(".nv.shared." + mangled, 0) - RESERVED_SHARED, 0),
                         struct.unpack_from("<I", bounds[0])[0] if bounds else 0)


def cubins(path):
    """All cubins in a file. Raises ValueError where one is compressed."""
    with open(path, "rb") as file:
        data = file.read()
    at = data.find(FAT_BINARY)
    while at >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + header, at + header + size
        while 0 < size and entry < end <= len(data):
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", data, entry)
            entry += entry_header
            if kind == 2:
                if data[entry:entry + 4] != b"\x7fELF":
                    raise ValueError(f"{path} holds compressed code; compile kernels with --no-compress")
                yield Cubin(data[entry:entry + entry_size])
            entry += entry_size
        at = data.find(FAT_BINARY, at + 4)


def without(text, opening, closing):
    """The text up to the bracket that is open last, without what stands in it: a function without its parameters."""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == closing) - (text[i] == opening)
        if depth == 0 and text[i] == opening:
            return text[:i]
    return text


def readable(mangled, demangled):
    """'attention_forward: forward<bf16, 64>'."""
    name = without(demangled, "(", ")") if demangled.endswith(")") else demangled
    for scope in ("fsdp::device::cuda::", "fsdp::device::", "fsdp::", "(anonymous namespace)::"):
        name = name.replace(scope, "")
    name = re.sub(r"^\w+ (?=\w+<)", "", name)  # the type that a template returns
    source = re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_", mangled)
    return f"{source.group(1)}: {name}" if source else name


def all_kernels(path):
    """(kernels by readable name, cubins). Raises ValueError."""
    found = list(cubins(path))
    kernels = [kernel for cubin in found for kernel in cubin.kernels()]
    shown = subprocess.run(["c++filt"], input="\n".join(kernel.mangled for kernel in kernels), check=True,
                           capture_output=True, text=True).stdout.split("\n")
    for kernel, demangled in zip(kernels, shown):
        kernel.name = readable(kernel.mangled, demangled)
    by_name = {kernel.name: kernel for kernel in kernels}
    if len(by_name) < len(kernels):
        twice = sorted({k.name for k in kernels if by_name[k.name] is not k})
        raise ValueError(f"kernels of one name: {', '.join(twice)}")
    return by_name, found

# SPDX-License-Identifier: Apache-2.0
"""How long a kernel takes at best on an H100 (SXM5): what its main loop asks of each unit of a multiprocessor, and the
bytes that must move. It knows no latencies of dependent instructions and no conflicts, so a device is slower.

Figures: clock, multiprocessors and the dense bf16 rate of the H100's data sheet (989 TFLOP/s, 3.35 TB/s); results a
clock of the CUDA C++ Programming Guide, "Arithmetic Instructions", compute capability 9.0; what mma.sync reaches of the
tensor cores' rate, which wgmma alone does, and the time of a load, of Luo and others, "Dissecting the NVIDIA Hopper
Architecture through Microbenchmarking" (2024); cuDNN's and FlashAttention-2's rates of Shah and others,
"FlashAttention-3" (2024), causal, 16k tokens; copies reach nine tenths of the memory's rate.
"""
import re

CLOCK = 1.83e9
MULTIPROCESSORS = 132
TENSOR_RATE = 989e12
MMA_SHARE = 0.63
MEMORY_RATE = 3.35e12
COPY_SHARE = 0.9
LOAD_SECONDS = 600e-9
REGISTERS, SHARED, THREADS, BLOCKS = 64 * 1024, 228 * 1024, 2048, 32  # of a multiprocessor
MMA_FLOPS = 2 * 16 * 8 * 16

# Products of all scores with a head's columns that a kernel makes, by its name; operations count 2 and 5 in all.
PRODUCTS = ((r"forward<", 2), (r"backward_keys<.*, true, false>", 3), (r"backward_keys<.*, false, true>", 2),
            (r"backward_keys<", 4), (r"backward_queries<", 3))

# TFLOP/s of cuDNN on an H100, by pass and head size, and what share of them is the goal; of copies for the rest.
CUDNN = {"attention": {64: 388, 128: 539, 256: 509}, "attention_backward": {128: 516}}
GOAL_OF_CUDNN = 0.35
GOAL_OF_COPY = 0.75
WITH_A_COPY_GOAL = ("rms_norm", "swiglu", "adamw", "cross_entropy")


def blocks_an_sm(kernel, launch):
    """How many of its blocks run on a multiprocessor at once. 0: it cannot be launched."""
    warps = -(-launch["threads"] // 32)
    registers = -(-kernel.registers * 32 // 256) * 256 * warps  # a warp's are given in units of 256
    shared = kernel.static_shared + launch["dynamic_shared"] + 1024
    shared = -(-shared // 128) * 128
    if launch["threads"] > (kernel.max_threads or 1024) or registers > REGISTERS or shared > SHARED:
        return 0
    return min(REGISTERS // registers, SHARED // shared, THREADS // (warps * 32), BLOCKS)


def clocks(instruction):
    """(unit, clocks of a multiprocessor for one instruction of a warp)."""
    kind, width = instruction.kind, instruction.bytes_of_lane()
    if kind == "HMMA":
        return "tensor cores", MMA_FLOPS * MULTIPROCESSORS * CLOCK / (TENSOR_RATE * MMA_SHARE)
    if kind == "LDSM":
        return "shared memory", {"4": 4, "2": 2}.get(instruction.opcode.split(".")[-1], 1)
    if kind in ("LDS", "STS", "LDGSTS", "LDG", "STG", "LDL", "STL"):
        return "shared memory", max(width / 4, 1)  # 128 bytes a clock, as the first cache, which shares its way
    if kind == "SHFL":
        return "shared memory", 1
    if kind == "MUFU":
        return "special functions", 2
    if kind in ("FADD", "FMUL", "FFMA"):
        return "float", 0.25
    if kind.startswith("IMAD"):
        return "float", 0.5
    if kind in ("DADD", "DMUL", "DFMA", "DSETP"):
        return "double", 0.5
    if kind in ("BRA", "BSSY", "BSYNC", "BAR", "NOP", "EXIT", "DEPBAR", "LDC", "ULDC", "S2R", "LDGDEPBAR"):
        return "other", 0
    return "integer", 0.5


def pressure(loop):
    """Clocks of a multiprocessor by unit, for one round of one warp."""
    units = {"issue": 0.25 * len(loop.instructions)}
    for instruction in loop.instructions:
        unit, count = clocks(instruction)
        units[unit] = units.get(unit, 0) + count
    return units


class Estimate:
    """Seconds, what sets them, and the rate that follows, beside the goal (None: there is none)."""

    def __init__(self, seconds, limit, work, unit, goal):
        self.seconds, self.limit = seconds, limit
        self.rate, self.unit, self.goal = work / seconds, unit, goal


def head_size(operation):
    return int(operation.rsplit(" ", 1)[1]) if "head size" in operation else None


def products_of(kernel, columns):
    """How many products with a head's columns it makes, on tiles that may be wider than the head."""
    for pattern, count in PRODUCTS:
        if re.search(": " + pattern, kernel.name):
            tile = re.search(r"<\w+, (\d+)", kernel.name)
            return count * (int(tile.group(1)) / columns if tile and columns else 1)
    return 0


def of_tensor_cores(operation, launches, flops):
    """Of attention: every launch whose loop has products, one after the other."""
    pass_name = operation.split(" ")[0]
    product = flops / (2 if pass_name == "attention" else 5)
    seconds, slowest = 0, (0, "")
    for kernel, _, loop in launches:
        mma = loop.count("HMMA") if loop else 0
        products = products_of(kernel, head_size(operation))
        if mma == 0 or products == 0:
            continue
        units = pressure(loop)
        unit = max(units, key=units.get)
        time = products * product / MMA_FLOPS / mma * units[unit] / MULTIPROCESSORS / CLOCK
        seconds += time
        slowest = max(slowest, (time, unit))
    if seconds == 0:
        return None
    cudnn = CUDNN.get(pass_name, {}).get(head_size(operation))
    return Estimate(seconds, slowest[1], flops, "FLOP/s", GOAL_OF_CUDNN * cudnn * 1e12 if cudnn else None)


def of_memory(operation, launches, moved):
    """Of the rest: what the memory gives, what loads on their way keep busy, or what the loop's instructions take."""
    kernel, launch, loop = max(launches, key=lambda each: each[1]["blocks"] * each[1]["threads"])
    rates = {"memory": MEMORY_RATE * COPY_SHARE}
    loads = 32 * sum(i.bytes_of_lane() for i in loop.instructions if i.kind == "LDG") if loop else 0
    stores = 32 * sum(i.bytes_of_lane() for i in loop.instructions if i.kind == "STG") if loop else 0
    if loads and loop.is_loop:
        blocks = min(blocks_an_sm(kernel, launch), -(-launch["blocks"] // MULTIPROCESSORS))
        warps = MULTIPROCESSORS * blocks * launch["threads"] / 32
        rates["loads on their way"] = warps * (loads + stores) / LOAD_SECONDS
        for unit, count in pressure(loop).items():
            rates[unit] = MULTIPROCESSORS * CLOCK * (loads + stores) / count if count else float("inf")
    limit = min(rates, key=rates.get)
    goal = GOAL_OF_COPY * COPY_SHARE * MEMORY_RATE if operation.startswith(WITH_A_COPY_GOAL) else None
    return Estimate(moved / rates[limit], limit, moved, "B/s", goal)


def estimate(operation, launches, flops, moved):
    """launches: (kernel, launch, loop or None). None: nothing is known of it."""
    if flops:
        return of_tensor_cores(operation, launches, flops)
    return of_memory(operation, launches, moved) if moved and launches else None
